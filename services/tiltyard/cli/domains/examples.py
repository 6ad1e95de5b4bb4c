"""Small domains for `tiltyard domains new`, one for each kind that has one."""

from __future__ import annotations

import msgspec


class Example(msgspec.Struct, frozen=True, kw_only=True):
    """What of a new domain depends on its kind."""

    templates: tuple[str, ...]
    held_out: tuple[str, ...]
    body: str
    """Of the loop that draws: Python, indented by eight."""
    user: str = "{question}"
    options: str = ""
    tokens: int = 64
    extractive: bool = False
    """Does the answer stand in the prompt by design?"""


_LAST_NUMBER = """\
        price, count = rng.randint(2, 90), rng.randint(2, 12)
        question, answer = {
            "total": (f"One ticket costs {price} coins. What do {count} tickets cost?", price * count),
            "change": (f"You pay a ticket of {price} coins with 100 coins. How many come back?", 100 - price),
            "each": (f"{count} friends share {price * count} coins evenly. How many does each get?", price),
        }[template]
        yield Draft(
            template=template,
            fields={"question": f"{question} End with the number."},
            data={"answer": str(answer)},
            reference=str(answer),
        )"""
_PYTHON_CALLS = """\
        by = rng.randint(2, 999)
        calls = random.Random(by).sample(range(-50, 50), 4)  # the same question always has the same calls
        sign, word = {"add": ("+", "plus"), "times": ("*", "times"), "minus": ("-", "minus")}[template]
        expected = [{"+": x + by, "*": x * by, "-": x - by}[sign] for x in calls]
        yield Draft(
            template=template,
            fields={"question": f"Write a Python function f(x) that returns x {word} {by}. Reply with only the code."},
            data={
                "function": "f",
                "calls": [{"call": f"f({x})", "expect": str(y)} for x, y in zip(calls, expected, strict=True)],
            },
            reference=f"```python\\ndef f(x):\\n    return x {sign} {by}\\n```",
        )"""
_FIELDS = """\
        day, total = f"2026-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}", f"{rng.randint(100, 99999) / 100:.2f}"
        text = {
            "note": f"On {day} we received {total} EUR. Thank you.",
            "table": f"date | {day}\\namount | {total} EUR",
            "letter": f"Dear customer,\\nyour payment of EUR {total} came in on {day}.",
        }[template]
        yield Draft(
            template=template,
            fields={"question": f"Extract date (YYYY-MM-DD) and amount as one JSON object.\\n\\n{text}"},
            data={"fields": {"date": {"type": "date", "value": day}, "amount": {"type": "decimal", "value": total}}},
            reference=f'{{"date": "{day}", "amount": {total}}}',
        )"""
EXAMPLES = {
    "last_number": Example(templates=("total", "change", "each"), held_out=("each",), body=_LAST_NUMBER),
    "python_calls": Example(templates=("add", "times", "minus"), held_out=("minus",), body=_PYTHON_CALLS),
    "fields": Example(templates=("note", "table", "letter"), held_out=("letter",), body=_FIELDS, extractive=True),
}
