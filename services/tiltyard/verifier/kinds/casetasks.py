"""What the `cases.py` of kinds that run things share: a case whose own `setup` says everything."""

from __future__ import annotations

from tiltyard_proto.messages import Environment, ExecLimits

from .casework import task_of, text_of
from .trials import Case, Trial

LIMITS = ExecLimits(cpu_s=2.0, wall_s=15.0, memory_bytes=512 << 20)


def direct(case: Case) -> Trial | None:
    """The trial of a case whose setup names the kind; None for other cases.

    Beside data, options and reference the setup may have: profile, interface, files (path to text), prepare (shell text
    before the first action) and texts (the actions, when there are several).
    """
    kind = case.setup.get("kind")
    if not isinstance(kind, str):
        return None
    environment = Environment(
        interface=case.setup.get("interface", "answer"),
        profile=case.setup.get("profile", "python"),
        files={path: text.encode() for path, text in case.setup.get("files", {}).items()},
        setup=case.setup.get("prepare", ""),
        limits=LIMITS,
    )
    texts = tuple(case.setup.get("texts", [text_of(case.submission)]))
    return Trial(task=task_of(case, kind, {}, environment=environment, turns=len(texts) + 1), texts=texts)
