"""Finding, moving, renaming and linking files."""

from __future__ import annotations

import random

from .work import NAMES, WORDS, Templates, Work, absent, file, folder, lines, link, some, two


def _tree(rng: random.Random, top: str, count: int = 7) -> dict[str, str]:
    found = {}
    for name in rng.sample(NAMES, count):
        path = f"{top}/{rng.choice(('', 'a/', 'b/', 'b/c/'))}{name}.{rng.choice(('txt', 'log', 'csv'))}"
        found[path] = lines(some(rng, 1, 9))
    return found


def _find(rng: random.Random) -> Work:
    top, _ = two(rng)
    files, word = _tree(rng, top), rng.choice(WORDS)
    found = sorted(path for path, text in files.items() if word in text.split())
    return Work(f"write the paths of all files below {top} that contain the word {word} into found.txt, one a line, beginning with {top}/, sorted; an empty file if there is none",
                [file("found.txt", lines(found))], f"grep -rlw {word} {top} | LC_ALL=C sort > found.txt; true", files)  # fmt: skip


def _rename(rng: random.Random) -> Work:
    top, _ = two(rng)
    files = {f"{top}/{name}.txt": f"{name}\n" for name in rng.sample(NAMES, 5)} | {f"{top}/keep.md": "x\n"}
    ending = rng.choice(("bak", "text", "old"))
    after = {path.replace(".txt", f".{ending}"): text for path, text in files.items()}
    checks = [file(path, text, "exact") for path, text in after.items()]
    return Work(f"rename every .txt file in {top} so that it ends in .{ending} instead", [*checks, folder(top, [p.partition("/")[2] for p in after])],
                f"for f in {top}/*.txt; do mv \"$f\" \"${{f%.txt}}.{ending}\"; done", files, free=(top,))  # fmt: skip


def _largest(rng: random.Random) -> Work:
    top, _ = two(rng)
    names = rng.sample(NAMES, 5)
    files = {
        f"{top}/{name}.txt": "x" * size + "\n" for name, size in zip(names, rng.sample(range(10, 400), 5), strict=True)
    }
    best = max(files, key=lambda path: len(files[path]))
    return Work(f"copy the largest file in {top} to largest.txt in the current folder", [file("largest.txt", files[best], "exact")],
                f"cp \"$(ls -S {top}/* | head -n 1)\" largest.txt", files)  # fmt: skip


def _organise(rng: random.Random) -> Work:
    names = rng.sample(NAMES, 6)
    files = {f"inbox/{name}.{rng.choice(('txt', 'log', 'csv'))}": f"{name}\n" for name in names}
    moved = {f"{path.rpartition('.')[2]}/{path.partition('/')[2]}": text for path, text in files.items()}
    return Work("move every file of inbox into a folder in the current folder that is named after its ending (txt, log or csv), and remove the empty inbox",
                [*(file(path, text, "exact") for path, text in moved.items()), absent("inbox")],
                "for f in inbox/*; do e=${f##*.}; mkdir -p $e; mv \"$f\" $e/; done\nrmdir inbox", files, free=("inbox",))  # fmt: skip


def _duplicates(rng: random.Random) -> Work:
    names, words = sorted(rng.sample(NAMES, 7)), rng.sample(WORDS, 3)
    files = {f"store/{name}.txt": f"{rng.choice(words)}\n" for name in names}
    first: dict[str, str] = {}
    for path in sorted(files):
        first.setdefault(files[path], path)
    kept = sorted(first.values())
    checks = [file(path, files[path], "exact") for path in kept] + [
        folder("store", [p.partition("/")[2] for p in kept])
    ]
    return Work("among the files in store that have the same content keep only the one whose name comes first in the alphabet, and delete the others", checks,
                "for f in store/*; do s=$(sha1sum < \"$f\"); case \"$seen\" in *\"$s\"*) rm \"$f\";; *) seen=\"$seen $s\";; esac; done", files, free=("store",))  # fmt: skip


def _links(rng: random.Random) -> Work:
    top, _ = two(rng)
    numbers = rng.sample(range(10, 60), 4)
    files = {f"{top}/release-{n}/version.txt": f"{n}\n" for n in numbers}
    best, name = max(numbers), rng.choice(("current", "latest", "live"))
    return Work(f"make {top}/{name} a symbolic link to the folder release-N in {top} with the greatest number, relative (so that {top} can be moved)",
                [link(f"{top}/{name}", f"release-{best}")], f"ln -s release-{best} {top}/{name}", files)  # fmt: skip


def _rotate(rng: random.Random) -> Work:
    name, count = rng.choice(NAMES), rng.randint(3, 4)
    files = {f"{name}.log": "now\n"} | {f"{name}.log.{i}": f"{i} {rng.choice(WORDS)}\n" for i in range(1, count + 1)}
    after = {f"{name}.log.{i + 1}": files[f"{name}.log.{i}"] for i in range(1, count)} | {
        f"{name}.log.1": "now\n",
        f"{name}.log": "",
    }
    gone = [absent(f"{name}.log.{count + 1}")]
    return Work(f"rotate {name}.log: its old versions {name}.log.1 to {name}.log.{count} move on by one (the last is dropped, so that there are {count} again), {name}.log becomes {name}.log.1, and a new empty {name}.log is there",
                [*(file(path, text, "exact") for path, text in after.items()), *gone],
                f"for i in $(seq {count - 1} -1 1); do mv {name}.log.$i {name}.log.$((i + 1)); done\nmv {name}.log {name}.log.1\n: > {name}.log", files)  # fmt: skip


def _mirror(rng: random.Random) -> Work:
    top, other = two(rng)
    new = _tree(rng, top, 6)
    old = {path.replace(f"{top}/", f"{other}/", 1): text for path, text in list(new.items())[:3]}
    old |= {f"{other}/stale.txt": "x\n", next(iter(old)): "outdated\n"}
    checks = [file(path.replace(f"{top}/", f"{other}/", 1), text, "exact") for path, text in new.items()]
    return Work(f"make the folder {other} the same as {top}: the same files with the same content in the same subfolders, and no others; {top} stays as it is",
                [*checks, absent(f"{other}/stale.txt")], f"rsync -a --delete --checksum {top}/ {other}/", {**new, **old}, free=(other,))  # fmt: skip


def _sizes(rng: random.Random) -> Work:
    top, _ = two(rng)
    files = _tree(rng, top)
    totals: dict[str, int] = {}
    for path, text in files.items():
        ending = path.rpartition(".")[2]
        totals[ending] = totals.get(ending, 0) + len(text)
    rows = sorted(totals.items(), key=lambda pair: (-pair[1], pair[0]))
    return Work(f"write 'ending bytes' with the sum of the sizes of the files below {top} for each file name ending into sizes.txt, the greatest sum first, equal sums by ending",
                [file("sizes.txt", lines(f"{e} {n}" for e, n in rows))],
                f"find {top} -type f -printf '%f %s\\n' | awk '{{ sub(/.*\\./, \"\", $1); t[$1] += $2 }} END {{ for (e in t) print e, t[e] }}' | LC_ALL=C sort -k2,2nr -k1,1 > sizes.txt", files)  # fmt: skip


TEMPLATES: Templates = {
    "easy": {"find": _find, "rename": _rename, "largest": _largest},
    "medium": {"organise": _organise, "duplicates": _duplicates, "links": _links},
    "hard": {"rotate": _rotate, "mirror": _mirror, "sizes": _sizes},
}
