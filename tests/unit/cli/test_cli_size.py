"""`tiltyard size`: the capacity model, and the command around it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tiltyard.cli.main import main
from tiltyard.cli.size import SHIPPED, Size, model, read_costs, work_of
from tiltyard.cli.size.model import Costs, Measured, Need, Terms, Work
from tiltyard.domains import registry

ANSWER = {
    "sampler": 0.1,
    "gateway": 0.6,
    "sandbox": 0.0,
    "verifier": 0.2,
    "aggregator": 0.3,
    "trainer": 0.1,
    "nats": 0.3,
}
TURNS = {
    "sampler": 0.1,
    "gateway": 1.6,
    "sandbox": 2.0,
    "verifier": 0.5,
    "aggregator": 0.6,
    "trainer": 0.4,
    "nats": 1.0,
}
COSTS = Costs(
    machine="a test",
    cores=2,
    answer=Measured(turns=1, executed=0, cpu_ms=ANSWER, rate=1000, engine_ms=0.1),
    turns=Measured(turns=4, executed=4, cpu_ms=TURNS, rate=250, engine_ms=0.4),
)
ONE = Work(domain="one")
FOUR = Work(domain="four", turns=4, executed=4)


def by_service(needs: list[Need]) -> dict[str, Need]:
    return {need.service: need for need in needs}


@pytest.mark.parametrize(("work", "measured"), [(ONE, ANSWER), (FOUR, TURNS)])
def test_what_was_measured_is_predicted(work: Work, measured: dict[str, float]) -> None:
    """The two loads that the model is built on come out as they went in."""
    assert model.rollout_ms(COSTS, work) == pytest.approx(measured)


def test_between_the_loads_it_is_linear() -> None:
    """Two turns cost the gateway and the sandbox half of four, the others a third of the way from one to four."""
    found = model.rollout_ms(COSTS, Work(domain="two", turns=2, executed=2))
    assert (found["gateway"], found["sandbox"]) == pytest.approx((0.8, 1.0))
    assert (found["verifier"], found["aggregator"], found["trainer"]) == pytest.approx((0.3, 0.4, 0.2))
    assert found["nats"] == pytest.approx(0.3 + 0.1 * 3)  # four hops where one was, a tenth of a millisecond each


def test_a_grading_job_is_an_execution_and_a_second_look() -> None:
    """A verifier sees its rollout twice, the sandbox runs once more, the server carries two messages more."""
    plain, graded = model.rollout_ms(COSTS, ONE), model.rollout_ms(COSTS, msgspec.structs.replace(ONE, jobs=1))
    assert graded["verifier"] == pytest.approx(2 * plain["verifier"])
    assert graded["sandbox"] == pytest.approx(0.5)
    assert graded["nats"] - plain["nats"] == pytest.approx(0.2)
    assert model.guest_ms(COSTS, ONE) == 0
    assert model.guest_ms(COSTS, msgspec.structs.replace(ONE, jobs=1)) == COSTS.guest.start + COSTS.guest.command


def test_numbers_follow_from_the_rate() -> None:
    """As many processes as keep each below its share of a core; a sampler and a trainer are one at most."""
    needs = by_service(model.size(COSTS, [ONE], Terms(rate=5000, busy=0.5, turn_s=0.01, slots=1000)))
    assert {name: need.count for name, need in needs.items()} == {
        "sampler": 1, "gateway": 6, "sandbox": 0, "verifier": 2, "aggregator": 3, "trainer": 1, "nats": 1,
    }  # fmt: skip
    assert needs["gateway"].cores == pytest.approx(3.0)
    assert "with 3 cores" in needs["nats"].why
    too_much = by_service(model.size(COSTS, [ONE], Terms(rate=10_000, busy=0.5)))["sampler"]
    assert (too_much.count, too_much.why) == (1, "one at most: it carries 5000 a second")


def test_slots_may_decide() -> None:
    """Turns that wait for the engine need slots, however little CPU they take; so do tokens engines."""
    terms = Terms(rate=100, turn_s=10, slots=256, engine_tokens=1000)
    needs = by_service(model.size(COSTS, [ONE, msgspec.structs.replace(FOUR, tokens=32)], terms))
    assert needs["gateway"].count == 10  # 2.5 turns on average, 2500 in flight
    assert needs["engine"].count == 10  # (64 + 4 * 32) / 2 tokens a rollout


def test_shares_weigh_domains() -> None:
    """Means are over rollouts."""
    mixed = model.mean_ms(COSTS, [msgspec.structs.replace(ONE, share=3.0), FOUR])
    assert mixed["gateway"] == pytest.approx((3 * 0.6 + 1.6) / 4)


def test_capacity_is_what_the_machine_gave() -> None:
    """For a measured load about its rate, as busy as both loads made the machine; cores scale it."""
    rate = model.capacity(COSTS, [ONE])
    share = (model.busy_share(COSTS.answer, 2) + model.busy_share(COSTS.turns, 2)) / 2
    assert rate == pytest.approx(2 * share * 1e3 / 1.7)
    assert model.capacity(COSTS, [ONE], cores=8) == pytest.approx(4 * rate)


def test_the_shipped_costs_are_whole() -> None:
    """Every service has its cost in both loads, and the machine is named."""
    costs = read_costs(SHIPPED)
    for measured in (costs.answer, costs.turns):
        assert set(measured.cpu_ms) == {*model.SERVICES, model.SERVER}
        assert measured.rate > 0
    assert costs.machine


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert main(["size", *arguments, "--json"]) == 0
    return msgspec.json.decode(capsys.readouterr().out, type=Size)


def test_the_command_knows_domains(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Domains by name and share, or those of the run; turns and grading jobs come from their definitions."""
    costs = tmp_path / "costs.json"
    costs.write_bytes(msgspec.json.encode(COSTS))
    named = ["--domain", "shell.files=2", "--domain", "math.arithmetic.chain_sum"]
    answer = said(capsys, "100", *named, "--costs", str(costs))
    shell, sums = answer.domains
    assert (shell.share, shell.executed, shell.jobs) == (2.0, shell.turns, 1)
    assert (sums.share, sums.turns, sums.executed, sums.jobs) == (1.0, 1, 0, 0)
    assert "CPU was measured on a test" in answer.assumptions[0]
    run = said(capsys, "100", "--set", 'run.train."shell.files"={}')
    assert [work.domain for work in run.domains] == ["shell.files"]


def test_the_command_speaks_to_people(capsys: pytest.CaptureFixture[str]) -> None:
    """A table of services, and what it assumes."""
    assert main(["size", "800"]) == 0
    text = capsys.readouterr().out
    assert all(service in text for service in (*model.SERVICES, "This assumes:", "training steps"))


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["0"], "the rate: 0; expected a number above 0"),
        (["10", "--domain", "no.such"], "no domain 'no.such'"),
        (["10", "--domain", "shell.files=x"], "expected NAME or NAME=SHARE"),
        (["10", "--costs", "/nowhere"], "/nowhere: No such file"),
        (["10", "--costs", __file__], "expected what `make load` writes"),
        (["inf"], "the rate: inf; expected"),
        (["100", "--busy", "0"], "--busy: 0; expected"),
        (["100", "--busy", "2"], "--busy: 2; expected"),
        (["100", "--turn-seconds", "-3"], "--turn-seconds: -3; expected"),
        (["100", "--node-cores", "0"], "--node-cores: 0; expected"),
        (["100", "--engine-tokens", "-1"], "--engine-tokens: -1; expected"),
    ],
)
def test_mistakes_are_named(capsys: pytest.CaptureFixture[str], arguments: list[str], part: str) -> None:
    """Status 2 and one line."""
    assert main(["size", *arguments]) == 2
    assert part in capsys.readouterr().err


def test_costs_without_executions_are_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Costs that the model cannot divide by are the file's mistake."""
    path = tmp_path / "costs.json"
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(COSTS, turns=COSTS.answer)))
    assert main(["size", "100", "--costs", str(path)]) == 2
    assert "and of more that execute" in capsys.readouterr().err


@pytest.mark.parametrize(("kind", "jobs"), [("math.arithmetic.chain_sum", 0), ("code.c.functions.easy", 1)])
def test_what_a_verifier_runs_in_a_sandbox_is_counted(kind: str, jobs: int) -> None:
    """Every kind that is no rule grades by a job, whoever wrote it."""
    assert work_of(registry.load(kind).definition, 1.0).jobs == jobs
