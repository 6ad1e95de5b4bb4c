"""Families for tools, tables and documents: deterministic, splits apart, references pass, constants don't."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from support.grading import grade

from tiltyard.domains import load, load_all
from tiltyard.domains.drafts import Split
from tiltyard_proto.messages import Task

FAMILIES = ("tools.calls", "tools.worlds", "data.tables", "documents.papers")
NAMES = [name for name in load_all() if name.startswith(FAMILIES)]
SPLITS: tuple[Split, Split] = ("train", "eval")


def some(name: str, split: Split, count: int = 15) -> list[Task]:
    return load(name).tasks(split, count, seed=5)


def test_there_are_enough() -> None:
    """Seven sets of tools, six worlds, seven tables and five papers, at three levels each."""
    count = Counter(".".join(name.split(".")[:2]) for name in NAMES)
    assert count == {"tools.calls": 21, "tools.worlds": 18, "data.tables": 21, "documents.papers": 15}


@pytest.mark.parametrize("name", NAMES)
def test_tasks_are_drawn_well(name: str) -> None:
    """The same seed gives the same tasks, another seed others; evaluation shares no template with training."""
    for split in SPLITS:
        tasks = some(name, split)
        assert len(tasks) == 15
        assert some(name, split, 5) == tasks[:5]
        assert load(name).tasks(split, 5, seed=6) != tasks[:5]
    train, held = ({task.template for task in some(name, split, 60)} for split in SPLITS)
    assert held
    assert not train & held


@pytest.mark.parametrize("name", NAMES)
def test_references_pass_and_no_constant_does(name: str) -> None:
    """Each reference gets full credit; no single answer gets it on half of the tasks."""
    for split in SPLITS:
        tasks = some(name, split, 10)
        assert [task.id for task in tasks if not grade(task, task.reference).passed] == []
        commonest, _ = Counter(task.reference for task in tasks).most_common(1)[0]
        assert sum(grade(task, commonest).passed for task in tasks) * 2 <= len(tasks)


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("tools.worlds")])
def test_worlds_show_all_that_a_plan_needs(name: str) -> None:
    """Each argument of the reference's calls stands in the prompt, or is a number that can be found from it."""
    for task in some(name, "train", 8):
        prompt = task.prompt[-1].content
        for call in json.loads(task.reference):
            assert f'"{call["name"]}"' in prompt
            assert all(str(value) in prompt for value in call["arguments"].values() if isinstance(value, str))


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("documents.papers")])
def test_documents_show_what_is_asked_for(name: str) -> None:
    """Texts and identifiers of the reference stand in the document as they are."""
    for task in some(name, "train", 8):
        document = task.prompt[-1].content.casefold()
        fields = task.verification.data["fields"]
        shown = [
            field["value"] for field in fields.values() if field["type"] in ("name", "text", "id") and field["value"]
        ]
        assert [value for value in shown if value.casefold() not in document] == []
