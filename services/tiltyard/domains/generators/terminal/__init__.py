"""Work in a terminal: a module for each subject, with templates at three levels, and `generate` over all of them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from importlib import import_module

from tiltyard.domains.drafts import Draft, Request, bucket

from .work import Templates


def generate(request: Request) -> Iterator[Draft]:
    """Tasks of one subject and level, endlessly, every template in turn. Options: subject, level."""
    subject, level = request.options["subject"], request.options["level"]
    templates: Templates = import_module(f"{__name__}.{subject}").TEMPLATES
    rng = random.Random(f"terminal/{subject}/{level}/{request.split}/{request.seed}")
    while True:
        for name, template in templates[level].items():
            work = template(rng)
            source = bucket(f"{work.say} {sorted(work.files.items())} {work.setup}")
            if request.wants(name, source):
                yield Draft(
                    template=name,
                    source=source,
                    fields={"task": work.say},
                    data={"checks": list(work.checks), "free": list(work.free)},
                    reference=f"```sh\n{work.commands}\n```",
                    files={path: text.encode() for path, text in work.files.items()},
                    setup=work.setup,
                )
