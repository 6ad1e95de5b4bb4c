"""`tiltyard domains`: what can be trained on."""

from __future__ import annotations

import sys
from argparse import Namespace

import msgspec

from tiltyard.domains import registry


def main(arguments: Namespace) -> int:
    if arguments.name is None:
        for name, domain in sorted(registry.load_all().items()):
            print(f"{name:34} {domain.definition.verifier.kind:14} {domain.definition.title}")
        return 0
    domain = registry.load(arguments.name)
    if arguments.n:
        for task in domain.tasks(arguments.split, arguments.n, arguments.seed):
            sys.stdout.write(msgspec.json.encode(task).decode() + "\n")
        return 0
    print(msgspec.json.format(msgspec.json.encode(domain.definition), indent=2).decode())
    return 0
