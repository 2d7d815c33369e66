"""Figure 10: throughput of a recovered path, and how long it lay idle after its signal was back."""

import polars as pl
from matplotlib.figure import Figure

from crosslane_lab.coverage import Change, recovery
from crosslane_lab.figures.carried import FINE_S, carried
from crosslane_lab.figures.panels import Column, Window, compare
from crosslane_lab.figures.style import INK, OCHRE, path_colour, say_nothing_here
from crosslane_lab.metrics import number, representative
from crosslane_lab.run import Run, RunFolder

TITLE = "The recovered path"

_BEFORE_S, _AFTER_S = 2.0, 8.0


def why_not(folder: RunFolder) -> str | None:
    """Nothing to show where no path came back within reach."""
    back = any(recovery(folder, representative(folder, s)) for s in folder.measured)
    return None if back else "no path came back within reach in this drive"


def draw(folder: RunFolder) -> Figure:
    """One panel per strategy: throughput of the path from two seconds before its recovery on."""
    return compare(folder, {"recovered": 2.1}, _panel, _windows(folder))


def caption(folder: RunFolder) -> str:
    """The idle time of each strategy."""
    told: list[str] = []
    for strategy in folder.measured:
        run = representative(folder, strategy)
        change = recovery(folder, run)
        if change:
            idle = idle_s(folder, run, change)
            told.append(f"{strategy} {'never used it' if idle is None else number(idle * 1e3, 'ms')}")
    return (
        f"From the return of the mean signal to the first data on the path (shaded): {', '.join(told)}. "
        "The table's recovery_ms counts from the first sample received above the threshold instead."
    )


def idle_s(folder: RunFolder, run: Run, change: Change) -> float | None:
    """From a path's return to its first delivered data packet (s); None where there was none."""
    mine = (pl.col("path") == change.path) & (pl.col("direction") == folder.scenario.direction)
    data = mine & (pl.col("payload_bytes") > 0) & pl.col("delivered_ns").is_not_null()
    after = data & (pl.col("t_ns") >= int(change.t_s * 1e9))
    first = run.packets.filter(after).select(pl.col("t_ns").min()).collect().item()
    return None if first is None else first / 1e9 - change.t_s


def _windows(folder: RunFolder) -> dict[str, Window]:
    at = {s: recovery(folder, representative(folder, s)) for s in folder.measured}
    known = [change.t_s for change in at.values() if change]
    times = {s: change.t_s if change else min(known) for s, change in at.items()}
    return {s: (t - _BEFORE_S, min(t + _AFTER_S, folder.duration_s)) for s, t in times.items()}


def _panel(column: Column) -> None:
    axes, folder = column.axes["recovered"], column.folder
    if column.first:
        axes.set_ylabel("throughput (Mbit/s)")
    change = recovery(folder, column.run)
    if change is None:
        say_nothing_here(axes, "no recovery in this run")
        return
    over = carried(folder, column.run, FINE_S)
    t_s, mbit_s = over.edges(change.path)
    inside = (t_s >= column.window[0]) & (t_s <= column.window[1])
    axes.fill_between(t_s, mbit_s, step="post", color=path_colour(folder, change.path), alpha=0.8, linewidth=0)
    axes.set_ylim(0, max(float(mbit_s[inside].max(initial=0.0)), 0.1) * 1.3)
    idle = idle_s(folder, column.run, change)
    end = min(column.window[1], change.t_s + idle) if idle is not None else column.window[1]
    axes.axvspan(change.t_s, end, color=OCHRE, alpha=0.22, linewidth=0)
    note = f"{change.path} never used again" if idle is None else f"idle for {number(idle * 1e3, 'ms')}"
    axes.annotate(
        note,
        (change.t_s, 0.96),
        xycoords=("data", "axes fraction"),
        xytext=(4, 0),
        textcoords="offset points",
        va="top",
        color=INK,
        fontsize=9,
        fontweight="bold",
    )
