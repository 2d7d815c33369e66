"""Reports the current step on standard error, from two seconds after the start."""

import sys
import time
from typing import TextIO

QUIET_S = 2.0


class Progress:
    """One line per step, rewritten in place on a terminal; no output in the first two seconds."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = sys.stderr if out is None else out
        self._started = time.monotonic()
        self._shown = False

    def __call__(self, step: str) -> None:
        """Report a step."""
        if time.monotonic() - self._started < QUIET_S:
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
