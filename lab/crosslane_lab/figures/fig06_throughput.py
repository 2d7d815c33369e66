"""Figure 6: throughput per path, stacked to the total."""

import numpy as np
import polars as pl
from matplotlib.figure import Figure

from crosslane_lab.figures.panels import Column, compare
from crosslane_lab.figures.style import INK, path_colour, say_nothing_here
from crosslane_lab.metrics import number, representative
from crosslane_lab.run import Run, RunFolder

TITLE = "Throughput per path and in total"

BIN_NS = 500_000_000
"""Width over which the 100 ms records are averaged: one RTT of queueing does not look like an outage."""


def why_not(folder: RunFolder) -> str | None:
    """Nothing to show where no link delivered anything."""
    some = any(binned(folder, representative(folder, s)).height for s in folder.measured)
    return None if some else "no link delivered any payload"


def draw(folder: RunFolder) -> Figure:
    """One panel per strategy: the paths' throughput stacked, the upper edge is the total."""
    return compare(folder, {"rate": 2.3}, _panel)


def caption(folder: RunFolder) -> str:
    """How much each path carried."""
    told = [f"{s}: {_shares(folder, representative(folder, s))}" for s in folder.measured]
    return f"Payload delivered per path in each 0.5 s, stacked; the line is the total. Carried by {'; by '.join(told)}."


def binned(folder: RunFolder, run: Run) -> pl.DataFrame:
    """`t_s` (middle of a bin), `path`, `mbit_s` of payload delivered in the traffic's direction."""
    rate = (pl.col("payload_bytes").sum() * 8e3 / BIN_NS).alias("mbit_s")
    middle = ((pl.col("t_ns") // BIN_NS + 0.5) * (BIN_NS / 1e9)).alias("t_s")
    mine = run.throughput.filter(pl.col("direction") == folder.scenario.direction)
    return mine.group_by(middle, "path").agg(rate).sort("t_s", "path").collect()


def _shares(folder: RunFolder, run: Run) -> str:
    sums = binned(folder, run).group_by("path").agg(pl.col("mbit_s").sum())
    by_path = dict(sums.iter_rows())
    total = sum(by_path.values())
    return ", ".join(f"{p} {number(by_path.get(p, 0.0) / total, '%')}" for p in folder.scenario.paths) if total else "none"


def _panel(column: Column) -> None:
    axes, folder = column.axes["rate"], column.folder
    if column.first:
        axes.set_ylabel("throughput (Mbit/s)")
    frame = binned(folder, column.run)
    if not frame.height:
        say_nothing_here(axes, "no payload delivered")
        return
    step_s = BIN_NS / 1e9
    t_s = np.arange(step_s / 2, folder.duration_s, step_s)
    floor = np.zeros_like(t_s)
    for path in folder.scenario.paths:
        mine = frame.filter(pl.col("path") == path)
        bins = np.rint(mine["t_s"].to_numpy() / step_s - 0.5).astype(int)
        inside = bins < len(t_s)
        carried = np.zeros_like(t_s)
        carried[bins[inside]] = mine["mbit_s"].to_numpy()[inside]
        axes.fill_between(t_s, floor, floor + carried, step="mid", color=path_colour(folder, path), alpha=0.8, lw=0)
        _name(column, path, t_s, floor, carried)
        floor = floor + carried
    axes.step(t_s, floor, where="mid", color=INK, linewidth=0.9)
    axes.set_ylim(0, max(float(floor.max()) * 1.12, 0.1))


def _name(column: Column, path: str, t_s: np.ndarray, floor: np.ndarray, carried: np.ndarray) -> None:
    """The path's name where it carries most over a while, in the middle of its area."""
    window = min(len(t_s), 9)
    smooth = np.convolve(carried, np.ones(window) / window, mode="same")
    smooth[: window // 2 + 1] = 0
    smooth[-window // 2 :] = 0
    best = int(smooth.argmax())
    if smooth[best] > 0.12 * float((floor + carried).max()):
        column.axes["rate"].text(t_s[best], floor[best] + carried[best] / 2, path, color="white", fontsize=8,
                                 fontweight="bold", ha="center", va="center", clip_on=True)  # fmt: skip
