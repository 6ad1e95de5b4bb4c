"""What pods may do: the restricted standard for all but the executor, whose rights are explained."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from support.cluster_files import ROOT, Rendered, prepared

BASE = ROOT / "infra/kubernetes/base"


@pytest.fixture(scope="module", params=["dev", "production"])
def rendered(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Rendered:
    return Rendered(prepared(tmp_path_factory.mktemp("kubernetes")), request.param)


def test_all_but_the_executor_are_restricted(rendered: Rendered) -> None:
    """Every pod beside the executor meets the restricted pod security standard and has a read-only root file system."""
    for name, namespace, _, spec in rendered.pods():
        assert spec["automountServiceAccountToken"] is False, name
        if name == "sandbox":
            assert namespace == "tiltyard-sandbox"
            continue
        assert namespace == "tiltyard"
        assert spec["securityContext"]["runAsNonRoot"] is True, name
        assert spec["securityContext"]["runAsUser"] > 0
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys()
        for container in spec["containers"]:
            context = container["securityContext"]
            assert context["allowPrivilegeEscalation"] is False, name
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert context["readOnlyRootFilesystem"] is True
            assert not [port for port in container.get("ports", []) if "hostPort" in port]
        kinds = {kind for volume in spec.get("volumes", []) for kind in volume if kind != "name"}
        assert kinds <= {"configMap", "secret", "projected", "emptyDir", "persistentVolumeClaim"}, name


def test_namespaces_enforce_it(rendered: Rendered) -> None:
    """The cluster itself refuses pods beyond the restricted standard where the services are."""
    levels = {
        each["metadata"]["name"]: each["metadata"]["labels"]["pod-security.kubernetes.io/enforce"]
        for each in rendered.of("Namespace")
    }
    assert levels == {"tiltyard": "restricted", "tiltyard-sandbox": "privileged"}


def test_every_right_of_the_executor_is_explained() -> None:
    """Each line of the executor that goes beyond the standard has a comment right above it."""
    lines = (BASE / "sandbox.yaml").read_text().splitlines()
    for wanted in ("runAsUser: 0", "privileged: true", "hostPath:", "nodeSelector:"):
        at = next(index for index, line in enumerate(lines) if line.strip().startswith(wanted))
        assert lines[at - 1].strip().startswith("#"), wanted


def test_the_executor_sees_blobs_only(rendered: Rendered) -> None:
    """Of the shared file system the executor mounts blobs; of the node one directory; it runs on labelled nodes."""
    ((_, spec),) = rendered.selected("tiltyard-sandbox", {})
    (container,) = spec["containers"]
    data = [mount for mount in container["volumeMounts"] if mount["name"] == "data"]
    assert data == [{"name": "data", "mountPath": "/data/blobs", "subPath": "blobs"}]
    assert [volume["hostPath"] for volume in spec["volumes"] if "hostPath" in volume] == [
        {"path": "/var/lib/tiltyard", "type": "Directory"}
    ]
    assert spec["nodeSelector"] == {"tiltyard.org/sandboxes": "true"}


def test_nothing_talks_unless_a_policy_says_so(rendered: Rendered) -> None:
    """Both namespaces refuse everything by default, and no policy opens the world."""
    policies = rendered.of("NetworkPolicy")
    for namespace in ("tiltyard", "tiltyard-sandbox"):
        (nothing,) = [p for p in policies if p["metadata"] == _named("nothing", namespace, p)]
        assert nothing["spec"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    for policy in policies:
        for rule in [*policy["spec"].get("ingress", []), *policy["spec"].get("egress", [])]:
            peers = rule.get("from") or rule.get("to")
            assert peers, policy["metadata"]["name"]
            assert all(peer and "ipBlock" not in peer for peer in peers)
            assert rule["ports"]


def _named(name: str, namespace: str, policy: dict[str, Any]) -> dict[str, Any]:
    return policy["metadata"] | {"name": name, "namespace": namespace}


def test_who_reaches_whom(rendered: Rendered) -> None:
    """Only gateway and router reach engines, only the provisioner the bus's pages, nobody the executor."""
    reach: dict[str, set[str]] = {}
    for policy in rendered.of("NetworkPolicy"):
        for rule in policy["spec"].get("ingress", []):
            for target, _ in rendered.selected(policy["metadata"]["namespace"], policy["spec"]["podSelector"]):
                for port in rule["ports"]:
                    reach.setdefault(f"{target}:{port['port']}", set()).update(_sources(rendered, rule))
    assert reach["engine:30000"] - {"prometheus"} == {"gateway"} | ({"router"} & {n for n, *_ in rendered.pods()})
    assert reach["nats:8222"] == {"provision"}
    assert reach["nats:6222"] == {"nats"}
    assert {target for target in reach if target.startswith("sandbox:")} <= {"sandbox:9100"}
    clients = {name for name, _, labels, _ in rendered.pods() if labels.get("tiltyard.org/bus") == "client"}
    assert reach["nats:4222"] == clients


def _sources(rendered: Rendered, rule: dict[str, Any]) -> set[str]:
    found: set[str] = set()
    for peer in rule["from"]:
        labels = (peer.get("namespaceSelector") or {}).get("matchLabels", {})
        namespace = labels.get("kubernetes.io/metadata.name", "tiltyard")
        found |= {name for name, _ in rendered.selected(namespace, peer.get("podSelector", {}))}
    return found


def test_what_scales_survives_a_drained_node(rendered: Rendered) -> None:
    """Everything that may have more than one pod has a disruption budget that lets one go at a time."""
    budgets = {each["metadata"]["name"]: each["spec"] for each in rendered.of("PodDisruptionBudget")}
    scaled = {each["metadata"]["name"] for each in rendered.of("ScaledObject")}
    several = scaled | {
        each["metadata"]["name"]
        for each in rendered.of("Deployment", "StatefulSet")
        if each["spec"].get("replicas", 2) > 1
    }
    assert several | {"sandbox"} <= set(budgets)
    assert all(spec["maxUnavailable"] == 1 for spec in budgets.values())


def test_keys_are_never_committed() -> None:
    """Git ignores everything in the credentials folder but the file that says how Secrets are made of it."""
    folder: Path = ROOT / "infra/kubernetes/credentials"
    rules = [line for line in (folder / ".gitignore").read_text().splitlines() if not line.startswith("#")]
    assert rules == ["*", "!.gitignore", "!kustomization.yaml"]
    text = (folder / "kustomization.yaml").read_text()
    assert re.findall(r"name: bus-(\w+)", text)
