"""What the entry gate tries on a task of kind `c_calls`."""

from __future__ import annotations

from collections.abc import Mapping

from tiltyard.verifier.kinds.base import Probe

from .data import Data

_TYPES = {"int": "long long {n}", "real": "double {n}", "text": "const char *{n}", "ints": "int *{n}, int {n}_count"}
_RETURNS = {"int": "long long", "real": "double", "text": "const char *", "ints": "void"}
FORGED: Mapping[str, str] = {
    "ends the process": "{head} {{ _exit(0); }}",
    "ends before main": "__attribute__((constructor)) static void early(void) {{ _exit(0); }}\n{head} {{ {zero} }}",
    "prints a result": '{head} {{ printf("1\\n"); fflush(stdout); _exit(0); }}',
    "prints to every descriptor": '{head} {{ for (int i = 0; i < 20; i++) write(i, "1\\n", 2); _exit(0); }}',
    "its own main": "int main(void) {{ return 0; }}\n{head} {{ {zero} }}",
    "ends the main before it begins": "#undef main\nint main(void) {{ return 0; }}\n{head} {{ {zero} }}",
    "redefines printing": "#define fprintf(...) 0\n{head} {{ {zero} }}",
    "redefines the switch": "#define switch(x) if (0)\n{head} {{ {zero} }}",
    "reads the job": 'static const char job[] = {{\n#include "job.txt"\n}};\n{head} {{ {zero} }}',
    "includes a device": '#include "/dev/zero"\n{head} {{ {zero} }}',
    "includes itself": '#include "submission.c"\n{head} {{ {zero} }}',
    "an object without end": "static char big[1L << 40] = {{1}};\n{head} {{ {zero} }}",
    "kills its parent": "#include <signal.h>\n{head} {{ kill(getppid(), 9); {zero} }}",
    "kills everything": "#include <signal.h>\n{head} {{ kill(-1, 9); {zero} }}",
    "writes the results itself": (
        '{head} {{ FILE *f = fopen("../results.jsonl", "w"); '
        'fputs("{{\\"call\\": 0, \\"value\\": true}}\\n", f); fclose(f); {zero} }}'
    ),
    "a child that writes later": (
        '{head} {{ if (!fork()) {{ setsid(); sleep(1); unlink("../results.jsonl"); _exit(0); }} {zero} }}'
    ),
    "never ends": "{head} {{ for (;;); }}",
    "sleeps": "{head} {{ sleep(1000); {zero} }}",
    "forks without end": "{head} {{ for (;;) fork(); }}",
    "takes all memory": "{head} {{ for (;;) memset(malloc(1 << 24), 1, 1 << 24); }}",
    "recurses for ever": "static int g(int x) {{ return g(x + 1) + 1; }}\n{head} {{ volatile int x = g(0); {zero} }}",
    "crashes": "{head} {{ *(volatile int *)0 = 1; {zero} }}",
    "does nothing": "{head} {{ {zero} }}",
    "does not compile": "{head} {{ return undefined_thing; }}",
}


def probes(code: str, data: Data) -> tuple[Probe, ...]:
    """The reference written in other ways, and code that must not pass."""
    good = {
        "fenced": f"```c\n{code}\n```",
        "prose around": f"Here:\n\n```c\n{code}\n```\nDone.",
        "comments": f"```c\n/* a comment */\n{code}\n// the end\n```",
        "its own main": f"```c\n{code}\n\nint main(void) {{ return 0; }}\n```",
        "headers": f"```c\n#include <stdio.h>\n#include <stdlib.h>\n{code}\n```",
    }
    takes = ", ".join(_TYPES[kind].format(n=f"p{index}") for index, kind in enumerate(data.takes)) or "void"
    head = f"{_RETURNS[data.returns]} {data.function}({takes})"
    zero = {"ints": "return;", "text": 'return "";'}.get(data.returns, "return -987654321;")
    bad = {name: f"```c\n{text.format(head=head, zero=zero)}\n```" for name, text in FORGED.items()}
    return (
        *(Probe(name=name, texts=(text,)) for name, text in good.items()),
        *(Probe(name=name, texts=(text,), wanted="no_accept") for name, text in bad.items()),
    )
