"""The operations guide's commands for a cluster: kubectl takes them, and what they name exists in the files."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from support.cluster_files import HOSTS, Rendered, kubectl, prepared
from support.guide import ROOT, commands

from tiltyard.cli.main import parser
from tiltyard.cli.sections import check_all

NOWHERE = "--server=http://127.0.0.1:1"
"""A cluster that refuses: kubectl has then understood everything that it was told."""
KINDS = {
    "deploy": "Deployment", "deployment": "Deployment", "statefulset": "StatefulSet", "daemonset": "DaemonSet",
    "job": "Job", "service": "Service", "scaledobject": "ScaledObject",
}  # fmt: skip
FILLED = {"NODE": "node-1", "POD": "cli-0", "MODEL": "model", "METAURL": "redis://x", "BUCKET": "http://b", "KEY": "k"}
FILLED |= {"SECRET": "s"}
GIVEN = commands("cluster")


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with infra/ as somebody has it who has made the credentials."""
    where = tmp_path_factory.mktemp("checkout")
    prepared(where)
    (where / "model").mkdir()
    return where


@pytest.fixture(scope="module")
def rendered(checkout: Path) -> Rendered:
    return Rendered(checkout / "infra/kubernetes", "production")


def filled(line: str) -> list[str]:
    return shlex.split(re.sub(r"\b[A-Z]{3,}\b", lambda word: FILLED.get(word.group(0), word.group(0)), line))


@pytest.mark.parametrize("line", GIVEN)
def test_kubectl_takes_it(line: str, checkout: Path) -> None:
    """kubectl understands the command and its files, and fails at nothing but the cluster that is not there."""
    argv = filled(line)
    assert argv[0] == "kubectl"
    if argv[1] == "kustomize" or "create" in argv:
        argv += ["--dry-run=client", "-o", "yaml"] if "create" in argv else []
    elif "--" in argv:
        argv.insert(argv.index("--"), NOWHERE)
    else:
        argv.append(NOWHERE)
    done = subprocess.run(
        [kubectl(), *argv[1:]], cwd=checkout, capture_output=True, text=True, timeout=50, check=False,
        env={"HOME": str(checkout), "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert done.returncode == 0 or "connection refused" in done.stderr or "was refused" in done.stderr, done.stderr


@pytest.mark.parametrize("line", GIVEN)
def test_what_it_names_exists(line: str, rendered: Rendered) -> None:
    """Objects, namespaces, labels and commands inside pods are those of the files and of the code."""
    argv = filled(line)
    if "-n" in argv:
        names = [each["metadata"]["name"] for each in rendered.of("Namespace")]
        assert argv[argv.index("-n") + 1] in names
    for kind, name in (word.split("/") for word in argv if re.fullmatch(r"[a-z]+/[a-z0-9-]+", word)):
        if kind in KINDS:
            assert rendered.one(KINDS[kind], name)["metadata"]["name"] == name
        else:
            assert kind in ("pod", "pvc")
            assert re.sub("^data-", "", name) in ("nats-0", "nats-1", "nats-2")
    if "--" in argv:
        inside = argv[argv.index("--") + 1 :]
        assert inside[0] == "tiltyard"
        parser().parse_args(inside[1:])
        assert inside[inside.index("-c") + 1] == "/etc/tiltyard/tiltyard.toml"
    for label in re.findall(r"tiltyard\.org/[a-z]+", line):
        assert label in (ROOT / "infra/kubernetes/base/sandbox.yaml").read_text()


def test_certificates_are_for_the_names_that_are_called(rendered: Rendered) -> None:
    """The guide's hosts are those that clients and other servers of the bus connect to."""
    made = next(line for line in commands("run") if line.startswith("tiltyard credentials") and "--host" in line)
    hosts = set(re.findall(r"--host (\S+)", made))
    called = {str(urlsplit(url).hostname) for url in check_all(rendered.source)["bus"].servers}
    routes = set(re.findall(r"nats://([^:]+):", (ROOT / "infra/kubernetes/nats/cluster.conf").read_text()))
    assert hosts == called == routes == set(HOSTS)


def test_make_targets_and_whole_runs_exist() -> None:
    """`make` blocks name targets; `up` blocks parse, and the tests of whole runs start the same example."""
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for line in commands("make"):
        assert shlex.split(line)[0] == "make"
        assert shlex.split(line)[1] in targets
    for line in commands("up"):
        arguments = parser().parse_args(shlex.split(line)[1:])
        assert arguments.command in ("up", "report")
        assert str(arguments.config) in (ROOT / "tests/e2e/conftest.py").read_text()
