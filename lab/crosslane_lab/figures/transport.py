"""Round-trip time and congestion window of each subflow, from tcp_info."""

import polars as pl
from matplotlib.figure import Figure

from crosslane_lab.figures.panels import Column, compare
from crosslane_lab.figures.style import path_colour, say_nothing_here
from crosslane_lab.metrics import number, representative
from crosslane_lab.run import Run, RunFolder

TITLE = "Round-trip time and congestion window per subflow"


def why_not(folder: RunFolder) -> str | None:
    """Nothing to show where no tcp_info was recorded."""
    some = any(_info(representative(folder, s)).height for s in folder.measured)
    return None if some else "no tcp_info was recorded"


def draw(folder: RunFolder) -> Figure:
    """Two panels per strategy, a line per subflow in its path's colour."""
    return compare(folder, {"rtt": 1.5, "cwnd": 1.3}, _panel)


def caption(folder: RunFolder) -> str:
    """The highest smoothed round-trip time of each strategy."""
    told: list[str] = []
    for strategy in folder.measured:
        highest = _info(representative(folder, strategy))["rtt_us"].max()
        if isinstance(highest, int):
            told.append(f"{strategy} {number(highest / 1e3, 'ms')}")
    return f"As the kernel saw them, in the paths' colours. Highest smoothed round-trip time: {', '.join(told)}."


def _info(run: Run) -> pl.DataFrame:
    return run.tcp_info.filter(pl.col("rtt_us") > 0).sort("t_ns").collect()


def _panel(column: Column) -> None:
    rtt, cwnd = column.axes["rtt"], column.axes["cwnd"]
    if column.first:
        rtt.set_ylabel("RTT (ms)")
        cwnd.set_ylabel("window (segments)")
    info = _info(column.run)
    if not info.height:
        say_nothing_here(rtt, "no tcp_info recorded")
        return
    for (path, *_), frame in info.group_by("path", "local", "remote", maintain_order=True):
        colour = path_colour(column.folder, str(path))
        t_s = frame["t_ns"] / 1e9
        rtt.plot(t_s, frame["rtt_us"] / 1e3, color=colour, linewidth=1.2)
        cwnd.plot(t_s, frame["cwnd"], color=colour, linewidth=1.2)
    for axes in (rtt, cwnd):
        axes.set_ylim(0, axes.get_ylim()[1] * 1.05)
