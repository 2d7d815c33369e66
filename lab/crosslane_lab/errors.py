"""The error that the lab raises for unusable input."""

from pathlib import Path


class LabError(Exception):
    """Unusable input, reported in one line; the command ends with exit code 2."""


def unreadable(what: Path | str, cause: str, remedy: str) -> LabError:
    """The message "while reading WHAT: CAUSE; REMEDY", on one line."""
    message = f"while reading {what}: {cause}; {remedy}"
    return LabError(" ".join(message.split()))


def first_line(error: Exception) -> str:
    """The first line of an error's message, without a full stop; of a system error without its number and file."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return (str(error).splitlines() or [type(error).__name__])[0].strip().rstrip(".")
