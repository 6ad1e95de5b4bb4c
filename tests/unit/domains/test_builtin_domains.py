"""The first built-in domains: deterministic tasks, splits apart, references that pass, answers that mustn't."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from support.grading import KINDS, grade, rollout_of

from tiltyard.domains import demos, load, load_all
from tiltyard.domains.drafts import Split
from tiltyard.domains.interfaces import parse_action
from tiltyard_proto import keys
from tiltyard_proto.messages import BlobRef, Execution, Graded, Task, Verdict
from tiltyard_proto.outcomes import Outcome

NAMES = (
    "code.python.functions",
    "code.python.humaneval",
    "code.python.repair",
    "documents.invoice",
    "math.arithmetic.chain_sum",
    "shell.files",
)
SPLITS = tuple((name, split) for name in NAMES for split in load(name).definition.splits)
COUNT = 40


def verdict_on(task: Task, text: str, folder: Path) -> Verdict:
    """Grade one action; a shell action runs locally, so only this file's own commands may be given."""
    if task.environment.interface != "shell":
        return grade(task, text)
    command = parse_action(task, text)
    workspace = BlobRef(uri="x", size=0, sha256="0") if command else None
    for path, content in task.environment.files.items():
        (folder / path).write_bytes(content)
    if command:
        subprocess.run(command.argv, cwd=folder, check=True, timeout=10)
    found = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    rollout = rollout_of(task, text, workspace=workspace)
    return KINDS["files"].judge(
        task, Graded(rollout=rollout, execution=Execution(outcome=Outcome.FINISHED), files=found)
    )


def one_per_template(name: str, split: Split, most: int = 60) -> list[Task]:
    tasks = load(name).tasks(split, 120, seed=3)
    return list({task.template: task for task in tasks}.values())[:most]


def test_the_first_domains_are_there() -> None:
    """The registry holds the domains that the tests below look into; all others go through the entry gate."""
    assert set(NAMES) <= set(load_all())


@pytest.mark.parametrize(("name", "split"), SPLITS)
def test_tasks_are_deterministic(name: str, split: Split) -> None:
    """The same seed gives the same tasks, a larger count starts with them, another seed gives others."""
    tasks = load(name).tasks(split, COUNT, seed=1)
    assert load(name).tasks(split, COUNT, seed=1) == tasks
    assert load(name).tasks(split, COUNT // 2, seed=1) == tasks[: COUNT // 2]
    assert load(name).tasks(split, COUNT, seed=2) != tasks


@pytest.mark.parametrize(("name", "split"), SPLITS)
def test_tasks_are_sound(name: str, split: Split) -> None:
    """Ids are unique content hashes; everything is filled; the prompt leaves room for an answer."""
    tasks = load(name).tasks(split, COUNT, seed=1)
    assert len({task.id for task in tasks}) == len(tasks) == COUNT
    for task in tasks:
        assert task.id == keys.task_id(task)
        assert (task.domain, task.split) == (name, split)
        assert task.verification.kind in KINDS
        assert task.reference
        assert task.template
        text = "".join(message.content for message in task.prompt)
        assert not re.search(r"\{\w+\}", text)
        assert len(text) / 2 + task.sampling.max_new_tokens <= task.limits.tokens  # at least 2 characters a token
        assert parse_action(task, task.reference) is None or task.environment.interface != "answer"


@pytest.mark.parametrize("name", [name for name in NAMES if len(load(name).definition.splits) > 1])
def test_splits_share_no_template(name: str) -> None:
    """Held-out evaluation draws exactly the templates that training never sees."""
    train, held = ({task.template for task in load(name).tasks(split, 400)} for split in load(name).definition.splits)
    assert train
    assert not train & held
    assert held == set(load(name).definition.held_out)


@pytest.mark.parametrize("name", [name for name in NAMES if len(load(name).definition.splits) > 1])
def test_splits_share_no_prompt(name: str) -> None:
    """No evaluation prompt is also a training prompt."""
    train, held = ({t.prompt[-1].content for t in load(name).tasks(split, 400)} for split in ("train", "eval"))
    assert not train & held


@pytest.mark.parametrize(("name", "split"), SPLITS)
def test_references_pass(name: str, split: Split, tmp_path: Path) -> None:
    """The reference answer of one task of every template gets full credit."""
    for index, task in enumerate(one_per_template(name, split)):
        folder = tmp_path / str(index)
        folder.mkdir()
        verdict = verdict_on(task, task.reference, folder)
        assert verdict.passed, (task.template, verdict.reasons, task.verification.data)
        assert verdict.score == 1.0


@pytest.mark.parametrize(("name", "split"), SPLITS)
@pytest.mark.parametrize("text", ["", "DONE", "I don't know.", "0", "True", "```\n```"])
def test_empty_answers_fail(name: str, split: Split, text: str, tmp_path: Path) -> None:
    """Doing nothing and saying nothing earn nothing."""
    wrong = 0
    for task in one_per_template(name, split, 8):
        if task.environment.interface == "shell":
            verdict = KINDS["files"].plan(task, rollout_of(task, text))
            assert isinstance(verdict, Verdict)
        elif task.reference == text:
            continue
        else:
            verdict = grade(task, text)
        assert (verdict.score, verdict.passed) == (0.0, False)
        wrong += 1
    assert wrong


@pytest.mark.parametrize("name", ["code.python.functions", "math.arithmetic.chain_sum", "documents.invoice"])
def test_the_prompt_itself_fails(name: str) -> None:
    """Echoing the question never passes."""
    for task in one_per_template(name, "eval", 11):
        assert (
            not grade(task, task.prompt[-1].content).passed
            or task.verification.data["answer"] in task.prompt[-1].content
        )


def test_chain_sum_holds_160_and_40() -> None:
    """Level 0 has 200 problems; a source that's used up returns what it has."""
    domain = load("math.arithmetic.chain_sum")
    assert (len(domain.tasks("train", 1000)), len(domain.tasks("eval", 1000))) == (160, 40)


def test_humaneval_is_for_evaluation_only() -> None:
    """HumanEval has its 164 problems, and no training split to ask for."""
    domain = load("code.python.humaneval")
    assert len(domain.tasks("eval", 1000)) == 164
    assert not domain.definition.trained
    with pytest.raises(ValueError, match="no split 'train'"):
        domain.tasks("train", 1)


@pytest.mark.parametrize(
    ("answer", "status", "says"),
    [("right", 0, ""), ("def {f}(*a): return 'nope'", 1, "FAILED: {f}("), ("def {f}(*a): return", 1, "None but")],
)
def test_repair_shows_what_failed(answer: str, status: int, says: str, tmp_path: Path) -> None:
    """The visible check passes the reference and shows others the failing call, and isn't among the hidden ones."""
    for index, task in enumerate(load("code.python.repair").tasks("train", 6)):
        function = task.verification.data["function"]
        text = task.reference if answer == "right" else answer.format(f=function)
        command = parse_action(task, text)
        assert command is not None
        folder = tmp_path / str(index)
        folder.mkdir()
        for path, content in {**task.environment.files, **command.files}.items():
            (folder / path).write_bytes(content)
        done = subprocess.run(command.argv, cwd=folder, capture_output=True, timeout=20, check=False, text=True)
        assert done.returncode == status, done.stderr
        assert says.format(f=function) in done.stdout
        assert len(task.verification.data["calls"]) == 4


def test_demos_are_right_or_wrong_as_asked() -> None:
    """Demonstrations follow the share of wrong answers; the wrong ones define the function and fail."""
    tasks = {task.prompt[-1].content: task for task in load("code.python.functions").tasks("train", 30, 5)}
    for share, passes in ((0.0, 30), (1.0, 0)):
        pairs = demos("code.python.functions", 30, 5, wrong=share)
        assert pairs == demos("code.python.functions", 30, 5, wrong=share)
        verdicts = [grade(tasks[messages[-1][1]], answer) for messages, answer in pairs]
        assert sum(verdict.passed for verdict in verdicts) == passes
    some = demos("code.python.functions", 200, 5, wrong=0.6, split="all")
    assert len(some) == 200


def test_demos_without_functions_can_not_be_wrong() -> None:
    """Asking for wrong answers, or for more than there are, is an error that says why."""
    with pytest.raises(ValueError, match="Python functions"):
        demos("documents.invoice", 5, wrong=1.0)
    with pytest.raises(ValueError, match="160 tasks"):
        demos("math.arithmetic.chain_sum", 500)
