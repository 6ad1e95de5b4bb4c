"""The repository keeps its shape: layout, sizes, words, and what may import what."""

from __future__ import annotations

import ast
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SERVICES = ("sampler", "gateway", "sandbox", "verifier", "aggregator", "trainer", "engine")
FORBIDDEN = (
    r"/work/",
    r"\bclaude\b",
    r"\banthropic\b",
    r"\bchatgpt\b",
    r"\bcopilot\b",
    r"\bLLM[- ]generated\b",
    r"as an ai\b",
    r"\bDESIGN\.md\b",
    r"\bDESIGN section\b",
    r"(?-i:\b(TODO|FIXME|XXX|HACK)\b)",
)


def tracked() -> list[Path]:
    """Files that git knows; a checkout without git is read from disk."""
    listed = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode:
        tops = ("services", "proto", "tests", "docs", "examples", "infra")
        found = [path for top in tops for path in (ROOT / top).rglob("*")]
        return [path for path in found if "__pycache__" not in path.parts]
    return [ROOT / name for name in listed.stdout.splitlines()]


FILES = [path for path in tracked() if path.is_file()]
SOURCES = [path for path in FILES if path.suffix == ".py" and path.relative_to(ROOT).parts[0] in ("services", "proto")]


def test_the_sources_are_found() -> None:
    """The checks below look at something."""
    assert len(SOURCES) > 80
    assert len(FILES) > len(SOURCES)


def test_source_roots_are_no_packages() -> None:
    """No `__init__.py` directly in services/ or proto/, and none among the tests."""
    assert not (ROOT / "services/__init__.py").exists()
    assert not (ROOT / "proto/__init__.py").exists()
    assert [path for path in FILES if path.name == "__init__.py" and path.is_relative_to(ROOT / "tests")] == []


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_has_its_four_files(service: str) -> None:
    """`__main__`, `settings`, `handler` and `backend`; `__main__` is wiring of fewer than forty lines."""
    folder = ROOT / "services/tiltyard" / service
    assert {"__main__.py", "settings.py", "handler.py", "backend.py"} <= {path.name for path in folder.glob("*.py")}
    lines = [line for line in (folder / "__main__.py").read_text().splitlines() if line.strip()]
    assert len(lines) < 40


def test_all_services_are_listed() -> None:
    """Whatever folder has a `__main__` is a service of the list above."""
    found = {path.parent.name for path in (ROOT / "services/tiltyard").glob("*/__main__.py")}
    assert found == set(SERVICES)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_broad_excepts_say_why(path: Path) -> None:
    """Whoever catches anything at all says in the same line what it may be, or only tidies up and raises it again."""
    text = path.read_text()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ExceptHandler):
            broad = node.type is None or getattr(node.type, "id", "") in ("Exception", "BaseException")
            again = isinstance(node.body[-1], ast.Raise) and node.body[-1].exc is None
            assert not broad or again or "#" in text.splitlines()[node.lineno - 1], f"line {node.lineno}"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_and_functions_are_small(path: Path) -> None:
    """At most 500 lines a file and 60 a function, and every file with code says what it is for."""
    text = path.read_text()
    assert text.count("\n") <= 500
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            assert node.end_lineno - node.lineno < 60, f"{node.name} is too long"
    assert not tree.body or ast.get_docstring(tree)


@pytest.mark.parametrize("service", ["gateway", "sandbox", "verifier", "aggregator", "sampler"])
def test_light_services_load_nothing_heavy(service: str) -> None:
    """In a fresh interpreter the service's wiring loads neither torch nor transformers."""
    code = (
        f"import sys, tiltyard.{service}.__main__, tiltyard.{service}.app\n"
        "print(sorted({'torch', 'transformers', 'safetensors', 'gguf'} & set(sys.modules)))"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "services"), str(ROOT / "proto")])}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout == "[]\n"


def imports_of(path: Path) -> set[str]:
    """Top-level names that a file imports at its top or within functions, relative imports left out."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.add(node.module)
    return found


def test_the_contract_imports_msgspec_only() -> None:
    """Nothing but the standard library and msgspec."""
    for path in (ROOT / "proto/tiltyard_proto").rglob("*.py"):
        tops = {name.split(".")[0] for name in imports_of(path)} - set(sys.stdlib_module_names)
        assert tops <= {"msgspec", "tiltyard_proto"}, path


@pytest.mark.parametrize("service", SERVICES)
def test_handlers_reach_for_nothing(service: str) -> None:
    """A handler imports no bus client, no HTTP, no torch."""
    tops = {name.split(".")[0] for name in imports_of(ROOT / f"services/tiltyard/{service}/handler.py")}
    assert not tops & {"nats", "torch", "transformers", "aiohttp", "duckdb", "subprocess", "socket"}


def test_only_the_kit_knows_nats() -> None:
    """The bus client is imported in the kit and nowhere else."""
    users = {
        path.relative_to(ROOT / "services/tiltyard").parts[0]
        for path in SOURCES
        if path.is_relative_to(ROOT / "services") and any(name.split(".")[0] == "nats" for name in imports_of(path))
    }
    assert users == {"kit"}


def test_the_import_contracts_hold() -> None:
    """The contracts in pyproject.toml, checked by import-linter."""
    usecases = importlib.import_module("importlinter.application.use_cases")
    importlib.import_module("importlinter.configuration").configure()
    before = Path.cwd()
    os.chdir(ROOT)
    try:
        assert usecases.lint_imports(config_filename="pyproject.toml", cache_dir=None)
    finally:
        os.chdir(before)


@pytest.mark.parametrize("pattern", FORBIDDEN)
def test_words_that_do_not_belong_here(pattern: str) -> None:
    """No paths of somebody's machine, no product names of helpers, no notes to oneself."""
    found = []
    for path in FILES:
        if path == Path(__file__):
            continue
        text = path.read_bytes().decode("utf-8", "replace")
        found += [f"{path.relative_to(ROOT)}: {match.group(0)}" for match in re.finditer(pattern, text, re.IGNORECASE)]
    assert found == []


def test_tests_say_what_they_test() -> None:
    """Every test function has a docstring, and no two test files share a name."""
    files = [path for path in FILES if path.is_relative_to(ROOT / "tests") and path.name.startswith("test_")]
    assert len({path.name for path in files}) == len(files)
    silent = [
        f"{path.relative_to(ROOT)}: {node.name}"
        for path in files
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
        and not ast.get_docstring(node)
    ]
    assert silent == []
