"""Throughput of each path over time, in bins of equal width; a bin without data is zero."""

from dataclasses import dataclass

import numpy as np
import polars as pl

from crosslane_lab.runs.folder import Run, RunFolder

COARSE_S = 0.5
"""Wide enough that one RTT of queueing does not look like an outage."""
FINE_S = 0.1
"""The step of the records."""


@dataclass(frozen=True)
class PathThroughput:
    """Payload delivered in the direction of the traffic: Mbit/s for each path, in bins that begin at `t_s`.

    Of a wire, which the kernel shapes and counts: IP packets with their headers.
    """

    t_s: np.ndarray
    step_s: float
    mbit_s: dict[str, np.ndarray]

    @property
    def total(self) -> np.ndarray:
        """Sum over all paths (Mbit/s)."""
        return np.sum(list(self.mbit_s.values()), axis=0) if self.mbit_s else np.zeros_like(self.t_s)

    @property
    def traffic(self) -> slice:
        """The bins from the first to the last with data; bins outside are not idle."""
        active = np.flatnonzero(self.total)
        return slice(int(active[0]), int(active[-1]) + 1) if active.size else slice(0, 0)

    def edges(self, path: str) -> tuple[np.ndarray, np.ndarray]:
        """The outline of a path's bins, for drawing with `step="post"`."""
        heights = self.mbit_s[path]
        return np.append(self.t_s, self.t_s[-1] + self.step_s), np.append(heights, heights[-1])


def path_throughput(folder: RunFolder, run: Run, step_s: float = COARSE_S) -> PathThroughput:
    """The throughput of each path of the scenario in a run."""
    count = max(1, round(folder.duration_s / step_s))
    index = (pl.col("t_ns") / 1e9 / step_s + 1e-6).floor().cast(pl.Int64).alias("bin")
    counted = pl.col("path").is_in(folder.scenario.wires)
    size = pl.when(counted).then("ip_bytes").otherwise("payload_bytes").alias("size")
    rows = run.throughput.filter(pl.col("direction") == folder.scenario.direction)
    sums = rows.group_by(index, "path").agg(size.sum()).filter(pl.col("bin") < count).collect()
    mbit_s = {path: np.zeros(count) for path in folder.scenario.paths}
    for at, path, size in sums.iter_rows():
        if path in mbit_s:
            mbit_s[path][at] = size * 8e-6 / step_s
    return PathThroughput(np.arange(count) * step_s, step_s, mbit_s)
