"""Small Python repositories with faults put in, to be mended in a shell and judged by hidden tests.

A blueprint is a set of good files over drawn constants, faults (a replacement in one file, the symptom in words, the
hidden tests that then fail) and hidden tests. Invariants: hidden tests ask for what the documentation in the files
says; every test that no fault breaks is in pass_to_pass. Levels: 'easy' names file and symptom of one fault, 'medium'
its symptom only, 'hard' has two. Left out: the blueprints are `repository_blueprints`; grading is kind `repository`.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

from tiltyard.domains.drafts import Draft, Request

from .repository_blueprints import BLUEPRINTS, Blueprint, Fault

TESTS = "tests/test_hidden.py"


def generate(request: Request) -> Iterator[Draft]:
    """Repositories of one level, endlessly, every blueprint in turn. Options: level."""
    level = request.options["level"]
    rng = random.Random(f"repositories/{level}/{request.split}/{request.seed}")
    wanted = [blueprint for blueprint in BLUEPRINTS if request.wants(blueprint.name)]
    while wanted:
        for blueprint in wanted:
            yield _draft(blueprint, level, rng)


def _draft(blueprint: Blueprint, level: str, rng: random.Random) -> Draft:
    k = {"a": rng.randint(3, 9), "b": rng.randint(10, 30), "c": rng.randint(40, 90), "p": rng.choice((5, 10, 15, 20))}
    faults = rng.sample(blueprint.faults, 2 if level == "hard" else 1)
    good = {path: _filled(text, k) for path, text in blueprint.files.items()}
    bad = dict(good)
    for fault in faults:
        before, after = _filled(fault.good, k), _filled(fault.bad, k)
        assert before in bad[fault.path], (blueprint.name, before)
        bad[fault.path] = bad[fault.path].replace(before, after, 1)
    tests = _filled(blueprint.tests, k)
    names = re.findall(r"^def (test_\w+)", tests, re.MULTILINE)
    failing = [name for name in names if any(name in fault.breaks for fault in faults)]
    changed = sorted({fault.path for fault in faults})
    commands = "\n".join(f"cat > {path} <<'END_OF_FILE'\n{good[path]}END_OF_FILE" for path in changed)
    return Draft(
        template=blueprint.name,
        fields={"files": " ".join(sorted(bad)), "about": blueprint.about, "symptoms": _symptoms(faults, level, k)},
        data={
            "tests": {TESTS: tests},
            "packages": [blueprint.package],
            "fail_to_pass": [f"{TESTS}::{name}" for name in failing],
            "pass_to_pass": [f"{TESTS}::{name}" for name in names if name not in failing],
        },
        reference=f"```sh\n{commands}\n```",
        files={path: text.encode() for path, text in bad.items()},
        labels={"faults": str(len(faults))},
    )


def _symptoms(faults: list[Fault], level: str, k: dict[str, int]) -> str:
    lines = [_filled(fault.symptom, k) for fault in faults]
    if level == "easy":
        lines = [f"{line} (look at {fault.path})" for line, fault in zip(lines, faults, strict=True)]
    return "\n".join(f"- {line}" for line in lines)


def _filled(text: str, k: dict[str, int]) -> str:
    return re.sub(r"<([abcp])>", lambda match: str(k[match[1]]), text)
