"""The gate over many domains: results by content, and what they depend on."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from tiltyard.domains import Domain, load, load_all
from tiltyard.domains.registry import open_file
from tiltyard.gate.digest import digest, evaluation_digest
from tiltyard.gate.registry import Gate, needs_sandbox, spread
from tiltyard.gate.report import Report
from tiltyard.gate.store import Store
from tiltyard.sandbox.settings import SandboxSettings
from tiltyard.verifier.kinds.registry import installed

pytestmark = pytest.mark.anyio
TEXT = 'name = "test.two"\ntitle = "Two"\ndata = "two.jsonl"\nheld_out = ["b"]\n[verifier]\nkind = "last_number"\n'


def made(folder: Path, right: str = "2") -> Domain:
    (folder / "two.toml").write_text(TEXT)
    drafts = [
        {"template": name, "fields": {"prompt": f"{name}: 1 + {n}?"}, "data": {"answer": answer}, "reference": answer}
        for name, n, answer in (("a", 1, right), ("b", 2, "3"))
    ]
    (folder / "two.jsonl").write_text("\n".join(map(json.dumps, drafts)))
    (one,) = open_file(folder / "two.toml")
    return one


async def test_results_are_kept_by_content(tmp_path: Path) -> None:
    """What was checked in the same state isn't checked again; another data file is another state."""
    store, told = Store(tmp_path / "gate"), list[Report]()
    gate = Gate({"test.two": made(tmp_path)}, store, SandboxSettings())
    (first,) = await gate.check(["test.two"], tell=told.append)
    assert first.passed, first.problems
    assert first.digest
    (again,) = await gate.check(["test.two"])
    assert again == first
    changed = Gate({"test.two": made(tmp_path, "11")}, store, SandboxSettings())
    assert changed.known(["test.two"]) == {}
    assert told == [first]


def test_what_a_result_depends_on(tmp_path: Path) -> None:
    """Definition, generator, data, kind and evaluation sets are in the digest; the same content has the same one."""
    kinds, one = installed(points=[]), load("code.python.functions")
    base = digest(one, kinds, "e")
    assert digest(one, kinds, "e") == base
    dearer = Domain(definition=msgspec.structs.replace(one.definition, value=2.0), source="", folder=one.folder)
    other_kind = {**kinds, "python_calls": kinds["files"]}
    assert len({base, digest(dearer, kinds, "e"), digest(one, other_kind, "e"), digest(one, kinds, "f")}) == 4
    text = made(tmp_path)
    before = digest(text, kinds, "e")
    (tmp_path / "two.jsonl").write_text("{}")
    assert digest(text, kinds, "e") != before
    assert evaluation_digest(load_all().values()) != evaluation_digest([])


def test_who_needs_a_sandbox() -> None:
    """Rules on answers need none; sessions and kinds that plan jobs do."""
    kinds = installed(points=[])
    wanted = {"documents.invoice": False, "math.arithmetic.chain_sum": False, "shell.files": True}
    wanted |= {"code.python.functions": True, "code.python.repair": True}
    assert {name: needs_sandbox(load(name), kinds) for name in wanted} == wanted


def test_one_level_of_a_family_gets_all_probes(tmp_path: Path) -> None:
    """Levels share who judges them, so the forgeries are tried on one; domains without levels get all."""
    levels = "[levels.easy]\n[levels.hard]\n[[domain]]\nname = 'a'\n[[domain]]\nname = 'b'\n"
    (tmp_path / "fam.toml").write_text(
        TEXT.replace("test.two", "test.fam").replace("[verifier]", levels + "[verifier]")
    )
    every = {one.name: one for one in open_file(tmp_path / "fam.toml")} | {"test.two": made(tmp_path)}
    chosen = {name for name, extent in spread(every, list(every.values())).items() if extent.probed}
    assert chosen == {"test.fam.a.easy", "test.fam.b.easy", "test.two"}
    assert spread(every, [every["test.fam.a.hard"]])["test.fam.a.hard"].probed == 0


async def test_no_sandbox_is_a_problem_and_no_pass(tmp_path: Path) -> None:
    """Where sandboxes can't be started, the domains that need them fail and say why."""
    nowhere = SandboxSettings(home=str(tmp_path))
    gate = Gate({"code.python.functions": load("code.python.functions")}, Store(tmp_path), nowhere)
    (report,) = await gate.check(["code.python.functions"])
    assert not report.passed
    assert "no sandbox" in report.problems[0].detail
    assert gate.known(["code.python.functions"]) == {}


def test_a_broken_store_is_an_empty_one(tmp_path: Path) -> None:
    """A result that can't be read is no result."""
    (tmp_path / "x.json").write_text("{")
    assert Store(tmp_path).get("x") is None
    assert Store(tmp_path / "nowhere").get("x") is None
