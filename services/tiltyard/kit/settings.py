"""Settings: one TOML file with a table per component, overridden by the environment, then by the command line.

Invariants: everything is checked before anything starts; an unknown table or key is refused; an error names the
source, the key and what was expected. `TILTYARD_TRAINER__LR=1e-5` sets `lr` of `[trainer]`; so does
`--set trainer.lr=1e-5`. Values of both are read as TOML, and as plain text where that fails. A secret may lie in a
file: `TILTYARD_ENGINE__API_KEY_FILE=/run/secrets/key` sets `api_key` of `[engine]` to what is in it, as text.
Left out: what each key means, which stands in the `settings.py` of the component that owns it.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import urlsplit

import msgspec

from tiltyard_proto.keys import check_domain, check_run

from .ranges import Above0, Amount, Port, Positive, Share, Whole

ENV_PREFIX = "TILTYARD_"
RESERVED_ENV = frozenset({"TILTYARD_HOME", "TILTYARD_TORCH", "TILTYARD_VENV", "TILTYARD_NKEY_SEED"})
"""Read by the set-up, or secrets that must not become settings."""
IN_FILE = "_file"
"""A variable that ends like this names the file which holds the value; no setting does."""
MAX_FILE = 4 << 20
"""Bytes of a configuration file."""
S = TypeVar("S", bound=msgspec.Struct)


class SettingsError(ValueError):
    """The user's configuration is wrong; the message says where and what was expected."""


class TaskShare(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much of a domain a run uses."""

    tasks: Positive = 200
    """Tasks to publish."""
    samples: Positive = 4
    """Rollouts of each task in an evaluation."""
    temperature: Amount | None = None
    """Overrides the domain's sampling temperature; 0 is greedy."""


class RunSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[run]`: one training or evaluation campaign."""

    name: str = "demo"
    """Run name: a-z 0-9 _; part of every key."""
    seed: Whole = 0
    """Of task generation, sampling and training."""
    model: Annotated[str, msgspec.Meta(min_length=1)] = "smollm2-135m-instruct"
    """A built-in model, or the path of a Hugging Face directory."""
    steps: Whole = 12
    """Policy updates; 0 evaluates only."""
    max_wall_s: Amount = 0.0
    """Stop at the first step boundary after this many seconds of training; 0 means no limit."""
    groups_per_step: Positive = 8
    """Trainable groups of one update."""
    group_size: Positive = 8
    """Rollouts of one task that share a baseline (G)."""
    staleness: Whole = 1
    """Policy versions that sampling may run ahead of training, counted from the start of generation."""
    refill_cap: Above0 = 2.0
    """A step closes short when this many times its groups have closed for it."""
    group_deadline_s: Above0 = 300.0
    """A group is closed with what is there after this many seconds."""
    evaluate_every: Whole = 0
    """Evaluate every so many versions besides the first and the last; 0: only those two."""
    train: dict[str, TaskShare] = {}
    """Domains to train on."""
    evaluate: dict[str, TaskShare] = {}
    """Domains to evaluate on, with held-out tasks."""

    def __post_init__(self) -> None:
        try:
            check_run(self.name)
        except ValueError as error:
            raise ValueError(f"name: {error}") from error
        for key in ("train", "evaluate"):
            for domain in getattr(self, key):
                try:
                    check_domain(domain)
                except ValueError as error:
                    raise ValueError(f"{key}: {error}") from error
        for key, least in (
            ("groups_per_step", 1),
            ("group_size", 1),
            ("refill_cap", 1),
            ("staleness", 0),
            ("steps", 0),
        ):
            if getattr(self, key) < least:
                raise ValueError(f"{key}: expected at least {least}")
        if self.group_size < 2 and self.steps:
            raise ValueError("group_size: a baseline needs at least 2 rollouts")


class BusSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[bus]`: where NATS is."""

    servers: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)] = ("nats://127.0.0.1:4222",)
    """URLs of the NATS servers."""
    embedded: bool = True
    """`tiltyard up` starts its own nats-server on the first URL's port."""
    durability: Literal["development", "production"] = "development"
    """'development': one copy, survives killed processes; 'production': three copies on a cluster that syncs every
    write, survives a power cut of all servers. Start-up refuses production on servers that don't have it."""
    monitors: tuple[str, ...] = ()
    """Monitoring URLs of all servers of the cluster, needed for 'production': where the sync setting is read."""
    binary: Annotated[str, msgspec.Meta(min_length=1)] = "nats-server"
    """Executable of the embedded server."""
    secure: bool = False
    """TLS and one user per service with its own permissions; `tiltyard up` makes missing credentials."""
    credentials: str = ""
    """Directory made by `tiltyard credentials`, or one user's folder of it; secures the bus; default with secure:
    credentials in data.root."""

    def __post_init__(self) -> None:
        for url in self.servers:
            check_url(url, "servers", ("nats", "tls", "ws", "wss"))
        for url in self.monitors:
            check_url(url, "monitors", ("http", "https"))
        if self.durability != "production":
            return
        if self.embedded:
            raise ValueError("durability: 'production' stands on a cluster of three servers; set bus.embedded = false")
        if len(self.monitors) < 3:
            raise ValueError(
                "monitors: 'production' needs the monitoring URLs of all three servers or more, "
                "such as ['http://nats-0:8222', 'http://nats-1:8222', 'http://nats-2:8222']"
            )

    @property
    def replicas(self) -> int:
        """Copies of each stream and bucket."""
        return 3 if self.durability == "production" else 1


def check_url(url: str, key: str, schemes: Sequence[str]) -> None:
    """ValueError unless `url` is SCHEME://HOST[:PORT] with one of the schemes."""
    try:
        parts = urlsplit(url)
        good = parts.scheme in schemes and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number, or out of range
        good = False
    if not good:
        raise ValueError(f"{key}: expected {schemes[0]}://HOST:PORT, got {url!r}")


class DataSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[data]`: where things lie on disk."""

    root: Annotated[str, msgspec.Meta(min_length=1)] = ".tiltyard"
    """Runs, blobs, bus store, archive; shared by all services."""
    cache: str = ""
    """Models and images, shared by runs; default $TILTYARD_HOME, else ~/.cache/tiltyard."""

    @property
    def cache_path(self) -> Path:
        chosen = self.cache or os.environ.get("TILTYARD_HOME") or "~/.cache/tiltyard"
        return Path(chosen).expanduser()

    def run_path(self, run: str) -> Path:
        return Path(self.root).absolute() / "runs" / run

    @property
    def blob_path(self) -> Path:
        return Path(self.root).absolute() / "blobs"


class ServiceSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[service]`: what every service process has."""

    log_format: Literal["auto", "console", "json"] = "auto"
    """'console', 'json', or 'auto': console in a terminal, else json."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """debug, info, warning or error."""
    metrics_port: Port = 0
    """Port of /metrics, /healthz and /readyz; 0 for none. `tiltyard up` counts on from it, one port a process."""
    drain_s: Amount = 10.0
    """Seconds that running handlers get after SIGTERM."""
    breaker_share: Share = 0.8
    """A stage pauses a domain when more than this share of its last messages died there; 0: never."""
    breaker_window: Positive = 50
    """Of a domain's last so many messages that ended in one process."""
    otlp_endpoint: str = ""
    """Send traces to this OTLP collector (http://HOST:4318); empty sends none."""

    def __post_init__(self) -> None:
        if self.otlp_endpoint:
            check_url(self.otlp_endpoint, "otlp_endpoint", ("http", "https"))


SHARED: dict[str, type[msgspec.Struct]] = {
    "run": RunSettings,
    "bus": BusSettings,
    "data": DataSettings,
    "service": ServiceSettings,
}
COMPONENTS = ("engine", "gateway", "sandbox", "verifier", "aggregator", "sampler", "trainer", "supervisor", "janitor")


class Source(msgspec.Struct, frozen=True):
    """The merged tables, and where each overridden key came from."""

    tables: dict[str, Any]
    origins: dict[str, str]
    file: str


def _parse_value(text: str) -> Any:
    try:
        parsed = tomllib.loads(f"value = {text}")
    except (tomllib.TOMLDecodeError, RecursionError):
        return text
    return parsed["value"] if len(parsed) == 1 else text


def _assign(tables: dict[str, Any], origins: dict[str, str], dotted: str, text: str, origin: str) -> None:
    try:
        path = list(tomllib.loads(f"{dotted} = 0").items())
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{origin}: expected table.key=value, got {dotted!r}") from error
    keys: list[str] = []
    while path:
        key, value = path[0]
        keys.append(key)
        path = list(value.items()) if isinstance(value, dict) else []
    if len(keys) < 2:
        raise SettingsError(f"{origin}: expected table.key=value, got {dotted!r}")
    table = tables
    for depth, key in enumerate(keys[:-1], 1):
        table = table.setdefault(key, {})
        if not isinstance(table, dict):
            raise SettingsError(f"{origin}: {'.'.join(keys[:depth])} is a value, not a table")
    table[keys[-1]] = _parse_value(text)
    origins[".".join(keys[:2])] = origin


def _read_file(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_FILE + 1)
        if len(raw) > MAX_FILE:
            raise SettingsError(f"{path}: more than {MAX_FILE >> 20} MiB: this is no configuration file")
        return tomllib.loads(raw.decode("utf-8-sig"))  # an editor's byte order mark is no mistake
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: not valid TOML: {error}") from error
    except RecursionError:
        raise SettingsError(f"{path}: not valid TOML: nested too deeply") from None


def _read_secret(path: str, origin: str) -> str:
    """What is in a file, as a string of TOML: a key of digits stays text."""
    try:
        secret = Path(path).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{origin}: {path}: {getattr(error, 'strerror', None) or 'not text'}") from error
    if not secret:  # an empty key would be no key: open to all
        raise SettingsError(f"{origin}: {path}: nothing is in it")
    return _quoted(secret)


def _quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()


def read_source(file: Path | None, overrides: Sequence[str] = (), environ: Mapping[str, str] | None = None) -> Source:
    """Merge file, environment and `table.key=value` overrides; SettingsError for the user's mistakes."""
    tables: dict[str, Any] = {}
    origins: dict[str, str] = {}
    if file is not None:
        tables = _read_file(file)
    for name, text in sorted((os.environ if environ is None else environ).items()):
        if name.startswith(ENV_PREFIX) and name not in RESERVED_ENV:
            dotted = name.removeprefix(ENV_PREFIX).lower().replace("__", ".")
            origin = f"environment variable {name}"
            if dotted.endswith(IN_FILE):
                dotted, text = dotted.removesuffix(IN_FILE), _read_secret(text, origin)
            _assign(tables, origins, dotted, text, origin)
    for item in overrides:
        dotted, equals, text = item.partition("=")
        if not equals:
            raise SettingsError(f"--set {item}: expected table.key=value")
        _assign(tables, origins, dotted.strip(), text.strip(), f"--set {item}")
    _check_tables(tables, origins, str(file or "defaults"))
    return Source(tables, origins, str(file or "defaults"))


def _check_tables(tables: Mapping[str, Any], origins: Mapping[str, str], file: str) -> None:
    known = [*SHARED, *COMPONENTS]
    for name, table in tables.items():
        if name not in known:
            origin = next((where for key, where in origins.items() if key.split(".")[0] == name), file)
            raise SettingsError(f"{origin}: [{name}]: unknown table; expected one of {', '.join(known)}")
        if not isinstance(table, dict):
            raise SettingsError(f"{file}: {name}: expected a table [{name}]")


def section(source: Source, name: str, kind: type[S]) -> S:
    """The settings of one table as its struct; SettingsError names the file, the key and what was expected."""
    try:
        return msgspec.convert(source.tables.get(name, {}), kind, strict=True)
    except (msgspec.ValidationError, ValueError) as error:
        text = str(error)
        path = text.rsplit("at `$.", 1)[1].rstrip("`") if "at `$." in text else ""
        unknown = re.search("unknown field `(.*)`", text)
        named = (word for word in re.findall(r"\w+", text) if word in kind.__struct_fields__)
        key = path.split(".")[0].split("[")[0] or (unknown.group(1) if unknown else next(named, ""))
        origin = source.origins.get(f"{name}.{key}", source.file)
        where = f"[{name}] {path}" if path else f"[{name}]"
        hint = f"; known keys: {', '.join(kind.__struct_fields__)}" if unknown and not path else ""
        raise SettingsError(f"{origin}: {where}: {text.split(' - at `$')[0]}{hint}") from error
