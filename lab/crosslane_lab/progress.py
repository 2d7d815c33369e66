"""Reports the current step on standard error, from two seconds after the start."""

import sys
import threading
import time
from typing import TextIO

QUIET_S = 2.0


class Progress:
    """One line per step, rewritten in place on a terminal; no output in the first two seconds.

    A step that began in these and still runs is reported when they are over.
    """

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = sys.stderr if out is None else out
        self._started = time.monotonic()
        self._shown = False
        self._first: threading.Timer | None = None
        self._lock = threading.Lock()

    def __call__(self, step: str) -> None:
        """Report a step."""
        with self._lock:
            self._forget_first()
            remaining_s = self._started + QUIET_S - time.monotonic()
            if remaining_s <= 0:
                self._show(step)
                return
            self._first = threading.Timer(min(remaining_s, threading.TIMEOUT_MAX), self._show_first, [step])
            self._first.daemon = True
            self._first.start()

    def done(self) -> None:
        """Clear the line."""
        with self._lock:
            self._forget_first()
            if self._shown and self._out.isatty():
                self._out.write("\r\x1b[K")
                self._out.flush()

    def _forget_first(self) -> None:
        if self._first is not None:
            self._first.cancel()
            self._first = None

    def _show_first(self, step: str) -> None:
        with self._lock:
            if threading.current_thread() is self._first:
                self._show(step)

    def _show(self, step: str) -> None:
        start, end = ("\r\x1b[K", "") if self._out.isatty() else ("", "\n")
        self._out.write(f"{start}{step} …{end}")
        self._out.flush()
        self._shown = True
