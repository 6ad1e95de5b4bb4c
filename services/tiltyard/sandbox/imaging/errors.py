"""Why an image can't be built."""

from __future__ import annotations

from tiltyard.sandbox.backend import SandboxError


class BuildFailed(SandboxError):
    """An image could not be built; the message names the package, address or file, and how to mend it."""
