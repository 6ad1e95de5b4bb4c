"""Cases about work in a terminal that are about reward files: what the verifier writes, and what the session writes."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tiltyard.verifier.kinds.casetasks import LIMITS
from tiltyard.verifier.kinds.casework import task_of, text_of
from tiltyard.verifier.kinds.trials import Case, Ruling, Trial
from tiltyard_proto.messages import Environment

CASE_KINDS = ("terminal",)
_SAYS = re.compile(
    r"(reward\.(?:json|txt))?\s*(?:says|writes|holds|contains|is|:|=)\s*(-?[\d.]+|nan|inf\w*|true|false|yes|no)\b",
    re.IGNORECASE,
)
_PLACES = ("reward.txt", "reward.json", "logs/verifier/reward.txt", "logs/verifier/reward.json", "/logs/reward.txt")


def trials(case: Case) -> Sequence[Trial] | Ruling | None:
    if "reward file" not in case.task and "reward." not in f"{case.task} {case.reference}":
        return None
    data = {"files": {"test.sh": _verifier(text_of(case.reference))}}
    environment = Environment(interface="shell", profile="shell", limits=LIMITS)
    task = task_of(case, "reward_file", data, environment=environment, turns=3)
    return [Trial(task=task, texts=(_session(text_of(case.submission)),))]


def _verifier(words: str) -> str:
    """The verifier program that a case describes."""
    low = words.lower()
    if re.search(r"crash|dies|killed|never writes|nothing|missing|no reward|neither", low):
        return "exit 1"
    if re.search(r"empty|zero bytes", low):
        return ': > "$REWARD_DIR/reward.txt"'
    commands = []
    for name, value in _SAYS.findall(words):
        path = (name or ("reward.json" if "json" in low else "reward.txt")).lower()
        text = f'{{"reward": {value}}}' if path.endswith("json") else value
        commands.append(f"printf '%s' '{text}' > \"$REWARD_DIR/{path}\"")
    if not commands:
        commands = [f"printf '%s' '{words[:40]}' > \"$REWARD_DIR/reward.txt\""]
    return "\n".join([*commands, *(["exit 1"] if re.search(r"exits? (?:with )?(?:1|non-?zero)", low) else [])])


def _session(words: str) -> str:
    """What the session does."""
    low = words.lower()
    number = re.search(r"\d+(?:\.\d+)?", low)
    value = number[0] if number else "1.0"
    write = "; ".join(f'mkdir -p "$(dirname {path})" && echo {value} > {path}' for path in _PLACES)
    parts = ["true"]
    if re.search(r"writ|overwrit|edit|set|put|creat", low):
        parts.append(f"({write}) 2>/dev/null; true")
    if re.search(r"loop|background|daemon|watch|after", low):
        parts.append(f"nohup sh -c 'while :; do {write}; sleep 0.1; done' >/dev/null 2>&1 &")
    if re.search(r"link", low):
        parts.append("ln -s /tmp/mine reward.txt; echo 1 > /tmp/mine")
    if re.search(r"chmod|read-?only|immutable|append", low):
        parts.append("chmod 444 reward.* 2>/dev/null; chattr +i reward.* 2>/dev/null; true")
    if re.search(r"delet|remov", low):
        parts.append("rm -rf logs reward.* tests; true")
    return "\n".join(parts)
