"""Whole Python programs that read one problem's arguments and print its result, judged by hidden runs.

The problems are those of `algorithms`; the input has an argument a line, a list as numbers with a space between.
Left out: grading is the verifier kind `program_runs`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from tiltyard.domains.drafts import Draft, Request

from .algorithms import LEVELS, drawn
from .problems import Problem, filled
from .twists import twisted

RUNS = 4
_READ = {"int": "int(input())", "ints": "list(map(int, input().split()))", "text": "input()"}
_LINE = {"int": "a whole number", "ints": "whole numbers with a space between", "text": "a text, which may be empty"}
_LANGUAGES = {
    "python": (
        "{code}\n\n\nresult = solve({args})\nprint(' '.join(map(str, result)) if isinstance(result, list) else result)"
    ),
    "javascript": (
        "{code}\nconst lines = require('fs').readFileSync(0, 'utf8').split('\\n');\n"
        "const result = solve({args});\nconsole.log(Array.isArray(result) ? result.join(' ') : String(result));"
    ),
}
_SPOKEN = {"python": "Python", "javascript": "Node.js"}
_READ_JS = {
    "int": "Number(lines[{i}])",
    "ints": "lines[{i}].split(' ').filter((w) => w).map(Number)",
    "text": "lines[{i}]",
}


def generate(request: Request) -> Iterator[Draft]:
    """Programs of one level in one language, endlessly, every problem in turn. Options: language, level."""
    language, level = request.options["language"], request.options["level"]
    rng = random.Random(f"input_programs/{language}/{level}/{request.split}/{request.seed}")
    problems = [problem for problem in LEVELS[level] if request.wants(problem.name)]
    while problems:
        rng.shuffle(problems)
        for problem in problems:
            yield _draft(problem, language, rng)


def _draft(problem: Problem, language: str, rng: random.Random) -> Draft:
    problem = twisted(problem, rng)
    k, calls = drawn(problem, rng)
    runs = [{"stdin": _input(call), "stdout": _line(problem.f(k, *call)) + "\n"} for call in calls]
    runs = [run for run in runs if run["stdout"].strip()][:RUNS]
    code = _LANGUAGES[language].format(code=filled(getattr(problem, language), k), args=_args(problem, language))
    said = filled(problem.say, k)
    if problem.returns == "ints":
        said += " and returns the list"
    order = ", ".join(f"line {i} holds {_LINE[kind]}" for i, kind in enumerate(problem.takes, 1))
    return Draft(
        template=problem.name,
        fields={
            "language": _SPOKEN[language],
            "what": said,
            "input": order,
            "example": _input(calls[0]),
            "output": _line(problem.f(k, *calls[0])),
        },
        data={"runs": runs},
        reference=f"```{language}\n{code}\n```",
        labels={"language": language},
    )


def _args(problem: Problem, language: str) -> str:
    if language == "python":
        return ", ".join(_READ[kind] for kind in problem.takes)
    return ", ".join(_READ_JS[kind].format(i=i) for i, kind in enumerate(problem.takes))


def _input(call: tuple[Any, ...]) -> str:
    return "".join(f"{_line(value)}\n" for value in call)


def _line(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)
