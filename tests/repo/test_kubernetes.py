"""The Kubernetes files render, are valid, and say what the code says."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import kubernetes_validate
import pytest
from support.cluster_files import ROOT, Rendered, ports_of, prepared

from tiltyard.cli.main import SERVICES, parser
from tiltyard.cli.sections import check_all
from tiltyard.kit import metrics
from tiltyard.kit.settings import read_source
from tiltyard_proto import permissions, topology

VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
OTHERS = {"nats", "lmsysorg/sglang", "lmsysorg/sgl-model-gateway", "prom/prometheus", "grafana/grafana"}
OTHERS |= {"otel/opentelemetry-collector-contrib"}
USERS = {"provision": "provisioner"}
"""Workloads that connect to the bus as a user of another name."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared(tmp_path_factory.mktemp("kubernetes"))


@pytest.fixture(scope="module", params=["dev", "production"])
def rendered(request: pytest.FixtureRequest, folder: Path) -> Rendered:
    return Rendered(folder, request.param)


def test_every_object_is_valid(rendered: Rendered) -> None:
    """Each object fits the schema of its kind with no unknown field; KEDA's own kind is checked below."""
    known = [each for each in rendered.documents if each["apiVersion"] != "keda.sh/v1alpha1"]
    assert len(known) > 50
    for document in known:
        kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)
    names = [(d["kind"], d["metadata"].get("namespace"), d["metadata"]["name"]) for d in rendered.documents]
    assert len(set(names)) == len(names)


def test_the_settings_are_valid(rendered: Rendered) -> None:
    """Each overlay's tiltyard.toml passes the check of all settings, and the production one asks for durability."""
    sections = check_all(rendered.source)
    assert sections["bus"].durability == {"dev": "development", "production": "production"}[rendered.overlay]
    for config in rendered.of("ConfigMap"):
        if config["metadata"]["name"].startswith("tiltyard-"):
            assert config["data"]["tiltyard.toml"] == (rendered.folder / "tiltyard.toml").read_text()


def test_images_are_those_of_this_release(rendered: Rendered) -> None:
    """Our images are named after a service and this version; the others are known, and none is 'latest'."""
    for name, container in rendered.containers():
        image, _, tag = container["image"].rpartition(":")
        assert tag not in ("", "latest"), name
        if image.startswith("tiltyard/"):
            assert image.removeprefix("tiltyard/") in (*SERVICES, "cli")
            assert tag == VERSION
        else:
            assert image in OTHERS


def test_commands_are_those_of_the_code(rendered: Rendered) -> None:
    """`tiltyard ...` parses, runs the service that the image is of, and what torchrun starts is a module of ours."""
    ours = {name: c for name, c in rendered.containers() if c["image"].startswith("tiltyard/")}
    assert set(SERVICES) - {"engine"} <= set(ours)
    for name, container in ours.items():
        command = container["command"]
        if command[0] == "tiltyard":
            arguments = parser().parse_args(command[1:])
            assert arguments.command != "run" or arguments.service == name == image_of(container)
        elif command[0] == "torchrun":
            assert importlib.util.find_spec(command[command.index("-m") + 1] + ".__main__")
            assert {"--nnodes=1", "--nproc-per-node=1"} <= set(command)  # as many as the trainer takes
        else:
            assert command == ["sleep", "infinity"]


def image_of(container: dict[str, Any]) -> str:
    return str(container["image"]).split("/")[1].split(":")[0]


def test_variables_are_settings(rendered: Rendered) -> None:
    """Every TILTYARD_ variable sets a key that exists."""
    seen = 0
    for _, container in rendered.containers():
        variables = {each["name"]: each.get("value", "x") for each in container.get("env", [])}
        ours = {name: value for name, value in variables.items() if name.startswith("TILTYARD_")}
        check_all(read_source(rendered.folder / "tiltyard.toml", (), ours))
        seen += len(ours)
    assert seen > 10


def test_pods_have_the_pages_that_probes_ask_for(rendered: Rendered) -> None:
    """Services are probed at /healthz and /readyz of the port that the settings open."""
    port = check_all(rendered.source)["service"].metrics_port
    probed = 0
    for name, container in rendered.containers():
        ports = {each["name"]: each["containerPort"] for each in container.get("ports", [])}
        if "metrics" in ports and container["image"].startswith("tiltyard/"):
            assert ports["metrics"] == port
            assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "metrics"}, name
            assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "metrics"}
            probed += 1
    assert probed == len(SERVICES) - 1  # the engine serves its own


def test_addresses_lead_to_pods(rendered: Rendered) -> None:
    """Servers, monitors, engines and the collector in the settings are pods or services that listen on that port."""
    sections = check_all(rendered.source)
    urls = [*sections["bus"].servers, *sections["bus"].monitors, *sections["gateway"].engines]
    urls += [sections["service"].otlp_endpoint]
    for scaled in rendered.of("ScaledObject"):
        urls += [trigger["metadata"]["serverAddress"] for trigger in scaled["spec"]["triggers"]]
    if rendered.overlay == "production":
        urls += [
            part for _, each in rendered.containers() for part in each.get("command", []) if part.startswith("http://")
        ]
        assert len(sections["gateway"].engines) == rendered.one("StatefulSet", "engine")["spec"]["replicas"]
    for url in urls:
        host = urlsplit(url).hostname or ""
        *pod, service, namespace, suffix = host.split(".")
        assert suffix == "svc"
        found = rendered.one("Service", service)
        assert found["metadata"]["namespace"] == namespace
        assert urlsplit(url).port in [port["port"] for port in found["spec"]["ports"]], url
        if pod:
            stateful = rendered.one("StatefulSet", service)
            assert pod[0] in [f"{service}-{index}" for index in range(stateful["spec"]["replicas"])]


def test_services_and_policies_name_ports_that_are_open(rendered: Rendered) -> None:
    """A Service's target is a named port of a pod that it selects; a policy opens ports that its pods have."""
    for service in rendered.of("Service"):
        chosen = rendered.selected(service["metadata"]["namespace"], service["spec"]["selector"])
        assert len(chosen) == 1, service["metadata"]["name"]
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= set(ports_of(chosen[0][1]))
    for policy in rendered.of("NetworkPolicy"):
        namespace, spec = policy["metadata"]["namespace"], policy["spec"]
        chosen = rendered.selected(namespace, spec["podSelector"])
        assert chosen or policy["metadata"]["name"] == "monitors", policy["metadata"]["name"]
        opened = {port for _, pod in chosen for port in ports_of(pod).values()}
        for rule in spec.get("ingress", []):
            assert {port["port"] for port in rule["ports"]} <= opened, policy["metadata"]["name"]


def test_scaling_stands_on_published_signals(rendered: Rendered) -> None:
    """Each ScaledObject names a Deployment without replicas, and asks for the lag of the stage that it serves."""
    scaled = rendered.of("ScaledObject")
    assert {each["metadata"]["name"] for each in scaled} == {"gateway", "verifier", "aggregator"}
    for each in scaled:
        name, spec = each["metadata"]["name"], each["spec"]
        assert spec["scaleTargetRef"] == {"name": name}
        assert "replicas" not in rendered.one("Deployment", name)["spec"]
        assert 1 <= spec["minReplicaCount"] <= spec["maxReplicaCount"]
        (trigger,) = spec["triggers"]
        assert (trigger["type"], float(trigger["metadata"]["threshold"]) > 0) == ("prometheus", True)
        asked = re.fullmatch(r'max\((\w+)\{stage="(\w+)"\}\)', trigger["metadata"]["query"])
        assert asked
        assert asked.group(1) == metrics.LAG._name
        assert name in topology.BY_NAME[asked.group(2)].receiver


def test_every_user_of_the_bus_has_its_own_key(rendered: Rendered) -> None:
    """Each pod mounts the key of its own user and no other; every service of the topology has a pod that does."""
    used = set()
    for name, _, labels, spec in rendered.pods():
        volumes = [v for v in spec.get("volumes", []) if v["name"] == "bus"]
        assert bool(volumes) == (labels.get("tiltyard.org/bus") == "client"), name
        for volume in volumes:
            user = USERS.get(name, name)
            assert volume["secret"]["secretName"].startswith(f"bus-{user}-")
            used.add(user)
    assert used == set(permissions.services()) | {"cli", "provisioner", "janitor"}


def test_the_servers_know_users_and_subjects(rendered: Rendered) -> None:
    """The bus's configuration holds every user with exactly the subjects that the topology gives it."""
    text = rendered.secret("nats-server", "security.conf")
    for user in permissions.users():
        entry = text.split(f"    # {user}\n")[1].split("    } }")[0]
        publish, subscribe = (re.findall(r'"([^"]+)"', line) for line in re.findall(r"allow: \[(.*)\]", entry))
        allowed = permissions.permissions(user)
        assert (tuple(publish), tuple(subscribe)) == (allowed.publish, allowed.subscribe)
