"""What a task of kind `repository` holds."""

from __future__ import annotations

from tiltyard.verifier.kinds.base import Part


class Data(Part, frozen=True):
    """`verification.data`."""

    tests: dict[str, str]
    """Hidden test files: path to source. Functions `test_*`, with plain `assert`; `pytest.raises`, `pytest.approx` and
    `pytest.mark.parametrize` are there."""
    packages: tuple[str, ...]
    """Modules and packages of the workspace's root that the tests import; everything in them runs elsewhere."""
    fail_to_pass: tuple[str, ...]
    """Ids 'path::test' or 'path::test[case]' that fail at the start and must pass."""
    pass_to_pass: tuple[str, ...] = ()
    """Ids that pass at the start and must still."""

    def __post_init__(self) -> None:
        if not self.fail_to_pass or not self.packages:
            raise ValueError("fail_to_pass and packages must not be empty")
        if set(self.fail_to_pass) & set(self.pass_to_pass):
            raise ValueError("a test is either in fail_to_pass or in pass_to_pass")
        if any(test.partition("::")[0] not in self.tests for test in (*self.fail_to_pass, *self.pass_to_pass)):
            raise ValueError("an id names a file that isn't among the tests")


class Options(Part, frozen=True):
    """`verification.options`."""

    partial: float = 0.0
    """Credit for all of fail_to_pass, shared out over them, paid only when pass_to_pass still passes."""
    protected: tuple[str, ...] = ()
    """Files of the start that must be left as they were."""
