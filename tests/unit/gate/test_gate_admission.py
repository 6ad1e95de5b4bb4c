"""What the gate lets through to a run."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tiltyard.cli.up import plan
from tiltyard.domains import load, load_all
from tiltyard.gate import admission
from tiltyard.gate.registry import Gate
from tiltyard.gate.report import Problem, Report
from tiltyard.gate.store import Store
from tiltyard.kit.settings import RunSettings, SettingsError, Source, TaskShare
from tiltyard.sandbox.settings import SandboxSettings

NAME = "math.arithmetic.chain_sum"
RUN = RunSettings(steps=0, evaluate={NAME: TaskShare(tasks=3)})


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("TILTYARD_HOME", str(tmp_path))
    return Store()


def keep(store: Store, *problems: Problem) -> None:
    """A report on the present content of the domain."""
    digest = Gate(load_all(), store, SandboxSettings()).digest(load(NAME))
    store.put(Report(domain=NAME, kind="last_number", digest=digest, tasks=40, problems=problems))


def test_what_nobody_checked_is_let_through(store: Store) -> None:
    """Without a report the run begins, with all its tasks."""
    assert admission.reports_on([NAME, "no.such"], store) == {}
    plan.check_run(RUN, Source({}, {}, "none"))
    assert len(plan.run_tasks(RUN)) == 3


def test_a_failed_domain_stops_the_run_before_it_starts(store: Store) -> None:
    """The settings error names the domain, why it failed, and how to see more."""
    keep(store, Problem(check="worthless", detail="junk gets full credit"), Problem(check="leak", detail="-"))
    with pytest.raises(
        SettingsError, match=rf"{NAME} does not pass.*junk gets full credit \(and 1 more\).*check {NAME}"
    ):
        plan.check_run(RUN, Source({}, {}, "none"))


def test_faulty_tasks_are_left_out_and_replaced(store: Store) -> None:
    """A task in which the gate found a fault isn't drawn; the next one takes its place."""
    usual = plan.run_tasks(RUN)
    keep(store, Problem(check="leak", detail="-", task=usual[1].id))
    drawn = plan.run_tasks(RUN)
    assert [task.id for task in drawn[:2]] == [usual[0].id, usual[2].id]
    assert len(drawn) == 3


def test_a_refusal_names_the_domains_own_fault_first() -> None:
    """One task's fault is no reason while the domain has one of its own."""
    many = tuple(Problem(check="leak", detail="in it", task=f"t{n}") for n in range(3))
    report = Report(domain=NAME, kind="k", tasks=5, problems=many)
    assert admission.refusal(report) == "leak: in it (and 2 more)"
    own = msgspec.structs.replace(report, problems=(*many, Problem(check="repeat", detail="other tasks")))
    assert admission.refusal(own).startswith("repeat: other tasks")
    assert admission.refusal(None) == admission.refusal(Report(domain=NAME, kind="k", tasks=5)) == ""
