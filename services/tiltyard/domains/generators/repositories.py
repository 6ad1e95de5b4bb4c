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
    names = {word: rng.choice((word, *others)) for word, others in blueprint.names.items()}

    def said(text: str) -> str:
        text = re.sub(r"<([abcp])>", lambda match: str(k[match[1]]), text)
        return re.sub(r"[A-Za-z_]\w*", lambda match: names.get(match[0], match[0]), text)

    good = {said(path): said(text) for path, text in blueprint.files.items()}
    bad = dict(good)
    for fault in faults:
        path, before = said(fault.path), said(fault.good)
        assert before in bad[path], (blueprint.name, before)
        bad[path] = bad[path].replace(before, said(fault.bad), 1)
    tests = said(blueprint.tests)
    ids = re.findall(r"^def (test_\w+)", tests, re.MULTILINE)
    failing = [name for name in ids if any(name in fault.breaks for fault in faults)]
    changed = sorted({said(fault.path) for fault in faults})
    commands = "\n".join(f"cat > {path} <<'END_OF_FILE'\n{good[path]}END_OF_FILE" for path in changed)
    return Draft(
        template=blueprint.name,
        fields={
            "files": " ".join(sorted(bad)),
            "about": said(blueprint.about),
            "symptoms": said(_symptoms(faults, level)),
        },
        data={
            "tests": {TESTS: tests},
            "packages": [said(blueprint.package)],
            "fail_to_pass": [f"{TESTS}::{name}" for name in failing],
            "pass_to_pass": [f"{TESTS}::{name}" for name in ids if name not in failing],
        },
        reference=f"```sh\n{commands}\n```",
        files={path: text.encode() for path, text in bad.items()},
        labels={"faults": str(len(faults))},
    )


def _symptoms(faults: list[Fault], level: str) -> str:
    lines = [fault.symptom for fault in faults]
    if level == "easy":
        lines = [f"{line} (look at {fault.path})" for line, fault in zip(lines, faults, strict=True)]
    return "\n".join(f"- {line}" for line in lines)
