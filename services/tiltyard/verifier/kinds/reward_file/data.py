"""What a task of kind `reward_file` holds."""

from __future__ import annotations

from tiltyard.verifier.kinds.base import Part


class Data(Part, frozen=True):
    """`verification.data`."""

    files: dict[str, str]
    """The verifier's own, relative to its directory, which is TESTS_DIR."""
    command: tuple[str, ...] = ("bash", "test.sh")
    """Run in the workspace; the first argument that names one of `files` gets the directory in front."""
    key: str = "reward"
    """Of reward.json: the score. Without it all values are added up."""

    def __post_init__(self) -> None:
        if not self.files or not self.command:
            raise ValueError("files and command must not be empty")
