"""Judge a final mathematical answer: found in the text, read as what was asked for, compared by value.

Plain numbers are compared here; everything else in a child of `limits`. Where variables are compared, math-verify is
asked as well (`second`): two checkers that disagree give no verdict. Invariants: nothing is evaluated that could grow;
the reference is refused when it can't be read, so that a broken one never pays.
Left out: proofs, integrals, sums and limits as answers; see docs/verifiers/math.md for what is known to be misjudged.
"""

from __future__ import annotations

import re

import msgspec

from tiltyard.verifier import limits
from tiltyard.verifier.kinds.base import BrokenTask, Finding, Probe, Rule, Unsure
from tiltyard_proto.messages import Task

from . import extract, probes
from .data import Data, Options
from .plain import plain
from .tidy import bare

LIMITS = limits.Limits(cpu_s=1.0)
_CHOICE = re.compile(r"\(?([A-Z])\)?\.?")
_TRUTH = frozenset({"yes", "no", "true", "false"})
_RULES = "tiltyard.verifier.kinds.math.rules:check"
_SECOND = "tiltyard.verifier.kinds.math.second:opinion"


class Math(Rule[Data, Options]):
    """The kind."""

    name = "math"
    version = "1"
    data = Data
    options = Options
    blocking = True

    def refuse(self, data: Data) -> None:
        if not bare(data.answer):
            raise BrokenTask("the reference answer is empty")
        if len(data.answer) > extract.MAX_ANSWER:
            raise BrokenTask("the reference answer is too long")

    def check(self, data: Data, options: Options, text: str) -> Finding:
        try:
            marked = extract.marked(text)
            if marked is None and options.boxed:
                raise extract.NoAnswer("the answer isn't in a box")
            found = [marked] if marked is not None else extract.places(text)
            return self._compared(data, options, found, marked is not None)
        except extract.NoAnswer as err:
            if _type(data, options) not in ("choice", "text"):  # a broken reference is no one's wrong answer
                _asked(data, options, [])
            return _finding("reject", str(err))

    def _compared(self, data: Data, options: Options, found: list[str], marked: bool) -> Finding:
        kind = _type(data, options)
        if kind == "choice":
            return _choice(data, options, found)
        if kind == "text":
            return _text(data, found)
        right = plain(data.answer) if _is_plain(options) else None
        got = plain(found[0]) if right is not None and found else None
        if right is not None and got is not None:
            same = right == got
            return _finding("accept" if same else "reject", "" if same else "the answer differs from the reference")
        return _asked(data, options, found)

    def probes(self, task: Task) -> tuple[Probe, ...]:
        return probes.probes(task, self.data_of(task), self.options_of(task))


def _type(data: Data, options: Options) -> str:
    if options.type != "auto":
        return options.type
    answer = bare(data.answer)
    if (letter := _CHOICE.fullmatch(answer)) and letter[1] in options.choices:
        return "choice"
    return "text" if answer.lower() in _TRUTH else "auto"


def _is_plain(options: Options) -> bool:
    """Can plain numbers be compared as they are?"""
    usual = options.type in ("auto", "number", "integer") and not options.unit and not options.form
    return usual and options.tolerance == 0 and options.places < 0


def _choice(data: Data, options: Options, found: list[str]) -> Finding:
    letter = _CHOICE.fullmatch(bare(data.answer))
    if letter is None or letter[1] not in options.choices:
        raise BrokenTask(f"the reference {data.answer[:60]!r} is none of the choices {options.choices}")
    got = extract.chosen(found[0] if found else "", options.choices)
    same = got == letter[1]
    return _finding("accept" if same else "reject", "" if same else f"{got} was chosen, right is {letter[1]}")


def _text(data: Data, found: list[str]) -> Finding:
    right = _words(data.answer)
    if not right:
        raise BrokenTask("the reference answer is empty")
    same = any(_words(one) == right for one in found)
    return _finding("accept" if same else "reject", "" if same else "the answer differs from the reference")


def _words(text: str) -> str:
    """Text without what doesn't matter: case, spacing, marks around it."""
    return " ".join(re.sub(r"[^\w\s+-]", " ", bare(text).casefold()).split())


def _asked(data: Data, options: Options, found: list[str]) -> Finding:
    """What the child says, and math-verify where variables are compared. BrokenTask, Unsure."""
    request = {"answer": data.answer, "options": msgspec.to_builtins(options), "found": found}
    said = limits.call(_RULES, request, LIMITS)
    if said["verdict"] == "broken":
        raise BrokenTask(said["reason"])
    if said["verdict"] == "unsure":
        raise Unsure(said["reason"])
    if said["variables"] and found and not options.form and bare(found[0]) != bare(data.answer):
        _confirm(data.answer, found[0], said["verdict"] == "accept")
    return _finding(said["verdict"], said["reason"])


def _confirm(right: str, got: str, accepted: bool) -> None:
    """Raise Unsure when math-verify disagrees; where it can't tell, the first checker stands."""
    try:
        second = limits.call(_SECOND, {"answer": right, "got": got}, LIMITS)
    except (limits.TimedOut, limits.Crashed):
        return
    if second is not None and second is not accepted:
        raise Unsure(f"two checkers disagree: values say {accepted}, symbols say {second}")


def _finding(verdict: str, reason: str = "") -> Finding:
    passed = verdict == "accept"
    return Finding(score=float(passed), passed=passed, reasons=(reason,) if reason else ())


KIND = Math()
