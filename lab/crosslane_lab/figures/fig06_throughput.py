"""Figure 6: throughput per path, stacked to the total."""

import numpy as np
from matplotlib.figure import Figure

from crosslane_lab.figures.panels import Column, compare
from crosslane_lab.figures.path_throughput import COARSE_S, PathThroughput, path_throughput
from crosslane_lab.render.markdown import number
from crosslane_lab.render.style import INK, annotate_empty, path_colour
from crosslane_lab.runs.folder import RunFolder
from crosslane_lab.runs.frame import representative

TITLE = "Throughput per path and in total"


def skip_reason(folder: RunFolder) -> str | None:
    """The figure needs delivered payload."""
    some = any(path_throughput(folder, representative(folder, s)).total.any() for s in folder.measured)
    return None if some else "no link delivered any payload"


def draw(folder: RunFolder) -> Figure:
    """One panel per strategy: the throughput of the paths stacked; the upper edge is the total."""
    return compare(folder, {"rate": 2.3}, _panel)


def caption(folder: RunFolder) -> str:
    """Mean throughput and the share of each path."""
    parts = [f"{s} {_summary(path_throughput(folder, representative(folder, s)))}" for s in folder.measured]
    what = "Payload (of wires: IP packets)" if folder.scenario.wires else "Payload"
    return f"{what} delivered in each {COARSE_S:g} s by path, stacked; the line is the total. {'; '.join(parts)}."


def _summary(throughput: PathThroughput) -> str:
    """The mean rate during the traffic, and the share of each path."""
    total = float(throughput.total[throughput.traffic].sum())
    if total == 0:
        return "no data"
    mean = total / throughput.total[throughput.traffic].size
    shares = (
        f"{number(float(rate[throughput.traffic].sum()) / total, '%')} {path}"
        for path, rate in throughput.mbit_s.items()
    )
    return f"{number(mean, 'Mbit/s')} ({', '.join(shares)})"


def _panel(column: Column) -> None:
    axes, folder = column.axes["rate"], column.folder
    if column.first:
        axes.set_ylabel("throughput (Mbit/s)")
    throughput = path_throughput(folder, column.run)
    if not throughput.total.any():
        annotate_empty(axes, "no payload delivered")
        return
    floor = np.zeros(len(throughput.t_s) + 1)
    for path in throughput.mbit_s:
        t_s, mbit_s = throughput.edges(path)
        axes.fill_between(
            t_s, floor, floor + mbit_s, step="post", color=path_colour(folder, path), alpha=0.8, linewidth=0
        )
        _label(column, path, throughput, floor[:-1])
        floor = floor + mbit_s
    outline = np.append(throughput.t_s, throughput.t_s[-1] + throughput.step_s)
    axes.step(outline, floor, where="post", color=INK, linewidth=0.9)
    axes.set_ylim(0, float(floor.max()) * 1.12)


def _label(column: Column, path: str, throughput: PathThroughput, floor: np.ndarray) -> None:
    """The path's name inside its area, in the middle of the longest interval of high throughput."""
    rate = throughput.mbit_s[path]
    begin, end = _longest(rate > 0.12 * float(throughput.total.max()))
    if end - begin < 0.15 * len(rate):
        return
    middle = slice(begin + (end - begin) // 3, end - (end - begin) // 3)
    column.axes["rate"].text(
        float(throughput.t_s[begin] + throughput.t_s[end - 1] + throughput.step_s) / 2,
        float(np.median(floor[middle] + rate[middle] / 2)),
        path,
        color="white",
        fontsize=8,
        fontweight="bold",
        ha="center",
        va="center",
    )


def _longest(mask: np.ndarray) -> tuple[int, int]:
    """The longest interval of true bins, as begin and end; (0, 0) if there is none."""
    steps = np.diff(np.concatenate(([0], mask.astype(int), [0])))
    begins, ends = np.flatnonzero(steps == 1), np.flatnonzero(steps == -1)
    if not begins.size:
        return (0, 0)
    best = int((ends - begins).argmax())
    return (int(begins[best]), int(ends[best]))
