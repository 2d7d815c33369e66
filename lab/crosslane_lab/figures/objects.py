"""Objects with deadlines: when each was there, and over which path its bytes went.

After figures 6.1 to 6.14 of Nota 2020.
"""

import numpy as np
import polars as pl
from matplotlib.figure import Figure

from crosslane_lab.figures.carried import carried
from crosslane_lab.figures.panels import Column, compare
from crosslane_lab.figures.style import INK, MUTED, RED, path_colour, say_nothing_here
from crosslane_lab.metrics import number, representative
from crosslane_lab.run import Run, RunFolder

TITLE = "Objects and their deadlines"


def why_not(folder: RunFolder) -> str | None:
    """Nothing to show of traffic without deadlines."""
    return "the traffic has no deadlines" if folder.scenario.deadline_s is None else None


def draw(folder: RunFolder) -> Figure:
    """Above when each object was there, counted from its coming up; beneath the bytes of its time, by path."""
    return compare(folder, {"there": 1.6, "bytes": 1.4}, _panel)


def caption(folder: RunFolder) -> str:
    """How many objects were in time."""
    deadline_s = folder.scenario.deadline_s or 0.0
    told: list[str] = []
    for strategy in folder.measured:
        _, took_s = _objects(representative(folder, strategy))
        in_time = int((took_s <= deadline_s).sum())
        told.append(f"{in_time} of {took_s.size} with {strategy}")
    line = f"dots on or below the line at {number(deadline_s, 's')}; × late or never"
    beneath = "Beneath, what was carried between each object and the next, by path."
    return f"Of the objects in time ({line}) were {', '.join(told)}. {beneath}"


def _objects(run: Run) -> tuple[np.ndarray, np.ndarray]:
    """When each object came up and how long until its last byte was read, in s; infinite if never."""
    columns = (pl.col("sent_ns") / 1e9).alias("start_s"), ((pl.col("received_ns") - pl.col("sent_ns")) / 1e9)
    frame = run.messages.select(columns[0], columns[1].alias("took_s").fill_null(float("inf"))).collect()
    return frame["start_s"].to_numpy(), frame["took_s"].to_numpy()


def _panel(column: Column) -> None:
    there, bytes_ = column.axes["there"], column.axes["bytes"]
    deadline_s = column.folder.scenario.deadline_s or 0.0
    start_s, took_s = _objects(column.run)
    if column.first:
        there.set_ylabel("there after (s)")
        bytes_.set_ylabel("carried (MB)")
    if not start_s.size:
        say_nothing_here(there, "no object came up")
        return
    there.axhline(deadline_s, color=MUTED, linewidth=0.9, linestyle="--")
    met = took_s <= deadline_s
    there.plot(start_s[met], took_s[met], "o", color=INK, markersize=4, mew=0)
    late = np.minimum(took_s[~met], 1.15 * deadline_s)
    there.plot(start_s[~met], late, "x", color=RED, markersize=5)
    there.set_ylim(0, 1.25 * deadline_s)
    _bytes(column, start_s)


def _bytes(column: Column, start_s: np.ndarray) -> None:
    """Stacked bars: what each path delivered from one object's beginning to the next's."""
    over = carried(column.folder, column.run)
    edges = np.append(start_s, column.folder.duration_s)
    floor = np.zeros(start_s.size)
    for path, mbit_s in over.mbit_s.items():
        bins = np.digitize(over.t_s, edges) - 1
        within = (bins >= 0) & (bins < start_s.size)
        mbit = np.bincount(bins[within], weights=mbit_s[within] * over.step_s, minlength=start_s.size)
        width = np.minimum(np.diff(edges), np.diff(edges).min()) * 0.85
        colour = path_colour(column.folder, path)
        column.axes["bytes"].bar(start_s, mbit / 8, width, floor, align="edge", color=colour, label=path, alpha=0.8)
        floor = floor + mbit / 8
    if column.first:
        column.axes["bytes"].legend(loc="upper left", fontsize=7.5, frameon=False, ncols=2)
    column.axes["bytes"].set_ylim(0, 1.35 * max(float(floor.max()), 1e-3))
