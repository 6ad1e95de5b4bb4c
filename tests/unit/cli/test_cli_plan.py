"""What `tiltyard up` refuses about a run before it touches the machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tiltyard.cli.main import main
from tiltyard.cli.sections import check_all
from tiltyard.cli.up.plan import check_run, check_together, run_tasks
from tiltyard.kit.settings import SettingsError, Source, read_source

TRAIN = 'run.train={"code.python.functions"={tasks=5}}'
EVALUATE = 'run.evaluate={"code.python.repair"={tasks=3}}'


def check(*overrides: str) -> Source:
    source = read_source(None, overrides, {})
    sections = check_all(source)
    check_run(sections["run"], source)
    check_together(sections, source)
    return source


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ((), ("defaults: [run.train]: expected at least one domain to train on for the 12 steps", "run.steps = 0")),
        ((EVALUATE,), ("[run.train]", "tiltyard domains")),
        (("run.steps=0", TRAIN), ("[run.evaluate]: expected at least one domain", "evaluates only")),
        (
            ("run.train={nope={}}",),
            ("--set run.train={nope={}}: [run.train]: no domain 'nope'",),
        ),
        ((TRAIN, "run.evaluate.nope={}"), ("--set run.evaluate.nope={}: [run.evaluate]: no domain 'nope'",)),
        (
            ('run.train={"code.python.humaneval"={}}',),
            ("[run.train]: domain code.python.humaneval has no tasks of split 'train', only eval",),
        ),
        ((TRAIN, "engine.port=31000"), ("--set engine.port=31000: [gateway] engines: none of", "port 31000")),
        ((TRAIN, "supervisor.services={engine=2}"), ("--set supervisor.services", "engine: expected 0 or 1")),
    ],
)
def test_a_run_that_cannot_work_is_refused(overrides: Sequence[str], words: Sequence[str]) -> None:
    """One line names where the mistake was made, the key and what was expected."""
    with pytest.raises(SettingsError) as caught:
        check(*overrides)
    assert "\n" not in str(caught.value)
    assert all(word in str(caught.value) for word in words), caught.value


@pytest.mark.parametrize(
    "overrides",
    [
        (TRAIN,),
        ("run.steps=0", EVALUATE),
        (TRAIN, "supervisor.services.engine=0", 'gateway.engines=["http://gpu:30000", "http://gpu:30001"]'),
    ],
)
def test_what_can_work_is_taken(overrides: Sequence[str]) -> None:
    """Training without evaluation, evaluation without training, and engines elsewhere."""
    check(*overrides)


def test_the_tasks_of_a_run() -> None:
    """Each table draws from its own split, so nothing that is evaluated is trained on."""
    tasks = run_tasks(check_all(check(TRAIN, EVALUATE))["run"])
    found = sorted((task.domain, task.split) for task in tasks)
    assert found == [("code.python.functions", "train")] * 5 + [("code.python.repair", "eval")] * 3


def test_it_is_refused_before_anything_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Status 2, one line on standard error, and no data directory."""
    root = tmp_path / "data"
    assert main(["up", "--set", f"data.root={root}", "--set", "run.train={nope={}}"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not root.exists()
