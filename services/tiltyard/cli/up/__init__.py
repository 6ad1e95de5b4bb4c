"""`tiltyard up`: the whole system on one machine, under one supervisor."""

from __future__ import annotations

from argparse import Namespace


def main(arguments: Namespace) -> int:
    from .run import up

    return up(arguments)
