"""Figure 10: throughput of a recovered path, and its idle time after its signal has recovered."""

import polars as pl
from matplotlib.figure import Figure

from crosslane_lab.coverage import Change, recovery
from crosslane_lab.figures.panels import Column, Window, compare
from crosslane_lab.figures.path_throughput import FINE_S, path_throughput
from crosslane_lab.render.markdown import number
from crosslane_lab.render.style import INK, OCHRE, annotate_empty, path_colour
from crosslane_lab.runs.folder import Run, RunFolder
from crosslane_lab.runs.frame import representative

TITLE = "The recovered path"

_BEFORE_S, _AFTER_S = 2.0, 8.0


def skip_reason(folder: RunFolder) -> str | None:
    """The figure needs a path that recovered."""
    recovered = any(recovery(folder, representative(folder, s)) for s in folder.measured)
    return None if recovered else "no path recovered in this drive"


def draw(folder: RunFolder) -> Figure:
    """One panel per strategy: throughput of the path from 2 s before its recovery."""
    return compare(folder, {"recovered": 2.1}, _panel, _windows(folder))


def caption(folder: RunFolder) -> str:
    """The idle time of each strategy."""
    parts: list[str] = []
    for strategy in folder.measured:
        run = representative(folder, strategy)
        change = recovery(folder, run)
        if change:
            idle = idle_s(folder, run, change)
            parts.append(f"{strategy} {'never' if idle is None else number(idle * 1e3, 'ms')}")
    return (
        f"Time from the recovery of the mean signal to the first data on the path (shaded): {', '.join(parts)}. "
        "The table's recovery_ms counts from the first sample received above the threshold instead."
    )


def idle_s(folder: RunFolder, run: Run, change: Change) -> float | None:
    """Time from a path's recovery to its first delivered data packet (s); None if there was none."""
    of_path = (pl.col("path") == change.path) & (pl.col("direction") == folder.scenario.direction)
    data = of_path & (pl.col("payload_bytes") > 0) & pl.col("delivered_ns").is_not_null()
    after = data & (pl.col("t_ns") >= int(change.t_s * 1e9))
    first = run.packets.filter(after).select(pl.col("t_ns").min()).collect().item()
    return None if first is None else first / 1e9 - change.t_s


def _windows(folder: RunFolder) -> dict[str, Window]:
    found = {s: recovery(folder, representative(folder, s)) for s in folder.measured}
    known = [change.t_s for change in found.values() if change]
    times = {s: change.t_s if change else min(known) for s, change in found.items()}
    return {s: (t - _BEFORE_S, min(t + _AFTER_S, folder.duration_s)) for s, t in times.items()}


def _panel(column: Column) -> None:
    axes, folder = column.axes["recovered"], column.folder
    if column.first:
        axes.set_ylabel("throughput (Mbit/s)")
    change = recovery(folder, column.run)
    if change is None:
        annotate_empty(axes, "no recovery in this run")
        return
    throughput = path_throughput(folder, column.run, FINE_S)
    t_s, mbit_s = throughput.edges(change.path)
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
