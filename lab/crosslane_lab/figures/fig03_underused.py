"""Figure 3: a path under-utilised: the baselines go on waiting after its signal is back."""

import numpy as np
import polars as pl
from matplotlib.figure import Figure

from crosslane_lab.coverage import recovery, usable
from crosslane_lab.figures.fig06_throughput import BIN_NS, binned
from crosslane_lab.figures.panels import Column, compare
from crosslane_lab.figures.style import OCHRE, path_colour, say_nothing_here
from crosslane_lab.metrics import number, representative
from crosslane_lab.run import Run, RunFolder

TITLE = "A path under-utilised after its recovery"


def why_not(folder: RunFolder) -> str | None:
    """Nothing to show where no path came back within reach."""
    back = any(recovery(folder, representative(folder, s)) for s in _shown(folder))
    return None if back else "no path came back within reach in this drive"


def draw(folder: RunFolder) -> Figure:
    """Each baseline (every strategy, where there is none): what the recovered path carried, and its idle time."""
    return compare(folder, {"carried": 2.0}, _panel, strategies=_shown(folder))


def caption(folder: RunFolder) -> str:
    """For how long the path was within reach and carried nothing."""
    told: list[str] = []
    for strategy in _shown(folder):
        run = representative(folder, strategy)
        change = recovery(folder, run)
        if change:
            within, idle = idle_bins(folder, run, change.path)
            share = idle.sum() / max(1, within.sum())
            told.append(f"{number(float(idle.sum()) * BIN_NS / 1e9, 's')} ({number(float(share), '%')}) with {strategy}")
    return f"Shaded: the path that came back was within reach and carried nothing, for {', '.join(told)}."


def idle_bins(folder: RunFolder, run: Run, path: str) -> tuple[np.ndarray, np.ndarray]:
    """Per half second: was the path within reach throughout, and did it then carry nothing."""
    bins = int(folder.duration_s * 1e9 / BIN_NS)
    reach = usable(folder, run, path).group_by((pl.col("t_s") * 1e9 // BIN_NS).cast(pl.Int64).alias("bin"))
    whole = reach.agg(pl.col("usable").all()).filter("usable")["bin"].to_numpy()
    carried = binned(folder, run).filter((pl.col("path") == path) & (pl.col("mbit_s") > 0))["t_s"].to_numpy()
    within, busy = np.zeros(bins, dtype=bool), np.zeros(bins, dtype=bool)
    within[whole[whole < bins]] = True
    used = (carried * 1e9 / BIN_NS).astype(int)
    busy[used[used < bins]] = True
    active = np.flatnonzero(binned_any(folder, run, bins))
    if active.size:
        within[: active[0]] = False
        within[active[-1] + 1 :] = False
    return within, within & ~busy


def binned_any(folder: RunFolder, run: Run, bins: int) -> np.ndarray:
    """Per half second, whether anything was carried at all: before and after the traffic nothing is idle."""
    some = np.zeros(bins, dtype=bool)
    at = (binned(folder, run).filter(pl.col("mbit_s") > 0)["t_s"].to_numpy() * 1e9 / BIN_NS).astype(int)
    some[at[at < bins]] = True
    return some


def _shown(folder: RunFolder) -> list[str]:
    return [s for s in folder.measured if folder.scenario.is_baseline(s)] or folder.measured


def _panel(column: Column) -> None:
    axes, folder = column.axes["carried"], column.folder
    if column.first:
        axes.set_ylabel("throughput (Mbit/s)")
    change = recovery(folder, column.run)
    if change is None:
        say_nothing_here(axes, "no recovery in this run")
        return
    colour = path_colour(folder, change.path)
    mine = binned(folder, column.run).filter(pl.col("path") == change.path)
    axes.fill_between(mine["t_s"], mine["mbit_s"], step="mid", color=colour, alpha=0.8, lw=0)
    _, idle = idle_bins(folder, column.run, change.path)
    step_s = BIN_NS / 1e9
    for place in np.flatnonzero(idle):
        axes.axvspan(place * step_s, (place + 1) * step_s, color=OCHRE, alpha=0.3, lw=0)
    total = float(idle.sum()) * step_s
    axes.text(0.99, 0.97, f"{change.path} idle for {number(total, 's')}", transform=axes.transAxes, ha="right",
              va="top", fontsize=9, fontweight="bold")  # fmt: skip
    axes.set_ylim(0, max(axes.get_ylim()[1] * 1.25, 0.1))
