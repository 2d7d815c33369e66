"""Figure 3: an under-utilised path: the baselines continue to wait after its signal has recovered."""

import numpy as np
import polars as pl
from matplotlib.figure import Figure

from crosslane_lab.coverage import recovery, usable
from crosslane_lab.figures.panels import Column, compare
from crosslane_lab.figures.path_throughput import COARSE_S, path_throughput
from crosslane_lab.render.markdown import number
from crosslane_lab.render.style import OCHRE, annotate_empty, path_colour
from crosslane_lab.runs.folder import Run, RunFolder
from crosslane_lab.runs.frame import representative

TITLE = "A path under-utilised after its recovery"


def skip_reason(folder: RunFolder) -> str | None:
    """The figure needs a path that recovered."""
    recovered = any(recovery(folder, representative(folder, s)) for s in _shown(folder))
    return None if recovered else "no path recovered in this drive"


def draw(folder: RunFolder) -> Figure:
    """Per baseline (without baselines: per strategy) the throughput and the idle time of the recovered path."""
    return compare(folder, {"throughput": 2.0}, _panel, strategies=_shown(folder))


def caption(folder: RunFolder) -> str:
    """How long the path was in coverage without data."""
    parts: list[str] = []
    for strategy in _shown(folder):
        run = representative(folder, strategy)
        change = recovery(folder, run)
        if change:
            covered, idle = idle_bins(folder, run, change.path)
            share = idle.sum() / max(1, covered.sum())
            parts.append(
                f"{number(float(idle.sum()) * COARSE_S, 's')} ({number(float(share), '%')}) with {strategy}"
            )
    return f"Shaded: the recovered path was in coverage and idle, for {', '.join(parts)}."


def idle_bins(folder: RunFolder, run: Run, path: str) -> tuple[np.ndarray, np.ndarray]:
    """Per bin of the traffic: whether the path was in coverage throughout, and whether it was idle then."""
    throughput = path_throughput(folder, run)
    index = (pl.col("t_s") / throughput.step_s).floor().cast(pl.Int64).alias("bin")
    bins = usable(folder, run, path).group_by(index).agg(pl.col("usable").all()).filter("usable")["bin"].to_numpy()
    covered = np.zeros(len(throughput.t_s), dtype=bool)
    covered[bins[bins < len(covered)]] = True
    covered[: throughput.traffic.start] = covered[throughput.traffic.stop :] = False
    return covered, covered & (throughput.mbit_s[path] == 0)


def _shown(folder: RunFolder) -> list[str]:
    return [s for s in folder.measured if s in folder.scenario.baselines] or folder.measured


def _panel(column: Column) -> None:
    axes, folder = column.axes["throughput"], column.folder
    if column.first:
        axes.set_ylabel("throughput (Mbit/s)")
    change = recovery(folder, column.run)
    if change is None:
        annotate_empty(axes, "no recovery in this run")
        return
    throughput = path_throughput(folder, column.run)
    t_s, mbit_s = throughput.edges(change.path)
    axes.fill_between(t_s, mbit_s, step="post", color=path_colour(folder, change.path), alpha=0.8, linewidth=0)
    _, idle = idle_bins(folder, column.run, change.path)
    for begin in throughput.t_s[idle]:
        axes.axvspan(begin, begin + throughput.step_s, color=OCHRE, alpha=0.3, linewidth=0)
    total = float(idle.sum()) * throughput.step_s
    axes.text(
        0.99,
        0.97,
        f"{change.path} idle for {number(total, 's')}",
        transform=axes.transAxes,
        ha="right",
        va="top",
        fontsize=9,
        fontweight="bold",
    )
    axes.set_ylim(0, max(axes.get_ylim()[1] * 1.25, 0.1))
