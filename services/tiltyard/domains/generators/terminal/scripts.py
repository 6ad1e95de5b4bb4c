"""Scripts to be written, run on hidden input afterwards."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

from .work import NAMES, WORDS, Template, Templates, Work, file, lines, mode, run, some


def _sum_args(rng: random.Random) -> Work:
    name, factor = rng.choice(NAMES), rng.randint(2, 9)
    calls = [[str(rng.randint(-20, 50)) for _ in range(n)] for n in (1, 3, 5)]
    checks = [run(["bash", f"{name}.sh", *call], f"{factor * sum(map(int, call))}\n") for call in calls]
    text = f's=0\nfor x in "$@"; do s=$((s + x)); done\necho $((s * {factor}))'
    return Work(f"write the bash script {name}.sh that prints {factor} times the sum of its arguments, which are whole numbers", checks,
                f"cat > {name}.sh <<'END'\n{text}\nEND")  # fmt: skip


def _greet(rng: random.Random) -> Work:
    name, word = rng.choice(NAMES), rng.choice(WORDS)
    checks = [
        run(["bash", f"{name}.sh"], "", status=2),
        *(run(["bash", f"{name}.sh", who], f"{word} {who.upper()}\n") for who in rng.sample(NAMES, 3)),
    ]
    text = f'[ $# -eq 1 ] || exit 2\necho "{word} ${{1^^}}"'
    return Work(f"write the bash script {name}.sh that takes exactly one argument and prints '{word}', a blank and the argument in capital letters; with any other number of arguments it prints nothing and ends with status 2",
                checks, f"cat > {name}.sh <<'END'\n{text}\nEND")  # fmt: skip


def _number(rng: random.Random) -> Work:
    name, mark = rng.choice(NAMES), rng.choice((":", ")", " -", "="))
    texts = [lines(some(rng, 2, 5)) for _ in range(3)]
    checks = [
        run(["bash", f"{name}.sh"], lines(f"{i}{mark} {row}" for i, row in enumerate(text.split(), 1)), text)
        for text in texts
    ]
    return Work(f"write the bash script {name}.sh that copies its standard input to its output with the line's number, '{mark}' and a blank before each line, as in '1{mark} oak'",
                checks, f"cat > {name}.sh <<'END'\nawk '{{ print NR \"{mark} \" $0 }}'\nEND")  # fmt: skip


def _longest(rng: random.Random) -> Work:
    name = rng.choice(NAMES)
    n = rng.randint(2, 3)
    texts = [
        lines(dict.fromkeys(word * rng.randint(1, 3) + str(i) for i, word in enumerate(some(rng, 4, 7))))
        for _ in range(3)
    ]
    checks = [
        run(["python3", f"{name}.py"], lines(sorted(text.split(), key=lambda row: (-len(row), row))[:n]), text)
        for text in texts
    ]
    code = f"import sys\nrows = [r.rstrip('\\n') for r in sys.stdin]\nprint(*sorted(rows, key=lambda r: (-len(r), r))[:{n}], sep='\\n')"
    return Work(f"write the Python script {name}.py that prints the {n} longest lines of its standard input, the longest first, equal lengths in alphabetical order", checks,
                f"cat > {name}.py <<'END'\n{code}\nEND")  # fmt: skip


def _endings(rng: random.Random) -> Work:
    name = rng.choice(NAMES)
    files = {
        f"tree/{rng.choice(('a', 'b', 'c/d'))}/{n}.{rng.choice(('txt', 'md', 'py'))}": "x\n"
        for n in rng.sample(NAMES, 6)
    }
    counts = sorted(Counter(path.rpartition(".")[2] for path in files).items())
    inner = sorted(Counter(path.rpartition(".")[2] for path in files if path.startswith("tree/a/")).items())
    checks = [run(["bash", f"{name}.sh", "tree"], lines(f"{e} {c}" for e, c in counts))]
    if inner:
        checks.append(run(["bash", f"{name}.sh", "tree/a"], lines(f"{e} {c}" for e, c in inner)))
    text = "find \"$1\" -type f | sed 's/.*\\.//' | LC_ALL=C sort | uniq -c | awk '{ print $2, $1 }'"
    return Work(f"write the bash script {name}.sh that takes a folder and prints 'ending count' for the file name endings of all files below it (without the dot), sorted by ending",
                checks, f"cat > {name}.sh <<'END'\n{text}\nEND", files)  # fmt: skip


def _backup(rng: random.Random) -> Work:
    name, ending = rng.choice(NAMES), rng.choice(("bak", "old", "orig"))
    files = {f"{n}.txt": f"{n}\n" for n in rng.sample(WORDS, 3)}
    test = f"bash {name}.sh *.txt missing.txt; echo status $?; ls *.{ending}; cat *.{ending}"
    want = lines(["status 1", *(f"{p}.{ending}" for p in sorted(files))]) + "".join(files[p] for p in sorted(files))
    text = f'bad=0\nfor f in "$@"; do if [ -f "$f" ]; then cp "$f" "$f.{ending}"; else bad=1; fi; done\nexit $bad'
    return Work(f"write the bash script {name}.sh that copies each file named as an argument to the same name with .{ending} added; it prints nothing on standard output, goes on past files that are missing, and then ends with status 1, else 0; don't run it yet, so that no .{ending} file is there",
                [run(["sh", "-c", test], want), *({"check": "absent", "path": f"{p}.{ending}"} for p in files)],
                f"cat > {name}.sh <<'END'\n{text}\nEND", files)  # fmt: skip


def _stack(rng: random.Random) -> Work:
    name = rng.choice(NAMES)
    low = rng.randint(2, 9)
    inputs = []
    for _ in range(3):
        stack: list[int] = []
        words, out = [], []
        for _ in range(rng.randint(6, 10)):
            word = rng.choice(("push", "push", "add", "print")) if len(stack) > 1 else "push"
            if word == "push":
                stack.append(rng.randint(0, 20))
                words.append(f"push {stack[-1]}")
            elif word == "add":
                stack.append(stack.pop() + stack.pop() + low)
                words.append("add")
            else:
                out.append(stack[-1])
                words.append("print")
        inputs.append((lines([*words, "print"]), lines([*out, stack[-1]])))
    code = ("import sys\ns = []\nfor row in sys.stdin:\n    w = row.split()\n    if w[0] == 'push': s.append(int(w[1]))\n"
            f"    elif w[0] == 'add': s.append(s.pop() + s.pop() + {low})\n    else: print(s[-1])")  # fmt: skip
    return Work(f"write the Python script {name}.py, a machine with a stack: it reads commands from standard input, one a line: 'push N' puts a number on the stack, 'add' takes the upper two off and puts their sum plus {low} on, 'print' prints the uppermost number",
                [run(["python3", f"{name}.py"], out, given) for given, out in inputs], f"cat > {name}.py <<'END'\n{code}\nEND")  # fmt: skip


def _tool(rng: random.Random) -> Work:
    name, unit = rng.choice(NAMES), rng.choice(WORDS)
    numbers = [rng.randint(1, 90) for _ in range(6)]
    given = lines(numbers)
    runs = [
        run([f"./{name}", "-s"], f"{sum(numbers)} {unit}\n", given),
        run([f"./{name}", "-m"], f"{max(numbers)} {unit}\n", given),
        run([f"./{name}", "-c"], f"{len(numbers)} {unit}\n", given),
        run([f"./{name}", "-z"], "", given, 3),
    ]
    text = ("#!/bin/bash\ncase \"$1\" in\n-s) awk -v u=" + unit + " '{ s += $1 } END { print s + 0, u }' ;;\n-m) sort -n | tail -n 1 | sed 's/$/ "
            + unit + "/' ;;\n-c) awk -v u=" + unit + " 'END { print NR, u }' ;;\n*) exit 3 ;;\nesac")  # fmt: skip
    return Work(f"write the program {name} (a script with mode 755 and an interpreter line): it reads numbers from standard input, one a line, and prints with the option -s their sum, with -m the greatest, with -c how many there are, each followed by a blank and '{unit}'; with any other option it prints nothing and ends with status 3",
                [mode(name, "755"), *runs], f"cat > {name} <<'END'\n{text}\nEND\nchmod 755 {name}")  # fmt: skip


def _makefile(rng: random.Random) -> Work:
    a, b = rng.sample(WORDS, 2)
    files = {"first.txt": lines(some(rng)), "second.txt": lines(some(rng))}
    both = sorted((files["first.txt"] + files["second.txt"]).split())
    test = f"make -s {a}.txt && cat {a}.txt && make -s {b}.txt && cat {b}.txt && make -s clean && ls *.txt"
    want = lines(both) + lines([len(both)]) + lines(["first.txt", "second.txt"])
    text = (f"{a}.txt: first.txt second.txt\n\tcat first.txt second.txt | LC_ALL=C sort > {a}.txt\n{b}.txt: {a}.txt\n\twc -l < {a}.txt > {b}.txt\n"
            f".PHONY: clean\nclean:\n\trm -f {a}.txt {b}.txt")  # fmt: skip
    return Work(f"write a Makefile with three targets: {a}.txt holds the lines of first.txt and second.txt, sorted, and depends on both; {b}.txt holds the number of lines of {a}.txt, which it depends on; clean removes the two. Leave neither of them there",
                [file("Makefile"), run(["sh", "-c", test], want), *({"check": "absent", "path": f"{p}.txt"} for p in (a, b))],
                f"cat > Makefile <<'END'\n{text}\nEND", files)  # fmt: skip


def _signed(template: Template) -> Template:
    """The same with a closing comment in the file, which no two tasks share."""

    def work(rng: random.Random) -> Work:
        made = template(rng)
        name = made.commands.split()[2]
        words = " ".join(rng.choice(WORDS) for _ in range(6))
        return replace(
            made,
            say=f"{made.say}; the last line of {name} is the comment '# {words}'",
            checks=[*made.checks, run(["tail", "-n", "1", name], f"# {words}")],
            commands=f"{made.commands}\necho '# {words}' >> {name}",
        )

    return work


_LEVELS: Templates = {
    "easy": {"sum_args": _sum_args, "greet": _greet, "number": _number},
    "medium": {"longest": _longest, "endings": _endings, "backup": _backup},
    "hard": {"stack": _stack, "tool": _tool, "makefile": _makefile},
}
TEMPLATES: Templates = {
    level: {name: _signed(template) for name, template in templates.items()} for level, templates in _LEVELS.items()
}
