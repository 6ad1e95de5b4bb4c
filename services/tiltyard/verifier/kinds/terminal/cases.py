"""Cases about work in a terminal: the state that must hold, made of the task's words, and what the session does."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from tiltyard.verifier.kinds.casetasks import LIMITS, direct
from tiltyard.verifier.kinds.casework import task_of, text_of
from tiltyard.verifier.kinds.trials import Case, Ruling, Trial
from tiltyard_proto.messages import Environment

CASE_KINDS = ("terminal",)
_NUMBERS = {"none": 0, "no": 0, "one": 1, "two": 2, "three": 3, "all": 3, "every": 3}
UNIT, ENABLED = "etc/systemd/system/app.service", "etc/systemd/system/multi-user.target.wants/app.service"


def trials(case: Case) -> Sequence[Trial] | Ruling | None:
    if trial := direct(case):
        return [trial]
    words = case.task.lower()
    for pattern, mapper in _MAPPERS:
        if re.search(pattern, words):
            checks, files, commands = mapper(case)
            environment = Environment(
                interface="shell",
                profile="shell",
                files={path: text.encode() for path, text in files.items()},
                limits=LIMITS,
            )
            task = task_of(case, "terminal", {"checks": checks}, environment=environment, turns=3)
            return [Trial(task=task, texts=(commands,))]
    return None


Made = tuple[list[dict[str, Any]], dict[str, str], str]
"""Checks, files at the start, shell text."""


def _write(path: str, text: str) -> str:
    """Shell text that writes exactly these characters."""
    octal = "".join(f"\\{byte:03o}" for byte in text.encode())
    return f"printf '{octal}' > {path}"


def _unquoted(text: str) -> str:
    """A submission in quotes means its content, with escapes."""
    match = re.fullmatch(r"\s*\"(.*)\"\s*", text, re.DOTALL)
    if not match:
        return text
    return match[1].replace("\\r", "\r").replace("\\n", "\n").replace("\\t", "\t")


def _written(case: Case) -> Made:
    """A text must be in a file."""
    want = re.search(r"write\s+\"(.*?)\"", case.task, re.DOTALL)
    name = re.search(r"\b([\w-]+\.\w{1,4})\b", case.task)
    path = name[1] if name else "out.txt"
    text = want[1] if want else text_of(case.reference)
    return [{"check": "file", "path": path, "text": text}], {}, _write(path, _unquoted(text_of(case.submission)))


def _answered(case: Case) -> Made:
    """A question whose answer is a number, or a text, in a file."""
    want = text_of(case.reference)
    number = re.fullmatch(r"\s*[+-]?\d+(\.\d+)?\s*", want)
    check = {"check": "file", "path": "answer.txt", "text": want, "compare": "number" if number else "lines"}
    return [check], {}, _write("answer.txt", text_of(case.submission))


def _kept(case: Case) -> Made:
    """A file must stay as it is."""
    name = re.search(r"\b([\w/-]+\.\w{1,4})\b", case.task)
    path = name[1] if name else "evaluate.py"
    text = "print(0.0)\n"
    said = text_of(case.submission).lower()
    untouched = bool(re.search(r"\b(?:untouched|unchanged|as it (?:is|was)|leaves?|only reads?|runs? it)\b", said))
    work = "echo done > work.txt"
    if "touch" in said and not untouched:
        work += f"; touch {path}"
    elif not untouched:
        work += f"; printf 'print(1.0)\\n' > {path}"
    kept = {"check": "file", "path": path, "text": text, "compare": "exact"}
    return [{"check": "file", "path": "work.txt"}, kept], {path: text}, work


def _commands(case: Case) -> Made:
    """Commands that must all end with 0."""
    said = text_of(case.submission).lower()
    checks = [{"check": "run", "args": ["sh", "-c", f"test -e step{i}"]} for i in range(3)]
    found = re.search(r"\b(none|no|one|two|three|all|every)\b", said)
    count = _NUMBERS[found[1]] if found else 1
    bad = bool(re.search(r"exits? (?:with )?(?:[1-9]|non-?zero)|fails?|error|killed|timed? ?out", said))
    good = 3 - count if bad else count
    return checks, {}, "; ".join(["true", *(f"touch step{i}" for i in range(good))])


def _service(case: Case) -> Made:
    """A service must be there after a restart: its unit is enabled, whatever runs now."""
    said = text_of(case.submission).lower()
    enabled = "enabled" in said and not re.search(r"(?:not|never|without being) enabled|isn't enabled", said)
    unit = "[Unit]\nDescription=App\n[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n"
    commands = [f"mkdir -p {ENABLED.rpartition('/')[0]}", "nohup sleep 100 >/dev/null 2>&1 &"]
    if enabled:
        commands.append(f"ln -s ../app.service {ENABLED}")
    return [{"check": "link", "path": ENABLED, "text": "../app.service"}], {UNIT: unit}, "\n".join(commands)


def _nginx(case: Case) -> Made:
    """An nginx configuration, compared by what it means."""
    pairs = re.findall(r"\b(listen|root|server_name|index)\s+([\w./*-]+)", case.task)
    body = [f"{name} {value};" for name, value in pairs]
    said = text_of(case.submission)
    if "{" in said:
        text = said
    else:
        text = "server {\n" + "\n".join(f"\t{line}\t# a comment" for line in _changed(body, said.lower())) + "\n\n}\n"
    want = "server { " + " ".join(body) + " }"
    return [{"check": "file", "path": "site.conf", "text": want, "compare": "nginx"}], {}, _write("site.conf", text)


def _changed(body: list[str], said: str) -> list[str]:
    """The directives as a description has them."""
    if re.search(r"missing|without|leaves out|left out", said):
        return body[:-1]
    if re.search(r"other port|wrong|different|another", said):
        return [re.sub(r"\d+|/\w+", "81", body[0]), *body[1:]]
    if re.search(r"comment(?:ed)? out|in a comment", said):
        return [f"# {line}" for line in body]
    if re.search(r"extra|more|additional|twice|duplicate", said):
        return [*body, body[0]]
    return list(reversed(body))


def _mode(case: Case) -> Made:
    """Permissions of a file."""
    modes = re.findall(r"\b0?([0-7]{3})\b", f"{case.task} {case.reference}")
    got = re.findall(r"\b0?([0-7]{3})\b", text_of(case.submission))
    name = re.search(r"\b([\w-]+\.\w{1,4})\b", case.task)
    path = name[1] if name else "file.txt"
    return (
        [{"check": "mode", "path": path, "text": modes[0] if modes else "600"}],
        {path: "x\n"},
        f"chmod {got[0] if got else '666'} {path}",
    )


def _link(case: Case) -> Made:
    """A link, which must not be a copy."""
    said = text_of(case.submission).lower()
    copies = re.search(r"cop(?:y|ies)|regular file|hard ?link", said)
    wrong = re.search(r"wrong|other|elsewhere|dangling|absolute|/etc", said)
    commands = "cp target.txt link" if copies else "ln -s /etc/hostname link" if wrong else "ln -s target.txt link"
    return [{"check": "link", "path": "link", "text": "target.txt"}], {"target.txt": "x\n"}, commands


_MAPPERS: tuple[tuple[str, Callable[[Case], Made]], ...] = (
    (r"nginx", _nginx),
    (r"must (?:stay|remain|be left)|unchanged|not be (?:changed|edited|touched)", _kept),
    (r"command list|commands|exit codes?|verify", _commands),
    (r"restart|reboot|service|cron", _service),
    (r"\bmode\b|permission|chmod", _mode),
    (r"\b(?:sym)?link\b", _link),
    (r"\bwrite\b|\bfile\b", _written),
    (r"question|answer|how many|gold|count", _answered),
)
