"""What each path carried over time, in bins without holes: a bin in which nothing arrived is a zero."""

from dataclasses import dataclass

import numpy as np
import polars as pl

from crosslane_lab.run import Run, RunFolder

COARSE_S = 0.5
"""Wide enough that one RTT of queueing does not look like an outage."""
FINE_S = 0.1
"""The records' own step."""


@dataclass(frozen=True)
class Carried:
    """Payload delivered in the traffic's direction: per bin that begins at `t_s`, Mbit/s for each path."""

    t_s: np.ndarray
    step_s: float
    mbit_s: dict[str, np.ndarray]

    @property
    def total(self) -> np.ndarray:
        """Over all paths (Mbit/s)."""
        return np.sum(list(self.mbit_s.values()), axis=0) if self.mbit_s else np.zeros_like(self.t_s)

    @property
    def traffic(self) -> slice:
        """The bins from the first to the last that carried anything: outside of them nothing is idle."""
        busy = np.flatnonzero(self.total)
        return slice(int(busy[0]), int(busy[-1]) + 1) if busy.size else slice(0, 0)

    def edges(self, path: str) -> tuple[np.ndarray, np.ndarray]:
        """The outline of a path's bins, for drawing with `step="post"`."""
        heights = self.mbit_s[path]
        return np.append(self.t_s, self.t_s[-1] + self.step_s), np.append(heights, heights[-1])


def carried(folder: RunFolder, run: Run, step_s: float = COARSE_S) -> Carried:
    """What each path of the scenario carried in a run."""
    count = max(1, round(folder.duration_s / step_s))
    place = (pl.col("t_ns") / 1e9 / step_s + 1e-6).floor().cast(pl.Int64).alias("bin")
    mine = run.throughput.filter(pl.col("direction") == folder.scenario.direction)
    sums = mine.group_by(place, "path").agg(pl.col("payload_bytes").sum()).filter(pl.col("bin") < count).collect()
    mbit_s = {path: np.zeros(count) for path in folder.scenario.paths}
    for at, path, size in sums.iter_rows():
        if path in mbit_s:
            mbit_s[path][at] = size * 8e-6 / step_s
    return Carried(np.arange(count) * step_s, step_s, mbit_s)
