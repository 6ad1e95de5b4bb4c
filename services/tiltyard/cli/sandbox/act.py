"""`tiltyard sandbox exec` and `reap`."""

from __future__ import annotations

import sys
from argparse import Namespace

import anyio
import msgspec

from tiltyard.cli.errors import UserError
from tiltyard.sandbox.cgroups import CgroupError, Tree
from tiltyard.sandbox.control import ControlError, Exec, Ran, Reap, Reaped, doors
from tiltyard.sandbox.images import home_of
from tiltyard.sandbox.instance import reconcile
from tiltyard_proto.messages import Command, ExecLimits, Execution
from tiltyard_proto.outcomes import Outcome

from .services import ask_all, ask_for, places, settings_of

FAILED = 125
"""Status when the command did not come to its own end, as of `timeout` and `docker run`."""


def exec_main(arguments: Namespace) -> int:
    """Run a command; its output, and its exit status."""
    limits = ExecLimits(wall_s=arguments.wall, cpu_s=arguments.wall, output_bytes=1 << 20)
    words = tuple(arguments.words[1:] if arguments.words[:1] == ["--"] else arguments.words)
    if not words:
        raise UserError("name the command to run: tiltyard sandbox exec [--profile NAME | --session ID] -- COMMAND")
    stdin = b"" if sys.stdin.isatty() or not arguments.stdin else sys.stdin.buffer.read()
    command = Command(argv=words, stdin=stdin, limits=limits)
    request = Exec(command=command, profile=arguments.profile, sandbox=arguments.session)
    answer = anyio.run(ask_for, places(arguments), request)
    assert isinstance(answer, Ran)
    if arguments.json:
        sys.stdout.write(msgspec.json.encode(answer).decode() + "\n")
    else:
        _show(answer.execution)
    return _status(answer.execution)


def _show(found: Execution) -> None:
    sys.stdout.buffer.write(found.stdout)
    sys.stdout.buffer.flush()
    sys.stderr.buffer.write(found.stderr)
    if dropped := found.stdout_dropped + found.stderr_dropped:
        print(f"[{dropped} bytes of output left out]", file=sys.stderr)
    if found.outcome not in (Outcome.FINISHED, Outcome.NONZERO_EXIT):
        print(f"[{found.outcome.value}: {found.detail}]", file=sys.stderr)
    sys.stderr.flush()


def _status(found: Execution) -> int:
    if found.exit_code is not None:
        return found.exit_code
    return FAILED if found.signal is None else 128 + found.signal


def reap_main(arguments: Namespace) -> int:
    """Remove what dead services left and what living ones have lost; 1 when something stays."""
    home = home_of(settings_of(arguments))
    try:
        dead = reconcile(home, Tree.find())
    except (OSError, CgroupError) as error:
        raise UserError(f"{error}; run as the user that runs the service (root)") from error
    answers = anyio.run(ask_all, doors(home), Reap())
    reaped = [answer for answer in answers if isinstance(answer, Reaped)]
    problems = [str(answer) for answer in answers if isinstance(answer, ControlError)]
    leaked = sum(answer.leaked for answer in reaped)
    if arguments.json:
        sys.stdout.write(msgspec.json.encode({"dead": dead, "services": reaped, "problems": problems}).decode() + "\n")
    else:
        print(f"dead services: {dead} sandboxes removed")
        for answer in reaped:
            said = f"{answer.strays} strays removed, {answer.overdue} overdue ended, {answer.leaked} leaked so far"
            print(f"service {answer.instance}: {said}")
        for problem in problems:
            print(problem, file=sys.stderr)
    return 1 if leaked or problems else 0
