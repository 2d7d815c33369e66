"""The one error that the lab raises for input it cannot use."""

from pathlib import Path


class LabError(Exception):
    """Input that cannot be used, told in one sentence; the command ends with exit code 2."""


def unreadable(what: Path | str, cause: str, remedy: str) -> LabError:
    """The sentence "while reading WHAT: CAUSE; REMEDY", on one line."""
    sentence = f"while reading {what}: {cause}; {remedy}"
    return LabError(" ".join(sentence.split()))
