"""The abuse suite's account: what each case is, what became of it, what it did to the host and to a neighbour.

A test named `test_<numbers>_...` in tests/abuse belongs to the cases of those numbers. Around it the host is looked at
(processes, control groups, state, mounts, disk, open files) and a neighbour sandbox answers all the while; afterwards
a new sandbox must start. `make abuse` prints the account and writes it down.
"""

from __future__ import annotations

import os
import re
import statistics
import time
from pathlib import Path
from typing import Any

import anyio
import msgspec
from support.sandbox_host import processes_of

from tiltyard.sandbox.backend import Sandbox, Want
from tiltyard.sandbox.gvisor import GVisorBackend
from tiltyard.sandbox.instance import GROUP
from tiltyard_proto.messages import Command, ExecLimits, Execution
from tiltyard_proto.outcomes import Outcome, policy_for

CASES = {
    1: "4 GiB allocated",
    2: "memory used up by a child",
    3: "address space limited by the program",
    4: "endless loop",
    5: "all signals ignored",
    6: "fork bomb in the shell",
    7: "fork loop and thread bomb",
    8: "daemon forked twice",
    9: "a thousand orphans",
    10: "background child holds stdout",
    11: "floods of output",
    12: "binary output",
    13: "reader of stdin",
    14: "disk filled in seven ways",
    15: "many files, hostile names, deep tree",
    16: "descriptors and mappings used up",
    17: "ways to the network",
    18: "looking for the host",
    19: "kernel interfaces",
    20: "attacks on the agent",
    21: "looking for secrets",
    22: "paths and races at the file interface",
    23: "hostile archives",
    24: "setuid binary",
    25: "64 commands at once",
    26: "CPU hogs beside one another",
    27: "SIGKILL of the service, 20 busy sandboxes",
    28: "death of each part of a sandbox",
    29: "two services on one host",
    30: "20 abusive attempts at one task",
    31: "tampering with the reward",
    32: "200 programs, equal under bubblewrap and gVisor",
}
PROBE = Command(argv=("true",), limits=ExecLimits(wall_s=60.0))
EVERY_S = 0.05
FEWEST = 4
"""Probes during a case that say something about the neighbour."""
SLACK_S = 0.4
"""What a neighbour's answer may take on top of twice its usual time in a test, since others use the machine too;
`make abuse` holds the ratio itself against 2."""


class Finding(msgspec.Struct, kw_only=True):
    """What one test found about its cases."""

    cases: tuple[int, ...]
    test: str
    outcomes: list[str] = []
    attributions: list[str] = []
    clean: bool = False
    ratio: float | None = None
    """Neighbour's median latency during the case, over the one before it; None when it was over too soon."""
    seconds: float = 0.0
    passed: bool = False
    running: int = 0
    """Commands other than the neighbour's that run now."""


def cases_of(name: str) -> tuple[int, ...]:
    """The numbers in a test's name: (6, 7) for 'test_6_7_process_bombs[x]'."""
    found = re.match(r"test_((?:\d+_)+)", name)
    return tuple(int(number) for number in found.group(1).split("_") if number) if found else ()


def attribution_of(execution: Execution) -> str:
    """Whose doing the ending was."""
    said = getattr(execution, "attribution", None)
    if said is not None:
        return str(said.value)
    return "policy" if policy_for(execution.outcome).trains else "infrastructure"


class Host:
    """What a back-end has on the host, apart from the sandboxes that were there before."""

    def __init__(self, backend: GVisorBackend) -> None:
        self.backend = backend
        self.known = self._sandboxes()
        self.files = self._open_files()

    def _sandboxes(self) -> set[str]:
        instance = self.backend.instance
        names = {path.name for path in instance.path.glob("s[0-9]*")}
        return names | set(self.backend.tree.names(f"{GROUP}/{instance.id}"))

    def _open_files(self) -> int:
        return len(os.listdir("/proc/self/fd"))

    def left(self) -> list[str]:
        """What there is that was not there before."""
        instance = self.backend.instance.id
        found = [f"sandbox {name}" for name in self._sandboxes() - self.known]
        for pid in processes_of(instance):
            try:
                line = Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace")
            except OSError:
                continue
            names = set(re.findall(rf"{instance}[-/](s\d+)\b", line))
            if names and not names & self.known:
                found.append(f"process {pid} of {sorted(names)}")
        mounts = Path("/proc/self/mountinfo").read_text()
        found += [f"mount of {name}" for name in set(re.findall(rf"{instance}[-/](s\d+)\b", mounts)) - self.known]
        more = self._open_files() - self.files
        return [*found, f"{more} open files"] if more > 0 else found

    async def eventually_clean(self) -> None:
        """Wait until nothing is left; fails after 5 seconds with what is."""
        with anyio.move_on_after(5):
            while self.left():  # noqa: ASYNC110  (nobody announces it)
                await anyio.sleep(0.02)
        assert self.left() == []
        assert self.backend.leaked == 0


class Neighbour:
    """A well-behaved sandbox that answers while others misbehave."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self.over = False
        self.during: list[float] = []
        """While something else ran."""
        self.before: list[float] = []
        self.after: list[float] = []

    async def ask(self) -> float:
        begun = time.monotonic()
        found = await self.sandbox.run(PROBE)
        assert found.outcome is Outcome.FINISHED, found
        return time.monotonic() - begun

    async def rest(self, times: int = 5) -> list[float]:
        """Its latencies while nothing else happens."""
        return [await self.ask() for _ in range(times)]

    async def keep_asking(self, finding: Finding) -> None:
        while not self.over:
            before = finding.running
            took = await self.ask()  # never cut off: a sandbox is useless after half an exchange
            if before and finding.running:
                self.during.append(took)
            await anyio.sleep(EVERY_S)

    @property
    def ratio(self) -> float | None:
        if len(self.during) < FEWEST:
            return None
        return statistics.median(self.during) / self.usual

    @property
    def usual(self) -> float:
        """Its median latency before and after, whichever was longer: others may use the machine too."""
        return max(statistics.median(self.before), statistics.median(self.after))

    def check(self) -> None:
        """At most doubled."""
        if self.ratio is not None:
            assert statistics.median(self.during) <= 2 * self.usual + SLACK_S


async def assert_serves(backend: GVisorBackend) -> None:
    """A new sandbox starts, runs a command, and goes."""
    sandbox = await backend.start(Want())
    found = await sandbox.run(PROBE)
    await sandbox.kill()
    assert found.outcome is Outcome.FINISHED, found


def merged(findings: list[Finding]) -> list[dict[str, Any]]:
    """One row for each case that was tried, in order."""
    rows = []
    for number, title in CASES.items():
        mine = [each for each in findings if number in each.cases]
        if mine:
            ratios = [each.ratio for each in mine if each.ratio is not None]
            rows.append(
                {
                    "case": number,
                    "title": title,
                    "outcomes": sorted({name for each in mine for name in each.outcomes}),
                    "attributions": sorted({name for each in mine for name in each.attributions}),
                    "clean": all(each.clean for each in mine),
                    "ratio": max(ratios, default=None),
                    "seconds": max(each.seconds for each in mine),
                    "passed": all(each.passed for each in mine),
                }
            )
    return rows
