"""Figure 3: a path under-utilised: the baselines go on waiting after its signal is back."""

import numpy as np
import polars as pl
from matplotlib.figure import Figure

from crosslane_lab.coverage import recovery, usable
from crosslane_lab.figures.carried import COARSE_S, carried
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
    """Per baseline (per strategy, without one): what the recovered path carried, and its idle time."""
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
            told.append(
                f"{number(float(idle.sum()) * COARSE_S, 's')} ({number(float(share), '%')}) with {strategy}"
            )
    return f"Shaded: the path that came back was within reach and carried nothing, for {', '.join(told)}."


def idle_bins(folder: RunFolder, run: Run, path: str) -> tuple[np.ndarray, np.ndarray]:
    """Per half second of the traffic: was the path within reach throughout, and did it then carry nothing."""
    over = carried(folder, run)
    place = (pl.col("t_s") / over.step_s).floor().cast(pl.Int64).alias("bin")
    reach = usable(folder, run, path).group_by(place).agg(pl.col("usable").all()).filter("usable")["bin"].to_numpy()
    within = np.zeros(len(over.t_s), dtype=bool)
    within[reach[reach < len(within)]] = True
    within[: over.traffic.start] = within[over.traffic.stop :] = False
    return within, within & (over.mbit_s[path] == 0)


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
    over = carried(folder, column.run)
    t_s, mbit_s = over.edges(change.path)
    axes.fill_between(t_s, mbit_s, step="post", color=path_colour(folder, change.path), alpha=0.8, linewidth=0)
    _, idle = idle_bins(folder, column.run, change.path)
    for begin in over.t_s[idle]:
        axes.axvspan(begin, begin + over.step_s, color=OCHRE, alpha=0.3, linewidth=0)
    total = float(idle.sum()) * over.step_s
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
