"""The error that a command ends with when the user can mend something."""

from __future__ import annotations


class UserError(Exception):
    """The user's mistake or a missing prerequisite: one line that says what is wrong and how to mend it."""
