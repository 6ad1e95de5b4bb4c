"""The `main` that is compiled together with a submission."""

from __future__ import annotations

from collections.abc import Sequence

from .data import Data, Type

_HEAD = """\
#include <ctype.h>
#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#define main submission_main
#include "submission.c"
#undef main
int main(int argc, char **argv) {
    int own = dup(1);
    dup2(2, 1);
    FILE *out = fdopen(own, "w");
    switch (atoi(argv[1])) {
"""
_TAIL = """\
    }
    fflush(out);
    _exit(0);
}
"""


def harness(data: Data) -> str:
    """C source that makes the call which its argument names, and prints the result."""
    cases = [f"    case {index}: {{ {_call(data, call.args)} break; }}\n" for index, call in enumerate(data.calls)]
    return _HEAD + "".join(cases) + _TAIL


def _call(data: Data, args: Sequence[object]) -> str:
    before: list[str] = []
    given: list[str] = []
    changed = ""
    for index, (value, kind) in enumerate(zip(args, data.takes, strict=True)):
        if kind == "ints":
            assert isinstance(value, list | tuple)
            before.append(f"int a{index}[] = {{{', '.join(map(str, value)) or '0'}}};")
            given += [f"a{index}", str(len(value))]
            changed = changed or f'for (int i = 0; i < {len(value)}; i++) fprintf(out, "%d ", a{index}[i]);'
        elif kind == "text":
            assert isinstance(value, str)
            before.append(f"char a{index}[{len(value) + 1024}] = {_text(value)};")
            given.append(f"a{index}")
        else:
            given.append(_number(value, kind))
    call = f"{data.function}({', '.join(given)})"
    shown = {
        "int": f'long long r = {call}; fprintf(out, "%lld\\n", r);',
        "real": f'double r = {call}; fprintf(out, "%.17g\\n", r);',
        "text": f'const char *r = {call}; fprintf(out, "%s\\n", r);',
        "ints": f"{call}; {changed}",
    }[data.returns]
    return " ".join([*before, shown])


def _number(value: object, kind: Type) -> str:
    if kind == "real":
        return repr(float(str(value)))
    return f"{value}" if abs(int(str(value))) < 2**31 else f"{value}LL"


def _text(value: str) -> str:
    """A string literal in which every character is an octal escape unless it's a letter or digit."""
    return '"' + "".join(char if char.isalnum() or char == " " else f"\\{ord(char):03o}" for char in value) + '"'
