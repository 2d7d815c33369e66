"""The error that the lab raises for unusable input."""

from pathlib import Path


class LabError(Exception):
    """Unusable input, reported in one line; the command ends with exit code 2."""


def unreadable(what: Path | str, cause: str, remedy: str) -> LabError:
    """The message "while reading WHAT: CAUSE; REMEDY", on one line."""
    message = f"while reading {what}: {cause}; {remedy}"
    return LabError(" ".join(message.split()))
