"""Runs the `crosslane` program."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

from crosslane_lab.errors import LabError


def run(program: Path | str, arguments: Sequence[str], activity: str, show_messages: bool = False) -> str:
    """The standard output of the program; raises `LabError` if it does not start or fails.

    With `show_messages` its progress and errors go to the user, else the last line of them is in the `LabError`.
    """
    stderr = None if show_messages else subprocess.PIPE
    try:
        done = subprocess.run(
            [str(program), *arguments], stdout=subprocess.PIPE, stderr=stderr, text=True, check=False
        )
    except OSError as error:
        cause = error.strerror or str(error)
        raise LabError(f"while starting {program}: {cause}; `make build`, or name it with --program") from error
    if done.returncode:
        lines = (done.stderr or "").strip().splitlines() or ["it failed; see its message above"]
        raise LabError(f"while {activity}: {lines[-1]}")
    return done.stdout
