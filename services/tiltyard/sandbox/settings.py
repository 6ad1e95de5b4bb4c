"""`[sandbox]`: settings of the sandbox service."""

from __future__ import annotations

from typing import Literal

import msgspec

from tiltyard.kit.ranges import Above0, Amount, Positive, Whole

from .admission import Quota
from .egress.rules import parse


class SandboxSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How untrusted code is run. Limits of one command travel with the command."""

    backend: Literal["gvisor", "docker", "bubblewrap", "process", "null"] = "gvisor"
    """'gvisor'; 'docker'; 'bubblewrap' and 'process' need `allow_untrusted_process`; 'null', which runs nothing."""
    allow_untrusted_process: bool = False
    """Run code of a model on the host's own kernel. For trusted code and for tests on throw-away machines only."""
    runsc: str = ""
    """Path of runsc; empty: <home>/bin/runsc, then the PATH."""
    platform: Literal["auto", "systrap", "ptrace", "kvm"] = "systrap"
    """gVisor platform: 'systrap', 'ptrace', 'kvm', or 'auto': ptrace where this runsc has it, which starts cheaper."""
    home: str = ""
    """Directory of runsc, images and live sandboxes; empty: $TILTYARD_HOME, else ~/.cache/tiltyard."""
    profiles: str = ""
    """Directory of profiles (TOML files) that add to the shipped ones, or replace them by name."""
    image: dict[str, str] = {}
    """Root file system per profile, instead of the one that its recipe names in <home>/images."""
    pack: bool = True
    """Keep each image also as one file, where mkfs.erofs is there: a start costs a third less CPU."""
    pool: dict[str, Whole] = msgspec.field(default_factory=lambda: {"python": 8})
    """Idle sandboxes kept ready at least, per profile, whatever the profile says. Each takes about 22 MiB."""
    pool_most: Positive = 48
    """Idle sandboxes of one kind at most; a pool grows with the claims, since a group of rollouts comes all at once."""
    pool_bytes: Positive = 2 << 30
    """Memory for idle sandboxes in all; pools shrink to fit it."""
    pool_idle_s: Above0 = 120.0
    """A pool that nobody claimed from for so long, and that no setting asks for, is given up."""
    refill: Positive = 2
    """Sandboxes started at a time to refill the pools."""
    starts: Positive = 4
    """Sandboxes started at a time in all; more than two a core only makes each wait longer."""
    slots: Positive = 4
    """Messages handled at a time."""
    fair: bool = True
    """Evaluations first, then domains by fair shares; otherwise in the order of arrival. The same in all sandboxes."""
    egress: tuple[str, ...] = ()
    """Hosts that tasks may ask to reach: 'name' (ports 80 and 443), 'name:port', an address. Empty: none at all."""
    egress_bytes: Positive = 256 << 20
    """Most bytes that may pass between one sandbox and the hosts that it may reach."""
    egress_connections: Positive = 16
    """Most connections of one sandbox at a time."""
    host_pids: Positive = 1024
    """Back-stop on the sandbox's threads on the host; processes inside are limited by the command."""
    count_forks: bool = True
    """Let gVisor tell of each fork, so that those refused at a command's process limit are counted, not guessed."""
    start_s: Above0 = 30.0
    """A start that takes longer has failed."""
    snapshot_bytes: Whole = 1 << 30
    """Disk for snapshots of profiles under <home>/snapshots; the least recently used go first."""
    branches: Whole = 32
    """Snapshots of sessions kept at a time; the least recently used goes first."""
    branch_bytes: Whole = 2 << 30
    """Disk for them."""
    session_idle_s: Above0 = 600.0
    """A session without a turn for so long is ended; the next turn restores it from its last workspace."""
    session_s: Above0 = 3600.0
    """A session that is so old is ended after its turn, however busy it is; the next turn rebuilds it."""
    sessions: Whole = 64
    """Sessions kept alive at a time; the least recently used goes first."""
    workspace_bytes: Positive = 16 << 20
    """Largest workspace that is carried from turn to turn."""
    workspace_entries: Positive = 2000
    """Most files and directories in it."""
    output_hard_bytes: Positive = 4 << 20
    """A command that writes more than this to one stream is killed."""
    cache_bytes: Whole = 64 << 20
    """Results kept of deterministic grading jobs; 0 for none."""
    docker_socket: str = "/var/run/docker.sock"
    """Back-end 'docker': where its daemon listens."""
    docker_runtime: str = "runsc"
    """Its runtime: gVisor by the name in the daemon's configuration. Another one needs `allow_untrusted_process`."""
    docker_memory_bytes: Positive = 512 << 20
    """Memory of a container; commands can't ask for more, since gVisor can't change it under Docker."""
    tenants: dict[str, Quota] = {}
    """Quota of a run, by its name; '*' is that of each run which is not named."""
    domains: dict[str, Quota] = {}
    """Quota of a domain, by its name or a beginning of it ('code.python'); '*' as above."""
    queue: Whole = 256
    """Most that wait for a quota at a time; one more is handed back to the bus."""
    queue_s: Above0 = 20.0
    """One that has waited for a quota so long is handed back to the bus."""
    lifetime_s: Above0 = 3600.0
    """A sandbox that was handed out so long ago is killed, whatever it does."""
    reconcile_s: Above0 = 30.0
    """Every so often, what belongs to no live sandbox is looked for and removed."""
    abuse_task: Amount = 12.0
    """Executions of a task that ran into limits, in the window, after which more are refused; 0: never."""
    abuse_group: Amount = 8.0
    """The same for one group."""
    abuse_window_s: Above0 = 300.0
    """The window."""
    abuse_open_s: Above0 = 60.0
    """For so long executions are refused; then one is tried. Doubles with each trial that fails, up to 10 minutes."""

    def __post_init__(self) -> None:
        parse(self.egress)
        if self.backend == "docker" and self.docker_runtime == "runc" and not self.allow_untrusted_process:
            raise ValueError("docker_runtime: 'runc' leaves the host's kernel open to the code; use gVisor's runsc")
        if self.backend in ("bubblewrap", "process") and not self.allow_untrusted_process:
            weak = "isolates nothing" if self.backend == "process" else "leaves the host's kernel open to the code"
            raise ValueError(
                f"backend: {self.backend!r} {weak}; set sandbox.allow_untrusted_process = true where a model's code "
                "may do what it likes with this machine"
            )
