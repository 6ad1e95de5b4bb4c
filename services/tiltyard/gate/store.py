"""Reports that were made before, by the content they hold for.

Invariant: a report is read only for exactly the definition, generator, kind and gate that it was made with.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import msgspec

from .report import Report


class Store:
    """Reports under `folder`, a file for each digest."""

    def __init__(self, folder: Path | None = None) -> None:
        home = Path(os.environ.get("TILTYARD_HOME") or "~/.cache/tiltyard").expanduser()
        self.folder = folder or home / "gate"

    def get(self, digest: str) -> Report | None:
        """The report for this content; None when there is none that can be read."""
        try:
            return msgspec.json.decode((self.folder / f"{digest}.json").read_bytes(), type=Report)
        except (OSError, msgspec.MsgspecError):
            return None

    def put(self, report: Report) -> None:
        """Keep a report, whole or not at all."""
        self.folder.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=self.folder, prefix=".put-")
        with os.fdopen(handle, "wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(report), indent=1))
        os.replace(temporary, self.folder / f"{report.digest}.json")
