"""What the entry gate tries on tasks of kind `math`."""

from __future__ import annotations

from tiltyard.verifier.kinds.base import Probe
from tiltyard_proto.messages import Task

from .data import Data, Options


def probes(task: Task, data: Data, options: Options) -> tuple[Probe, ...]:
    """Ways to write the reference that must pass, and answers that must not."""
    answer = data.answer
    other = r"\boxed{12345678987654321}"
    return (
        Probe(name="a sentence", texts=(f"The final answer is \\boxed{{{answer}}}.",)),
        Probe(name="dollars around", texts=(f"So we get\n$$\\boxed{{ {answer} }}$$",)),
        Probe(name="an earlier box", texts=(f"{other}. No, that was wrong. Final: \\boxed{{{answer}}}",)),
        Probe(name="another number", texts=(other,), wanted="reject"),
        Probe(name="one more", texts=(f"\\boxed{{({answer})+1}}",), wanted="reject"),
        Probe(name="cut off", texts=(f"\\boxed{{{answer}",), wanted="reject"),
        Probe(name="an empty box", texts=(f"{answer} \\boxed{{}}",), wanted="reject"),
        Probe(name="two boxes to choose from", texts=(f"{other} or \\boxed{{{answer}}}",), wanted="reject"),
        Probe(name="a bomb", texts=(r"\boxed{9^{9^{9^{9}}}}",), wanted="reject"),
    )
