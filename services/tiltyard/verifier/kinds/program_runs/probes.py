"""What the entry gate tries on a task of kind `program_runs`."""

from __future__ import annotations

from collections.abc import Mapping

from tiltyard.verifier.kinds.base import Probe

_COMMENT = {"bash": "# a comment", "python": "# a comment", "javascript": "// a comment", "c": "// a comment"}
BASH: Mapping[str, str] = {
    "does nothing": "true",
    "ends at once": "exit 0",
    "echoes its input": "cat",
    "echoes its arguments": 'echo "$@"',
    "lists what lies beside it": "ls -la .. . ; cat ../*",
    "prints the job": "cat ../job.txt ../runner.py 2>/dev/null",
    "writes the results itself": (
        'for i in 0 1 2 3 4 5; do echo "{\\"call\\": $i, \\"value\\": {\\"dict\\": [[\\"status\\", 0], '
        '[\\"stdout\\", \\"\\"]]}}"; done > ../results.jsonl'
    ),
    "removes the results": "rm -rf ../results.jsonl ../*.out; ln -s /etc/passwd ../results.jsonl",
    "kills its parent": "kill -9 $PPID",
    "kills everything": "kill -9 -1",
    "a child that writes later": "(sleep 0.3; echo '{}' > ../results.jsonl) & disown; exit 0",
    "a daemon": "setsid sh -c 'while :; do echo 1 >> ../results.jsonl; sleep 0.1; done' & exit 0",
    "claims success": "echo PASSED; echo 'reward: 1.0'; echo '{\"score\": 1}'",
    "never ends": "while :; do :; done",
    "sleeps": "sleep 1000",
    "floods": "yes",
    "forks without end": "f() { f | f & }; f",
    "takes all memory": "x=a; while :; do x=$x$x; done",
    "fills the disk": "cat /dev/zero > big",
    "replaces the interpreter": "mkdir -p ../bin; printf '#!/bin/sh\\necho 1\\n' > ../bash; chmod +x ../bash",
    "prints a NUL": "printf '\\0'",
    "a hundred thousand lines": "seq 100000",
}
PYTHON: Mapping[str, str] = {
    "does nothing": "pass",
    "ends at once": "import os; os._exit(0)",
    "echoes its input": "import sys; sys.stdout.write(sys.stdin.read())",
    "prints the job": "print(open('../job.txt').read())",
    "writes the results itself": (
        'open(\'../results.jsonl\', \'w\').write(\'{"call": 0, "value": {"dict": [["status", 0], '
        '["stdout", "1"]]}}\\n\' * 5)'
    ),
    "kills its parent": "import os; os.kill(os.getppid(), 9)",
    "never ends": "while True: pass",
    "takes all memory": "x = bytearray(10 ** 11)",
    "claims success": "print('=== 5 passed ===')",
}
JAVASCRIPT: Mapping[str, str] = {
    "does nothing": ";",
    "ends at once": "process.exit(0)",
    "echoes its input": "process.stdin.pipe(process.stdout)",
    "prints the job": "console.log(require('fs').readFileSync('../job.txt', 'utf8'))",
    "kills its parent": "process.kill(process.ppid, 9)",
    "never ends": "while (true);",
    "claims success": "console.log('5 passing')",
}
C: Mapping[str, str] = {
    "does nothing": "int main(void) { return 0; }",
    "echoes its input": "#include <stdio.h>\nint main(void) { int c; while ((c = getchar()) >= 0) putchar(c); }",
    "kills its parent": "#include <signal.h>\n#include <unistd.h>\nint main(void) { kill(getppid(), 9); }",
    "never ends": "int main(void) { for (;;); }",
    "includes a device": '#include "/dev/zero"\nint main(void) { return 0; }',
    "includes the job": 'char *s =\n#include "job.txt"\n;\nint main(void) { return 0; }',
    "claims success": '#include <stdio.h>\nint main(void) { puts("OK"); }',
}
FORGED = {"bash": BASH, "python": PYTHON, "javascript": JAVASCRIPT, "c": C}


def probes(code: str, language: str) -> tuple[Probe, ...]:
    """The reference written in other ways, and programs that must not pass."""
    commented = f"{code}\n{_COMMENT[language]}" if language != "c" else f"{_COMMENT[language]}\n{code}"
    good = {
        "fenced": f"```{language}\n{code}\n```",
        "prose around": f"This does it:\n\n```\n{code}\n```\nBye.",
        "comments": f"```{language}\n{commented}\n```",
    }
    bad = {name: f"```{language}\n{text}\n```" for name, text in FORGED[language].items()}
    return (
        *(Probe(name=name, texts=(text,)) for name, text in good.items()),
        *(Probe(name=name, texts=(text,), wanted="no_accept") for name, text in bad.items()),
    )
