"""Questions whose answer must keep rules about its form, given with the question or long before it.

Options: `rule` (an id of `instruction_rules.RULES`; empty: any), `rules` (how many in all), `level` 1 to 3, and
`notes`: how many notes, of about 80 words each, stand between the rules and the question; 0 puts both together.
Invariant: the answer's number is never in the prompt, and the reference keeps every rule, which is checked here.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from tiltyard.domains.drafts import Draft, Request
from tiltyard_proto.messages import ChatMessage

from .instruction_rules import RULES, Rule
from .long_documents import note

_QUESTIONS = {
    "a": "A shop has {a} boxes with {b} pencils each. How many pencils are that?",
    "b": "{a} trains bring {b} visitors each. How many visitors come?",
    "c": "A hall has {a} rows of {b} chairs. How many chairs are there?",
    "d": "A baker fills {a} trays with {b} rolls each. How many rolls is that in all?",
    "e": "Somebody walks {b} steps a minute for {a} minutes. How many steps are taken?",
}
_ALONE = frozenset({"language", "json", "acrostic", "sorted_lines", "no_repeats", "quoted"})
"""Rules that leave little room for others."""
_LATE = (
    "Below I will give you notes, and at the end I will ask a question. Reply to a note with 'Noted.' only. "
    "When you answer the question, keep all of these rules:"
)


def generate(request: Request) -> Iterator[Draft]:
    """Tasks, endlessly; a draw whose rules can't be kept together is thrown away."""
    options = request.options
    rule, count, level = str(options.get("rule", "")), int(options["rules"]), int(options["level"])
    notes = int(options.get("notes", 0))
    rng = random.Random(f"instructions/{rule}/{count}/{level}/{notes}/{request.split}/{request.seed}")
    templates = [name for name in _QUESTIONS if request.wants(name)]
    while templates:
        if draft := _drawn(rng, rng.choice(templates), rule, count, level, notes):
            yield draft


def _drawn(rng: random.Random, template: str, rule: str, count: int, level: int, notes: int) -> Draft | None:
    a, b = rng.randint(12, 30 * level), rng.randint(13, 99)
    question, answer = _QUESTIONS[template].format(a=a, b=b), str(a * b)
    rules = _rules(rng, rule, count, level)
    reference = _reference(answer, rules)
    if (said := _told(rules, answer, reference)) is None:
        return None
    messages = _messages(rng, question, said, notes)
    if any(answer in message.content for message in messages):
        return None
    return Draft(
        template=template,
        messages=messages,
        data={"rules": rules, "content": [answer]},
        reference=reference,
        labels={"rules": "+".join(sorted(one["id"] for one in rules)), "difficulty": str(level), "notes": str(notes)},
    )


def _rules(rng: random.Random, rule: str, count: int, level: int) -> list[Rule]:
    others = [name for name in RULES if name != rule and name not in _ALONE]
    names = [rule, *rng.sample(others, count - 1)] if rule else rng.sample(others, count)
    return [{"id": name, **RULES[name].draw(rng, level)} for name in names]


def _reference(answer: str, rules: list[Rule]) -> str:
    spoken = any(rule["id"] == "language" for rule in rules)
    text = answer if spoken else f"The total is {answer}."
    for name, maker in RULES.items():
        for rule in rules:
            if rule["id"] == name:
                text = maker.make(text, rule)
    return text


def _told(rules: list[Rule], answer: str, reference: str) -> list[str] | None:
    """The rules as sentences; None when the reference breaks one."""
    from tiltyard.verifier.kinds.instruction.data import Data, Options
    from tiltyard.verifier.kinds.instruction.kind import KIND, checks  # the registry of domains needs no verifier

    data = Data(rules=tuple(rules), content=(answer,))
    if not KIND.check(data, Options(), reference).passed:
        return None
    return [rule.say() for rule in checks(data)]


def _messages(rng: random.Random, question: str, said: list[str], notes: int) -> tuple[ChatMessage, ...]:
    listed = "\n".join(f"{i}. {one}" for i, one in enumerate(said, 1))
    asked = f"{question} Write the number in digits."
    if not notes:
        head = f"{asked}\n\nYour answer must keep {'this rule' if len(said) == 1 else 'all of these rules'}:"
        return (ChatMessage(role="user", content=f"{head}\n{listed}"),)
    turns = [ChatMessage(role="user", content=f"{_LATE}\n{listed}\n\nNote 1: {note(rng)}")]
    for number in range(2, notes + 1):
        turns.append(ChatMessage(role="assistant", content="Noted."))
        turns.append(ChatMessage(role="user", content=f"Note {number}: {note(rng)}"))
    turns.append(ChatMessage(role="assistant", content="Noted."))
    turns.append(ChatMessage(role="user", content=f"Now the question. {asked}"))
    return tuple(turns)
