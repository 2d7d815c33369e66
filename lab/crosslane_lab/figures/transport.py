"""RTT and congestion window of each subflow, from tcp_info."""

import polars as pl
from matplotlib.figure import Figure

from crosslane_lab.figures.panels import Column, compare
from crosslane_lab.render.markdown import number
from crosslane_lab.render.style import annotate_empty, path_colour
from crosslane_lab.runs.folder import Run, RunFolder
from crosslane_lab.runs.frame import representative

TITLE = "RTT and congestion window per subflow"


def skip_reason(folder: RunFolder) -> str | None:
    """The figure needs records of tcp_info."""
    some = any(_info(representative(folder, s)).height for s in folder.measured)
    return None if some else "no tcp_info was recorded"


def draw(folder: RunFolder) -> Figure:
    """Two panels per strategy, a line per subflow in the colour of its path."""
    return compare(folder, {"rtt": 1.5, "cwnd": 1.3}, _panel)


def caption(folder: RunFolder) -> str:
    """The highest smoothed RTT of each strategy."""
    parts: list[str] = []
    for strategy in folder.measured:
        highest = _info(representative(folder, strategy))["rtt_us"].max()
        if isinstance(highest, int):
            parts.append(f"{strategy} {number(highest / 1e3, 'ms')}")
    return f"Values of the kernel, in the colours of the paths. Highest smoothed RTT: {', '.join(parts)}."


def _info(run: Run) -> pl.DataFrame:
    return run.tcp_info.filter(pl.col("rtt_us") > 0).sort("t_ns").collect()


def _panel(column: Column) -> None:
    rtt, cwnd = column.axes["rtt"], column.axes["cwnd"]
    if column.first:
        rtt.set_ylabel("RTT (ms)")
        cwnd.set_ylabel("cwnd (segments)")
    info = _info(column.run)
    if not info.height:
        annotate_empty(rtt, "no tcp_info recorded")
        return
    for (path, *_), frame in info.group_by("path", "local", "remote", maintain_order=True):
        colour = path_colour(column.folder, str(path))
        t_s = frame["t_ns"] / 1e9
        rtt.plot(t_s, frame["rtt_us"] / 1e3, color=colour, linewidth=1.2)
        cwnd.plot(t_s, frame["cwnd"], color=colour, linewidth=1.2)
    for axes in (rtt, cwnd):
        axes.set_ylim(0, axes.get_ylim()[1] * 1.05)
