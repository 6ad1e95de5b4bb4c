"""Judge an answer to an item of reasoning-gym.

The answer stands between `<answer>` and `</answer>`, and all of it counts. The data set's own answer is right; where
other answers may be right too, its scorer runs in a sandbox, on the same item drawn again, and full score is demanded,
since most scorers pay something for a wrong answer. Invariants: no scorer runs here; scorers that execute what they
judge only get text that names nothing; games of arithmetic are checked exactly, here.
Left out: partial credit.
"""

from __future__ import annotations

import json
import re
from importlib.resources import files

from tiltyard.verifier.kinds.base import BrokenTask, Kind, Probe, final_text, verdict
from tiltyard.verifier.kinds.sandboxed import nonce, said_with
from tiltyard_proto.messages import Command, Graded, Job, Rollout, Task, Verdict
from tiltyard_proto.outcomes import Outcome

from . import arithmetic
from .data import Data, Options
from .shapes import ONLY_EXACT, misshapen, same_text

_BEGIN, _END = re.compile("<answer>", re.IGNORECASE), re.compile("</answer>", re.IGNORECASE)
SCORER = b"\n\n".join(
    (
        (files("tiltyard.domains") / "procedural.py").read_bytes(),
        (files(__package__ or "") / "scorer.py").read_bytes(),
    )
)


class ReasoningGym(Kind[Data, Options]):
    """The kind."""

    name = "reasoning_gym"
    version = "1"
    data = Data
    options = Options

    def plan(self, task: Task, rollout: Rollout) -> Verdict | Job:
        data = self.data_of(task)
        self.options_of(task)
        answer = answer_of(final_text(rollout))
        reason = misshapen(data.dataset, data.answer, answer) if answer is not None else "there is no <answer>"
        if reason or answer is None:
            return verdict(self, rollout, 0.0, reasons=(reason,))
        if data.numbers:
            reason = arithmetic.wrong(answer, data.numbers, data.target)
            return verdict(self, rollout, float(not reason), passed=not reason, reasons=(reason,) if reason else ())
        if data.answer and same_text(answer, data.answer):
            return verdict(self, rollout, 1.0, passed=True)
        if data.exact or data.dataset in ONLY_EXACT:
            return verdict(self, rollout, 0.0, reasons=("the answer differs from the only right one",))
        return _job(data, answer, rollout)

    def judge(self, task: Task, graded: Graded) -> Verdict:
        said = said_with(graded.execution.stdout, nonce(self.name, graded.rollout))
        if said == "other":
            raise BrokenTask("the sandbox's reasoning-gym draws another question: build its image again")
        if not said:
            ending = graded.execution.outcome
            if ending is Outcome.NONZERO_EXIT:
                raise BrokenTask("the scorer could not be run: is reasoning-gym in the task's profile?")
            return verdict(self, graded.rollout, 0.0, reasons=(f"scoring ended with {ending.value}",), graded=graded)
        score = float(said)
        passed = score >= self.options_of(task).threshold
        reasons = () if passed else ("the data set's scorer doesn't give the answer full marks",)
        return verdict(
            self,
            graded.rollout,
            float(passed),
            passed=passed,
            components={"scorer": min(1.0, max(0.0, score))},
            reasons=reasons,
            graded=graded,
        )

    def probes(self, task: Task) -> tuple[Probe, ...]:
        answer = self.data_of(task).answer
        return (
            Probe(name="in a sentence", texts=(f"So it is <answer>{answer}</answer>.",)),
            Probe(name="on lines of its own", texts=(f"<answer>\n{answer}\n</answer>",)),
            Probe(name="the last tag counts", texts=(f"<answer>zzz</answer> No: <answer>{answer}</answer>",)),
            Probe(name="a word", texts=("<answer>zzz</answer>",), wanted="reject"),
            Probe(name="an empty tag", texts=(f"{answer}<answer></answer>",), wanted="reject"),
            Probe(name="among others", texts=(f"<answer>zzz {answer} zzz</answer>",), wanted="reject"),
            Probe(name="code", texts=("<answer>__import__('os').system('touch MARK')</answer>",), wanted="reject"),
            Probe(name="a bomb", texts=("<answer>9**9**9**9</answer>",), wanted="reject"),
        )


def answer_of(text: str) -> str | None:
    """What the last answer tag holds; None when there is none."""
    ends = list(_END.finditer(text))
    begins = list(_BEGIN.finditer(text, 0, ends[-1].start())) if ends else []
    return text[begins[-1].end() : ends[-1].start()].strip() if begins else None


def _job(data: Data, answer: str, rollout: Rollout) -> Job:
    item = {"dataset": data.dataset, "level": data.level, "seed": data.seed, "digest": data.digest}
    item["key"] = nonce("reasoning_gym", rollout)
    environment = rollout.task.environment
    return Job(
        rollout=rollout,
        command=Command(
            argv=("python3", "scorer.py"),
            files={"scorer.py": SCORER, "item.json": json.dumps(item).encode(), "answer.txt": answer.encode()},
            limits=environment.limits,
        ),
        profile=environment.profile,
        deterministic=True,
    )


KIND = ReasoningGym()
