"""Permissions of files and folders."""

from __future__ import annotations

import random

from .work import NAMES, Templates, Work, file, lines, mode, some, two

_SAID = {"600": "read and write for the owner, nothing for others", "640": "read and write for the owner, read for the group, nothing for others", "700": "everything for the owner, nothing for others", "755": "everything for the owner, read and execute for all others", "444": "read for everybody and nothing else", "644": "read and write for the owner, read for all others"}  # fmt: skip


def _set(rng: random.Random) -> Work:
    a, _ = two(rng)
    octal = rng.choice(sorted(_SAID))
    text = lines(some(rng))
    start = "664" if octal != "664" else "600"
    return Work(f"give {a}.txt these permissions: {_SAID[octal]}", [mode(f"{a}.txt", octal), file(f"{a}.txt", text)],
                f"chmod {octal} {a}.txt", {f"{a}.txt": text}, f"chmod {start} {a}.txt")  # fmt: skip


def _executable(rng: random.Random) -> Work:
    name, word = rng.choice(NAMES), rng.choice(some(rng))
    text = f"#!/bin/sh\necho {word}\n"
    return Work(f"make the script {name}.sh executable for its owner and nobody else; its other permissions (read and write for the owner, read for the group and others) stay",
                [mode(f"{name}.sh", "744"), file(f"{name}.sh", text)], f"chmod u+x {name}.sh", {f"{name}.sh": text},
                f"chmod 644 {name}.sh")  # fmt: skip


def _script(rng: random.Random) -> Work:
    name, word = rng.choice(NAMES), rng.choice(some(rng))
    say = f"create the executable script {name}.sh (mode 755), whose first line is '#!/bin/sh' and whose second line is 'echo {word}'"
    return Work(say, [mode(f"{name}.sh", "755"), file(f"{name}.sh", f"#!/bin/sh\necho {word}\n")],
                f"printf '#!/bin/sh\\necho {word}\\n' > {name}.sh\nchmod 755 {name}.sh")  # fmt: skip


def _tree(rng: random.Random, top: str) -> dict[str, str]:
    names = rng.sample(NAMES, 5)
    return {
        f"{top}/{'sub/' if i % 2 else ''}{name}.{rng.choice(('txt', 'sh'))}": f"{name}\n"
        for i, name in enumerate(names)
    }


def _tree_modes(rng: random.Random) -> Work:
    top, _ = two(rng)
    files = _tree(rng, top)
    folders, plain = rng.choice((("750", "640"), ("700", "600"), ("755", "644")))
    checks = [mode(path, plain) for path in files] + [mode(top, folders), mode(f"{top}/sub", folders)]
    return Work(f"give the folder {top} and all folders below it mode {folders}, and all files below it mode {plain}", checks,
                f"find {top} -type d -exec chmod {folders} {{}} +\nfind {top} -type f -exec chmod {plain} {{}} +", files,
                f"find {top} -type f -exec chmod 664 {{}} +; chmod 775 {top} {top}/sub")  # fmt: skip


def _endings(rng: random.Random) -> Work:
    top, _ = two(rng)
    files = _tree(rng, top) | {f"{top}/run.sh": "x\n", f"{top}/read.txt": "y\n"}
    checks = [mode(path, "755" if path.endswith(".sh") else "644") for path in files]
    return Work(f"below {top}, give files that end in .sh mode 755 and all other files mode 644", checks,
                f"find {top} -type f ! -name '*.sh' -exec chmod 644 {{}} +\nfind {top} -name '*.sh' -exec chmod 755 {{}} +", files,
                f"find {top} -type f -exec chmod 666 {{}} +")  # fmt: skip


def _open_files(rng: random.Random) -> Work:
    top, _ = two(rng)
    files = {f"{top}/{name}.txt": f"{name}\n" for name in rng.sample(NAMES, 6)}
    loose = sorted(rng.sample(sorted(files), 3))
    setup = f"chmod 640 {top}/*\nchmod 646 {' '.join(loose)}"
    return Work(f"write the paths of the files below {top} that everybody may write to into open.txt (one a line, sorted, beginning with {top}/), and take that right away from others; leave all other rights",
                [file("open.txt", lines(loose)), *(mode(path, "644" if path in loose else "640") for path in files)],
                f"find {top} -type f -perm -o+w | LC_ALL=C sort > open.txt\nxargs chmod o-w < open.txt", files, setup)  # fmt: skip


def _by_content(rng: random.Random) -> Work:
    top, _ = two(rng)
    names = rng.sample(NAMES, 6)
    files = {
        f"{top}/{name}": (f"#!/bin/sh\necho {name}\n" if i % 2 else f"about {name}\n") for i, name in enumerate(names)
    }
    checks = [mode(path, "750" if text.startswith("#!") else "640") for path, text in files.items()]
    return Work(f"files in {top} have no endings; those whose first line begins with '#!' get mode 750, the others 640", checks,
                f"for f in {top}/*; do if head -n 1 \"$f\" | grep -q '^#!'; then chmod 750 \"$f\"; else chmod 640 \"$f\"; fi; done",
                files, f"chmod 664 {top}/*")  # fmt: skip


def _listed(rng: random.Random) -> Work:
    top, _ = two(rng)
    names = rng.sample(NAMES, 5)
    wanted = {f"{top}/{name}.txt": rng.choice(("600", "640", "644", "444", "664")) for name in names}
    files = {path: f"{path}\n" for path in wanted} | {
        "rights.csv": lines(["path,mode", *(f"{p},{m}" for p, m in wanted.items())])
    }
    return Work("give each file that is named in rights.csv the mode that stands beside it", [mode(p, m) for p, m in wanted.items()],
                "tail -n +2 rights.csv | while IFS=, read -r p m; do chmod \"$m\" \"$p\"; done", files, f"chmod 660 {top}/*")  # fmt: skip


TEMPLATES: Templates = {
    "easy": {"set": _set, "executable": _executable, "script": _script},
    "medium": {"tree_modes": _tree_modes, "endings": _endings},
    "hard": {"open_files": _open_files, "by_content": _by_content, "listed": _listed},
}
