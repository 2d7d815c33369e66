"""Objects with deadlines: completion time of each, and the path of its bytes.

After figures 6.1 to 6.14 of Nota 2020.
"""

import numpy as np
import polars as pl
from matplotlib.figure import Figure

from crosslane_lab.figures.panels import Column, compare
from crosslane_lab.figures.path_throughput import FINE_S, path_throughput
from crosslane_lab.render.markdown import number
from crosslane_lab.render.style import INK, MUTED, RED, annotate_empty, path_colour
from crosslane_lab.runs.folder import Run, RunFolder
from crosslane_lab.runs.frame import representative

TITLE = "Objects and their deadlines"


def skip_reason(folder: RunFolder) -> str | None:
    """The figure needs traffic with deadlines."""
    return "the traffic has no deadlines" if folder.scenario.deadline_s is None else None


def draw(folder: RunFolder) -> Figure:
    """Upper panel: completion time of each object; lower panel: bytes per path until the next object."""
    return compare(folder, {"completion": 1.6, "bytes": 1.4}, _panel)


def caption(folder: RunFolder) -> str:
    """The number of objects in time."""
    deadline_s = folder.scenario.deadline_s or 0.0
    parts: list[str] = []
    for strategy in folder.measured:
        _, completion_s = _objects(representative(folder, strategy))
        in_time = int((completion_s <= deadline_s).sum())
        parts.append(f"{in_time} of {completion_s.size} with {strategy}")
    line = f"dots on or below the line at {number(deadline_s, 's')}; × late or never"
    lower = "Lower panel: bytes delivered between the start of an object and the next, by path."
    return f"Objects in time ({line}): {', '.join(parts)}. {lower}"


def _objects(run: Run) -> tuple[np.ndarray, np.ndarray]:
    """Start of each object and time until its last byte was read, in s; infinite if it was not."""
    columns = (pl.col("sent_ns") / 1e9).alias("start_s"), ((pl.col("received_ns") - pl.col("sent_ns")) / 1e9)
    frame = run.messages.select(columns[0], columns[1].alias("completion_s").fill_null(float("inf"))).collect()
    return frame["start_s"].to_numpy(), frame["completion_s"].to_numpy()


def _panel(column: Column) -> None:
    completion, bytes_ = column.axes["completion"], column.axes["bytes"]
    deadline_s = column.folder.scenario.deadline_s or 0.0
    start_s, completion_s = _objects(column.run)
    if column.first:
        completion.set_ylabel("completion time (s)")
        bytes_.set_ylabel("delivered (MB)")
    if not start_s.size:
        annotate_empty(completion, "no objects")
        return
    completion.axhline(deadline_s, color=MUTED, linewidth=0.9, linestyle="--")
    in_time = completion_s <= deadline_s
    completion.plot(start_s[in_time], completion_s[in_time], "o", color=INK, markersize=4, mew=0)
    late = np.minimum(completion_s[~in_time], 1.15 * deadline_s)
    completion.plot(start_s[~in_time], late, "x", color=RED, markersize=5)
    completion.set_ylim(0, 1.25 * deadline_s)
    _bytes(column, start_s)


def _bytes(column: Column, start_s: np.ndarray) -> None:
    """Stacked bars: bytes that each path delivered from the start of an object to the next."""
    throughput = path_throughput(column.folder, column.run, FINE_S)
    edges = np.append(start_s, column.folder.duration_s)
    floor = np.zeros(start_s.size)
    for path, mbit_s in throughput.mbit_s.items():
        bins = np.digitize(throughput.t_s, edges) - 1
        inside = (bins >= 0) & (bins < start_s.size)
        mbit = np.bincount(bins[inside], weights=mbit_s[inside] * throughput.step_s, minlength=start_s.size)
        width = np.minimum(np.diff(edges), np.diff(edges).min()) * 0.85
        colour = path_colour(column.folder, path)
        column.axes["bytes"].bar(start_s, mbit / 8, width, floor, align="edge", color=colour, label=path, alpha=0.8)
        floor = floor + mbit / 8
    if column.first:
        column.axes["bytes"].legend(loc="upper left", fontsize=7.5, frameon=False, ncols=2)
    column.axes["bytes"].set_ylim(0, 1.35 * max(float(floor.max()), 1e-3))
