"""compose.yaml and the Dockerfile say what the code says; tests/compose starts them for real."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from tiltyard.cli.main import SERVICES, parser
from tiltyard.cli.sections import check_all
from tiltyard.kit.settings import ServiceSettings, Source, read_source
from tiltyard_proto import permissions

ROOT = Path(__file__).parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load(
    re.sub(r"\$\{(\w+):-([^}]*)\}", lambda found: found.group(2), (ROOT / "compose.yaml").read_text())
)
"""With the defaults of its variables."""
PARTS: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = {name: part for name, part in PARTS.items() if part["image"].startswith("tiltyard/")}
OTHERS = {"lmsysorg/sglang", "prom/prometheus", "grafana/grafana"}
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
ONCE = {"prepare", "provision", "model", "tasks", "images"}
USERS = {"provision": "provisioner", "tasks": "cli"}
"""Services that connect to the bus as a user of another name."""
DOCKERFILE = (ROOT / "Dockerfile").read_text()
FILE = "/etc/tiltyard/tiltyard.toml"


def image_of(part: dict[str, Any]) -> str:
    return str(part["image"]).split("/")[-1].split(":")[0]


def settings_of(name: str) -> Source:
    """What the service's settings are on the demo's run, with the variables of its container."""
    variables = {key: str(value) for key, value in OURS[name].get("environment", {}).items()}
    inside = {key: value for key, value in variables.items() if not key.endswith("_FILE")}
    return read_source(ROOT / "examples/demo.toml", (), inside)


def volumes(name: str) -> dict[str, str]:
    """What is mounted, by where."""
    return {
        where: what
        for what, where, *_ in (
            each.rsplit(":", 2) if each.count(":") > 1 else each.split(":") for each in PARTS[name].get("volumes", [])
        )
    }


def test_every_service_of_the_code_is_there() -> None:
    """Each service runs from its own image, which the Dockerfile makes of this release."""
    assert set(SERVICES) <= set(PARTS)
    built = set(re.findall(r"^FROM \S+ AS for-(\w+)$", DOCKERFILE, re.MULTILINE))
    assert built == {*SERVICES, "cli"}
    for name, part in OURS.items():
        image, tag = part["image"].split(":")
        assert tag.removesuffix("-gpu") == VERSION, name
        if image_of(part) == "nats":
            assert part["build"]["target"] == "nats"
        else:
            assert image.removeprefix("tiltyard/") in built
        assert name not in SERVICES or image_of(part) == name
    makers = [part for part in OURS.values() if "build" in part and image_of(part) != "nats"]
    assert {part["image"] for part in makers} == {part["image"] for part in OURS.values()} - {OURS["nats"]["image"]}
    assert len({part["image"] for part in makers}) == len(makers), "an image is built once"
    assert all(part["build"]["args"]["SERVICE"] == image_of(part) for part in makers)
    assert all(part["pull_policy"] == "never" for part in OURS.values() if "build" not in part)
    for name, part in PARTS.items():
        image, _, tag = part["image"].rpartition(":")
        assert name in OURS or (image in OTHERS and tag != "latest")


def test_images_of_others_are_those_of_kubernetes() -> None:
    """Both ways of running it take the same releases of what is not ours."""
    manifests = "".join(path.read_text() for path in (ROOT / "infra/kubernetes").rglob("*.yaml"))
    for name in set(PARTS) - set(OURS):
        assert f"image: {PARTS[name]['image']}\n" in manifests
    (nats,) = re.findall(r"^ARG NATS_IMAGE=(.*)$", DOCKERFILE, re.MULTILINE)
    assert f"image: {nats}\n" in manifests
    assert OURS["nats"]["build"]["args"]["NATS_IMAGE"] == nats
    (base,) = re.findall(r"^ARG BASE_IMAGE=(.*)$", DOCKERFILE, re.MULTILINE)
    assert OURS["nats"]["build"]["args"]["BASE_IMAGE"] == base


def test_commands_are_those_of_the_code() -> None:
    """`tiltyard ...` parses with the mounted file, and a service runs the part that it is named after."""
    for name, part in OURS.items():
        command = part.get("command", [])
        if not command:
            assert part.get("entrypoint") == {"prepare": ["prepare"], "cli": ["tiltyard"]}.get(name)
            continue
        arguments = parser().parse_args(command[1:])
        assert str(arguments.config) == FILE
        assert FILE in volumes(name)
        assert arguments.command != "run" or arguments.service == name.removesuffix("-gpu") == image_of(part)


def test_variables_are_settings() -> None:
    """Every TILTYARD_ variable sets a key that exists, and those that name files name mounted ones."""
    seen = 0
    for name, part in OURS.items():
        check_all(settings_of(name))
        for key, value in part.get("environment", {}).items():
            assert isinstance(value, str), key
            if key.endswith("_FILE"):
                check_all(read_source(None, (), {key.removesuffix("_FILE"): "x"}))
                assert any(value.startswith(f"{where}/") for where in volumes(name)), key
                seen += 1
    assert seen == 4


def test_addresses_lead_to_containers() -> None:
    """Servers and engines are services in the same network that listen on that port."""
    bus, gateway = check_all(settings_of("sampler"))["bus"], check_all(settings_of("gateway"))["gateway"]
    (server,), (engine,) = bus.servers, gateway.engines
    conf = (ROOT / "infra/nats/nats-server.conf").read_text()
    assert (urlsplit(server).hostname, f'listen: "0.0.0.0:{urlsplit(server).port}"' in conf) == ("nats", True)
    own = check_all(settings_of("engine"))["engine"]
    assert (urlsplit(engine).hostname, urlsplit(engine).port, own.host) == ("engine", own.port, "0.0.0.0")
    assert f"--port {own.port}" in PARTS["sglang"]["command"][-1]
    assert PARTS["sglang"]["networks"] == {"engine": {"aliases": ["engine"]}}
    for name in ("gateway", "engine", "prometheus"):
        assert "engine" in PARTS[name]["networks"]


def test_checks_ask_the_truthful_pages() -> None:
    """Every service is asked whether it is ready, on the port that its settings open."""
    for name in (*SERVICES, "trainer-gpu", "nats"):
        _, program, port, page = PARTS[name]["healthcheck"]["test"]
        assert program == "ready"
        if name == "nats":
            assert f'http: "127.0.0.1:{port}"' in (ROOT / "infra/nats/nats-server.conf").read_text()
        elif name == "engine":
            assert (int(port), page) == (check_all(settings_of(name))["engine"].port, "/health")
        else:
            assert (int(port), page) == (check_all(settings_of(name))["service"].metrics_port, "/readyz")


def test_containers_are_restricted() -> None:
    """All are unprivileged users on read-only roots with bounds; those with a right say in docs/sandbox.md why."""
    for name, part in PARTS.items():
        assert part["cap_drop"] == ["ALL"], name
        assert part["read_only"] is True
        assert "no-new-privileges:true" in part["security_opt"]
        assert not {"privileged", "pid", "ipc"} & part.keys()
        assert part["deploy"]["resources"]["limits"]["memory"]
        assert part.get("restart") == {"cli": None}.get(name, "on-failure:3" if name in ONCE else "unless-stopped")
        assert all(port.startswith("127.0.0.1:") for port in part.get("ports", []))
    rights = {name: part["cap_add"] for name, part in PARTS.items() if "cap_add" in part}
    assert set(rights) == {"sandbox", "images", "prepare"}
    assert {name for name, part in OURS.items() if part["user"] != "10001:10001"} == set(rights)
    assert [where for where in volumes("sandbox") if where.startswith("/data")] == ["/data/blobs"]


def test_every_user_of_the_bus_has_its_own_key() -> None:
    """Each container mounts the key of its own user and no other, and `prepare` makes the key of each of them."""
    used = set()
    for name in OURS:
        keys = [what for where, what in volumes(name).items() if where == "/etc/tiltyard/bus"]
        if keys:
            user = USERS.get(name, name.removesuffix("-gpu"))
            assert keys == [f"keys-{user}"]
            used.add(user)
    assert used == set(permissions.services()) | {"cli", "provisioner", "janitor"}
    made = {what for where, what in volumes("prepare").items() if where.startswith("/keys/users/")}
    assert made == {f"keys-{user}" for user in used}
    assert {what for name in PARTS for what in volumes(name).values() if "/" not in what} == set(COMPOSE["volumes"])


def test_it_drains() -> None:
    """Docker waits longer than a service drains, and stops the bus after those who speak to it."""
    drain = ServiceSettings().drain_s
    for name in (*SERVICES, "trainer-gpu", "janitor"):
        assert int(PARTS[name]["stop_grace_period"].removesuffix("s")) > 2 * drain, name
        assert name == "engine" or "nats" in PARTS[name]["depends_on"]


def test_only_the_sandbox_and_helpers_reach_outside() -> None:
    """Networks of bus and engine have no way out, and no service of ours is in another."""
    assert {name for name, network in COMPOSE["networks"].items() if (network or {}).get("internal")} == {
        "bus",
        "engine",
    }
    outside = {name for name, part in PARTS.items() if "outside" in part.get("networks", [])}
    assert outside == {"model", "images", "prometheus", "grafana"}


def test_profiles_choose_one_engine() -> None:
    """The default starts the embedded engine, `gpu` the real one; each has one trainer, and both are watched."""
    (default,) = re.findall(r"^COMPOSE_PROFILES=(.*)$", (ROOT / ".env").read_text(), re.MULTILINE)
    for chosen, expected in ((default.split(","), {"engine", "trainer"}), (["gpu"], {"sglang", "trainer-gpu"})):
        active = {n for n, p in PARTS.items() if not p.get("profiles") or set(p["profiles"]) & set(chosen)}
        assert active & {"engine", "trainer", "sglang", "trainer-gpu"} == expected
        assert {"prometheus", "grafana"} <= active
        assert "cli" not in active


def test_prometheus_asks_every_service() -> None:
    """Its names are services of ours, and what is mounted for it and Grafana is there."""
    config = yaml.safe_load((ROOT / "infra/prometheus/compose.yml").read_text())
    asked = {name for job in config["scrape_configs"] for each in job["dns_sd_configs"] for name in each["names"]}
    assert asked == {*SERVICES, "trainer-gpu"}
    for name in ("prometheus", "grafana"):
        for what in volumes(name).values():
            assert not what.startswith("./") or (ROOT / what).exists()


@pytest.mark.parametrize("name", ["ready.sh", "prepare.sh", "install.py", "runsc.py"])
def test_the_dockerfile_uses_what_is_there(name: str) -> None:
    """Every helper of the build is used by it."""
    assert (ROOT / "infra/compose" / name).exists()
    assert f"infra/compose/{name}" in DOCKERFILE


def test_the_build_asks_for_extras_that_exist() -> None:
    """What `install.py` is asked to install are parts of pyproject.toml; torch is asked for by two images only."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [shlex.split(line) for line in re.findall(r"install\.py ([a-z ]+)$", DOCKERFILE, re.MULTILINE)]
    assert {part for parts in asked for part in parts} <= {"dependencies", *project["optional-dependencies"]}
    assert set(re.findall(r"^FROM torch AS for-(\w+)$", DOCKERFILE, re.MULTILINE)) == {"trainer", "engine"}
    assert not [line for line in project["dependencies"] if line.startswith(("torch", "numpy", "duckdb"))]
