"""Says on standard error what is being worked on, once it takes longer than two seconds."""

import sys
import time
from typing import TextIO

QUIET_S = 2.0


class Progress:
    """One line per step on a terminal rewritten in place; silent for the first two seconds."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = sys.stderr if out is None else out
        self._began = time.monotonic()
        self._shown = False

    def __call__(self, step: str) -> None:
        """Note a step."""
        if time.monotonic() - self._began < QUIET_S:
            return
        start, end = ("\r\x1b[K", "") if self._out.isatty() else ("", "\n")
        self._out.write(f"{start}{step} …{end}")
        self._out.flush()
        self._shown = True

    def done(self) -> None:
        """Clear the line."""
        if self._shown and self._out.isatty():
            self._out.write("\r\x1b[K")
            self._out.flush()
