"""File work in a shell: small tasks graded by the files that are there afterwards.

Invariants: the initial workspace never satisfies a task; what a task asks for follows from its text; no task needs
permissions, the network or anything beyond the standard Unix tools. Left out: grading is the verifier kind `files`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from tiltyard.domains.drafts import Draft, Request

_NAMES = ("notes", "list", "data", "log", "items", "report", "names", "input", "stock", "plan")
_WORDS = ("red", "blue", "oak", "pine", "fox", "owl", "salt", "rice", "tin", "zinc", "corn", "iris", "lime", "plum")


@dataclass(frozen=True)
class Work:
    """One task: what to do, the files before and after, and commands that do it."""

    say: str
    before: Mapping[str, str]
    after: Mapping[str, str]
    """Files that must be there with this content; those of `before` that aren't named must stay or be in `gone`."""
    commands: str
    gone: tuple[str, ...] = ()


def _lines(rng: random.Random, low: int = 4, high: int = 8) -> list[str]:
    return [rng.choice(_WORDS) for _ in range(rng.randint(low, high))]


def _text(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _two(rng: random.Random) -> tuple[str, str]:
    first, second = rng.sample(_NAMES, 2)
    return f"{first}.txt", f"{second}.txt"


def _create(rng: random.Random) -> Work:
    a, _ = _two(rng)
    line = " ".join(_lines(rng, 2, 3))
    return Work(f"create the file {a} with the single line: {line}", {}, {a: f"{line}\n"}, f"echo '{line}' > {a}")


def _append(rng: random.Random) -> Work:
    a, _ = _two(rng)
    lines, word = _lines(rng), rng.choice(_WORDS)
    after = {a: _text([*lines, word])}
    return Work(f"add the line {word} at the end of {a}", {a: _text(lines)}, after, f"echo {word} >> {a}")


def _rename(rng: random.Random) -> Work:
    a, b = _two(rng)
    text = _text(_lines(rng))
    return Work(f"rename {a} to {b}", {a: text}, {b: text}, f"mv {a} {b}", (a,))


def _copy(rng: random.Random) -> Work:
    a, b = _two(rng)
    text = _text(_lines(rng))
    return Work(f"copy {a} to {b}", {a: text}, {b: text, a: text}, f"cp {a} {b}")


def _delete(rng: random.Random) -> Work:
    a, b = _two(rng)
    text = _text(_lines(rng))
    return Work(f"delete {a} and keep {b}", {a: text, b: text}, {b: text}, f"rm {a}", (a,))


def _join(rng: random.Random) -> Work:
    a, b = _two(rng)
    first, second = _text(_lines(rng)), _text(_lines(rng))
    after = {"all.txt": first + second}
    return Work(
        f"write the content of {a} followed by that of {b} into all.txt",
        {a: first, b: second},
        after,
        f"cat {a} {b} > all.txt",
    )


def _move(rng: random.Random) -> Work:
    a, _ = _two(rng)
    folder, text = rng.choice(("archive", "old", "done")), _text(_lines(rng))
    after = {f"{folder}/{a}": text}
    return Work(
        f"create the folder {folder} and move {a} into it", {a: text}, after, f"mkdir {folder}\nmv {a} {folder}/", (a,)
    )


Result = Callable[[list[str], str, int], list[str]]


def _filter(say: str, command: str, result: Result) -> Callable[[random.Random], Work]:
    """A task that writes something made of file a into file b; the patterns know word and n too."""

    def work(rng: random.Random) -> Work:
        a, b = _two(rng)
        lines, n = _lines(rng, 5, 9), rng.randint(2, 4)
        word = rng.choice(lines)
        return Work(
            f"write {say} into {b}".format(a=a, word=word, n=n),
            {a: _text(lines)},
            {b: _text(result(lines, word, n))},
            f"{command} > {b}".format(a=a, word=word, n=n),
        )

    return work


TEMPLATES: dict[str, Callable[[random.Random], Work]] = {
    "create": _create,
    "append": _append,
    "rename": _rename,
    "copy": _copy,
    "delete": _delete,
    "join": _join,
    "move": _move,
    "count_lines": _filter("the number of lines of {a}", "wc -l < {a}", lambda lines, w, n: [str(len(lines))]),
    "sort": _filter("the lines of {a} in sorted order", "sort {a}", lambda lines, w, n: sorted(lines)),
    "sort_down": _filter(
        "the lines of {a} in reverse sorted order", "sort -r {a}", lambda lines, w, n: sorted(lines, reverse=True)
    ),
    "unique": _filter("the different lines of {a}, sorted,", "sort -u {a}", lambda lines, w, n: sorted(set(lines))),
    "grep": _filter(
        "the lines of {a} that contain {word}", "grep {word} {a}", lambda lines, w, n: [x for x in lines if w in x]
    ),
    "without": _filter(
        "the lines of {a} that don't contain {word}",
        "grep -v {word} {a}",
        lambda lines, w, n: [x for x in lines if w not in x],
    ),
    "head": _filter("the first {n} lines of {a}", "head -n {n} {a}", lambda lines, w, n: lines[:n]),
    "tail": _filter("the last {n} lines of {a}", "tail -n {n} {a}", lambda lines, w, n: lines[-n:]),
    "upper": _filter(
        "the text of {a} in upper case", "tr a-z A-Z < {a}", lambda lines, w, n: [x.upper() for x in lines]
    ),
    "count_word": _filter(
        "how many lines of {a} contain {word}",
        "grep -c {word} {a}",
        lambda lines, w, n: [str(sum(w in x for x in lines))],
    ),
}


def generate(request: Request) -> Iterator[Draft]:
    """File tasks, endlessly, every template in turn."""
    rng = random.Random(f"shell_files/{request.split}/{request.seed}")
    names = [name for name in TEMPLATES if request.wants(name)]
    while names:
        for name in names:
            work = TEMPLATES[name](rng)
            yield Draft(
                template=name,
                fields={"task": work.say},
                data={"expected": dict(work.after), "absent": list(work.gone), "compare": "lines"},
                reference=f"```sh\n{work.commands}\n```",
                files={path: text.encode() for path, text in work.before.items()},
            )
