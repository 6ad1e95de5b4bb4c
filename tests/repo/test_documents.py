"""What is written for people agrees with the code."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from support.abuse import CASES

from tiltyard.cli.config import render
from tiltyard.cli.main import parser
from tiltyard.cli.sections import check_all
from tiltyard.domains import registry
from tiltyard.kit.settings import read_source
from tiltyard_proto import topology

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.toml"))
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_the_readme_shows_the_topology() -> None:
    """The picture between the markers is the printed one."""
    text = (ROOT / "README.md").read_text()
    shown = text.split("<!-- topology -->")[1].split("<!-- /topology -->")[0]
    assert shown.strip().removeprefix("```").removesuffix("```").strip("\n") == topology.picture()


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: str(path.name))
def test_examples_are_valid(path: Path) -> None:
    """Every example passes the check of all settings and names domains that exist; its run is named after the file."""
    run = check_all(read_source(path, (), {}))["run"]
    assert set(run.train) | set(run.evaluate) <= set(registry.load_all())
    assert path.stem == "default" or run.name == path.stem


def test_the_default_example_is_what_config_prints() -> None:
    """`examples/default.toml` is the output of `tiltyard config`: make it again when a setting changes."""
    assert (ROOT / "examples/default.toml").read_text() == render(check_all(read_source(None, (), {}))) + "\n"


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.name))
def test_links_lead_somewhere(path: Path) -> None:
    """Every relative link of a document is a file of the repository."""
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", path.read_text())
    local = [link for link in links if not re.match(r"[a-z]+:", link)]
    assert [link for link in local if not (path.parent / link).exists()] == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.name))
def test_commands_in_documents_exist(path: Path) -> None:
    """`tiltyard WORD` in a document is a subcommand, and `make WORD` a target."""
    text = path.read_text()
    choices = next(action.choices for action in parser()._actions if isinstance(action.choices, dict))
    assert set(re.findall(r"(?:`|^|\$ )tiltyard ([a-z]+)", text, re.MULTILINE)) <= set(choices)
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"(?:`|^|\$ )make ([a-z-]+)", text, re.MULTILINE)) <= targets


def test_the_readme_shows_the_abuse_suite() -> None:
    """The table between the markers names the cases of the suite, all of them and in order."""
    text = (ROOT / "README.md").read_text().split("<!-- abuse -->")[1].split("<!-- /abuse -->")[0]
    shown = re.findall(r"^\| (\d+) \| ([^|]+?) \|", text, re.MULTILINE)
    assert shown == [(str(number), title) for number, title in CASES.items()]


def test_sandbox_metrics_are_documented() -> None:
    """Every metric of the sandbox service stands in the table of docs/observability.md, and no other."""
    source = (ROOT / "services/tiltyard/sandbox/metrics.py").read_text()
    documented = set(re.findall(r"tiltyard_sandbox_\w+", (ROOT / "docs/observability.md").read_text()))
    assert set(re.findall(r"tiltyard_sandbox_\w+", source)) == documented


def test_the_project_file_agrees_with_the_services() -> None:
    """Every service has an extra of its own to install it by."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    services = {path.parent.name for path in (ROOT / "services/tiltyard").glob("*/__main__.py")}
    assert services <= set(project["optional-dependencies"])


def test_every_reported_problem_has_its_test() -> None:
    """Each row of docs/reported-problems.md names a report of its own and a test of its own that exists."""
    rows = re.findall(r"^\| \[(\S+)\]\(.*\| `(\S+)::(\w+)` \|$", (ROOT / "docs/reported-problems.md").read_text(), re.M)
    assert len(rows) >= 30
    assert len({report for report, _, _ in rows}) == len({test for _, _, test in rows}) == len(rows)
    for report, file, test in rows:
        source = (ROOT / f"tests/{file}.py").read_text()
        assert re.search(rf"^(async )?def {test}\(", source, re.M), f"{report}: {file} has no {test}"
