"""What prompts give away: answers, repeats, texts of evaluation sets."""

from __future__ import annotations

import pytest

from tiltyard.gate import prompts
from tiltyard_proto.keys import with_id
from tiltyard_proto.messages import ChatMessage, Environment, Task, Verification

LONG = "the quick brown fox jumps over the lazy dog while seven wizards watch from the old tower and laugh"


def task(prompt: str, reference: str = "42", files: dict[str, bytes] | None = None) -> Task:
    return with_id(
        Task(
            id="",
            domain="test.prompts",
            prompt=(ChatMessage(role="user", content=prompt),),
            verification=Verification(kind="last_number", data={"answer": reference}),
            environment=Environment(files=files or {}),
            reference=reference,
        )
    )


@pytest.mark.parametrize(
    ("prompt", "reference", "files", "says"),
    [
        ("What is 40 + 2?", "42", None, ""),
        ("What is 42 + 0?", "42", None, ""),
        ("Add. The answer is 4200.", "4200", None, "names the reference"),
        ("Add. (solution: `4200`)", "4200", None, "names the reference"),
        ("Write it.\n\n  def double(x):\n return x*2 ", "def double(x):\n    return x * 2", None, "prompt holds"),
        ("Write it.", "def double(x):\n    return x * 2", {"old.py": b"def double(x): return x*2"}, "file old.py"),
        ("The answer is 4200 metres less than that.", "42", None, ""),
    ],
)
def test_leaks(prompt: str, reference: str, files: dict[str, bytes] | None, says: str) -> None:
    """A long reference anywhere or a short one that is called the answer is a leak, a number in a question is none."""
    found = prompts.leak(task(prompt, reference, files))
    assert (says in found) if says else not found


def test_near_duplicates_look_past_what_all_prompts_share() -> None:
    """One word changed in a long prompt is a near-duplicate; another story behind the same instructions is none."""
    head = "Read the text and answer with one number only, please, and nothing else at all. "
    stories = [" ".join(f"{name}{i} walks past house{i} number{i}" for i in range(20)) for name in ("ann", "bob", "cy")]
    tasks = [task(head + story, str(n)) for n, story in enumerate(stories)]
    assert prompts.near_duplicates(tasks) == {}
    copy = task(head + stories[0].replace("number7", "numero7") + " " + LONG)
    first = task(head + stories[0] + " " + LONG)
    assert prompts.near_duplicates([*tasks[1:], first, copy]) == {copy.id: first.id}


def test_short_prompts_that_differ_in_a_sign_are_different() -> None:
    """Small problems share most of their words and are not the same."""
    tasks = [
        task(f"State the final answer: {a} {sign} {b} =", f"{a}{b}")
        for a in range(4)
        for b in range(4)
        for sign in "+-"
    ]
    assert prompts.near_duplicates(tasks) == {}


def test_one_question_with_two_answers_is_found() -> None:
    """White space apart, the same prompt over the same files may be asked once."""
    one, two = task("What is  it?", "1"), task("What is it?", "2")
    assert prompts.contradictions([one, two]) == {two.id: one.id}
    other = task("What is it?", "2", {"a": b"x"})
    assert prompts.contradictions([one, other]) == {}


def test_overlap_with_an_evaluation_set() -> None:
    """Thirteen words in a row of an evaluation prompt are found, whatever stands around them; twelve are not."""
    held = prompts.index([task(LONG)])
    words = LONG.split()
    copied = task("Now " + " ".join(words[2:15]).upper() + ", think.")
    short = task("Now " + " ".join(words[2:14]) + ", think.")
    assert prompts.overlaps([copied, short], held) == [copied.id]
