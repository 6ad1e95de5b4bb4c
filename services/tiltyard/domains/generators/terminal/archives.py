"""Tar and zip archives: packing, unpacking, choosing members."""

from __future__ import annotations

import random

from .work import NAMES, WORDS, Templates, Work, absent, archive, file, lines, some, two


def _tree(rng: random.Random, top: str, count: int = 0) -> dict[str, str]:
    """Files below a folder, of several endings."""
    found = {}
    for name in rng.sample(NAMES, count or rng.randint(3, 6)):
        found[f"{top}/{rng.choice(('', 'old/', 'new/'))}{name}.{rng.choice(('txt', 'log', 'md'))}"] = lines(
            some(rng, 1, 4)
        )
    found[f"{top}/{rng.choice(WORDS)}.txt"], found[f"{top}/new/{rng.choice(WORDS)}.log"] = "a\n", "b\n"
    return found


def _packed(files: dict[str, str], target: str, top: str) -> str:
    """Shell text that makes an archive of files and removes them."""
    make = [f"mkdir -p \"$(dirname {path})\"; printf '%s' '{text}' > {path}" for path, text in files.items()]
    pack = f"zip -qr {target} {top}" if target.endswith(".zip") else f"tar caf {target} {top}"
    return "\n".join([*make, pack, f"rm -r {top}"])


def _pack(rng: random.Random) -> Work:
    top, name = two(rng)
    files, ending = _tree(rng, top), rng.choice(("tar.gz", "tar.xz", "tar", "zip"))
    command = f"zip -qr {name}.zip {top}" if ending == "zip" else f"tar caf {name}.{ending} {top}"
    return Work(f"pack the folder {top} with everything in it into {name}.{ending}; keep the folder",
                [archive(f"{name}.{ending}", files)], command, files)  # fmt: skip


def _unpack(rng: random.Random) -> Work:
    top, name = two(rng)
    files, ending = _tree(rng, top), rng.choice(("tar.gz", "tar.bz2", "zip"))
    target = f"{name}.{ending}"
    command = f"unzip -q {target}" if ending == "zip" else f"tar xf {target}"
    checks = [file(path, text, "exact") for path, text in files.items()]
    return Work(f"unpack {target} here, then delete the archive", [*checks, absent(target)],
                f"{command}\nrm {target}", setup=_packed(files, target, top))  # fmt: skip


def _one(rng: random.Random) -> Work:
    top, name = two(rng)
    files = _tree(rng, top)
    path = rng.choice(sorted(files))
    say = f"get only the file {path} out of {name}.tar.gz and save it as found.txt in the current folder; create nothing else"
    return Work(say, [file("found.txt", files[path], "exact"), absent(top)], f"tar xOf {name}.tar.gz {path} > found.txt",
                setup=_packed(files, f"{name}.tar.gz", top))  # fmt: skip


def _chosen(rng: random.Random) -> Work:
    top, name = two(rng)
    files, ending = _tree(rng, top, 6), rng.choice(("txt", "log"))
    kept = {path: text for path, text in files.items() if path.endswith(ending)}
    say = f"make {name}.zip with all files below {top} that end in .{ending}, under their paths (beginning with {top}/), and nothing else"
    return Work(
        say, [archive(f"{name}.zip", kept)], f"find {top} -type f -name '*.{ending}' | zip -q {name}.zip -@", files
    )


def _convert(rng: random.Random) -> Work:
    top, name = two(rng)
    files = _tree(rng, top)
    say = f"turn {name}.zip into {name}.tar.gz with the same files under the same paths, and delete the zip; leave no unpacked files"
    command = f"mkdir /tmp/u && unzip -q {name}.zip -d /tmp/u && tar caf {name}.tar.gz -C /tmp/u {top} && rm {name}.zip"
    return Work(say, [archive(f"{name}.tar.gz", files), absent(f"{name}.zip"), absent(top)], command,
                setup=_packed(files, f"{name}.zip", top))  # fmt: skip


def _without(rng: random.Random) -> Work:
    top, name = two(rng)
    files = _tree(rng, top, 6)
    kept = {path: text for path, text in files.items() if not path.startswith(f"{top}/new/")}
    say = f"pack the folder {top} without its subfolder new into {name}.tar.gz, the paths beginning with {top}/; keep the folder as it is"
    return Work(say, [archive(f"{name}.tar.gz", kept)], f"tar czf {name}.tar.gz --exclude={top}/new {top}", files)


def _flatten(rng: random.Random) -> Work:
    top, name = two(rng)
    files = _tree(rng, top, 5)
    files = {path: files[path] for path in {path.rpartition("/")[2]: path for path in sorted(files)}.values()}
    flat = {path.rpartition("/")[2]: text for path, text in files.items()}
    say = f"make flat.zip from {name}.tar.gz: the same files, but without any folders in their names; leave {name}.tar.gz, and no unpacked files"
    command = f"mkdir /tmp/u && tar xf {name}.tar.gz -C /tmp/u && find /tmp/u -type f | zip -qj flat.zip -@"
    return Work(say, [archive("flat.zip", flat), absent(top)], command, setup=_packed(files, f"{name}.tar.gz", top))


def _newest(rng: random.Random) -> Work:
    top, name = two(rng)
    days = rng.sample(range(10, 29), 3)
    parts = {day: _tree(rng, top, 3) for day in days}
    setup = "\n".join(_packed(files, f"{name}-2026-05-{day}.tar.gz", top) for day, files in parts.items())
    best = max(days)
    say = f"of the archives {name}-DATE.tar.gz unpack the one with the latest date into the folder restored (so that restored/{top} is there), and move the others into the folder old"
    checks = [file(f"restored/{path}", text, "exact") for path, text in parts[best].items()]
    checks += [archive(f"old/{name}-2026-05-{day}.tar.gz", parts[day]) for day in days if day != best]
    checks += [absent(f"{name}-2026-05-{day}.tar.gz") for day in days if day != best]
    command = (f"mkdir restored old\ntar xf {name}-2026-05-{best}.tar.gz -C restored\n"
               f"mv {' '.join(f'{name}-2026-05-{day}.tar.gz' for day in days if day != best)} old/")  # fmt: skip
    return Work(say, checks, command, setup=setup)


TEMPLATES: Templates = {
    "easy": {"pack": _pack, "unpack": _unpack, "one": _one},
    "medium": {"chosen": _chosen, "convert": _convert, "without": _without},
    "hard": {"flatten": _flatten, "newest": _newest},
}
