"""`tiltyard sandbox doctor`: judge a runsc by what it does, and say how to get a good one."""

from __future__ import annotations

import sys
from argparse import Namespace

import anyio
import msgspec

from tiltyard.cli.main import source_of
from tiltyard.kit.settings import section
from tiltyard.sandbox.doctor import doctor, passed, render
from tiltyard.sandbox.settings import SandboxSettings


def doctor_main(arguments: Namespace) -> int:
    """Print the findings; 0 when the sandbox holds, 1 when it doesn't."""
    settings = section(source_of(arguments), "sandbox", SandboxSettings)
    chosen = {"runsc": str(arguments.runsc or ""), "platform": arguments.platform}
    settings = msgspec.convert(
        {**msgspec.to_builtins(settings), **{key: value for key, value in chosen.items() if value}}, SandboxSettings
    )
    checks = anyio.run(doctor, settings, arguments.profile, backend_options={"use_uvloop": True})
    if arguments.json:
        sys.stdout.write(msgspec.json.encode(checks).decode() + "\n")
    else:
        sys.stdout.write("".join(render(check) + "\n" for check in checks))
    return 0 if passed(checks) else 1
