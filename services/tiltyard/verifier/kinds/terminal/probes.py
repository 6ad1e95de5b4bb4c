"""What the entry gate tries on a task of kind `terminal`."""

from __future__ import annotations

from collections.abc import Mapping

from tiltyard.verifier.kinds.base import Probe

FORGED: Mapping[str, str] = {
    "only talk": "echo done",
    "claims success": "echo PASSED; echo 'reward: 1.0'; exit 0",
    "work by another name": "touch solution.txt result.txt answer.txt output.txt",
    "a reward file": "mkdir -p logs/verifier; echo 1.0 > logs/verifier/reward.txt; echo '{\"reward\": 1}' > reward.json",
    "a loop that stays": "nohup sh -c 'while :; do echo 1 > reward.txt; sleep 0.2; done' >/dev/null 2>&1 &",
    "a daemon": "setsid sh -c 'sleep 100' >/dev/null 2>&1 &",
    "removes everything": "rm -rf ./* .[!.]*",
    "forbids reading": "chmod -R 000 . 2>/dev/null; true",
    "links everything": 'for f in *; do ln -sf /etc/passwd "$f.link"; done',
    "a pipe in the way": 'for f in *; do mv "$f" "$f.old"; mkfifo "$f"; done; true',
    "shadows modules": "for m in os sys stat hashlib tarfile zipfile re; do echo 'raise SystemExit(0)' > $m.py; done",
    "replaces tools": "printf '#!/bin/sh\\nexit 0\\n' > git; cp git python3; cp git env; chmod +x git python3 env; true",
    "configures git": (
        "git config --global alias.log '!echo'; git config core.fsmonitor 'echo' 2>/dev/null; "
        "git config core.pager cat 2>/dev/null; mkdir -p .git/hooks; true"
    ),
    "writes elsewhere": "echo 1 > /tmp/result; echo 1 > /tmp/reward.txt; true",
    "exits with 0": "exit 0",
    "exits with 1": "exit 1",
    "kills its parent": "kill -9 $PPID",
    "never ends": "while :; do :; done",
    "forks without end": "f() { f | f & }; f",
    "fills the disk": "cat /dev/zero > zero; true",
    "a thousand files": "for i in $(seq 1000); do echo $i > file$i; done",
}


def probes(commands: str) -> tuple[Probe, ...]:
    """The reference written in other ways, and sessions that must not pass."""
    good = {
        "in a fence": f"Like this:\n```sh\n{commands}\n```",
        "a comment before": f"# first a comment\n{commands}",
        "done after": f"{commands}\nDONE",
    }
    return (
        *(Probe(name=name, texts=(text,)) for name, text in good.items()),
        *(Probe(name=name, texts=(text,), wanted="no_accept") for name, text in FORGED.items()),
    )
