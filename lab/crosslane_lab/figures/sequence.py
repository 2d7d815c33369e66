"""Data sequence numbers over time around the handover, for figures 7 and 8."""

from bisect import bisect_right, insort
from dataclasses import dataclass, field

import polars as pl
from matplotlib.figure import Figure

from crosslane_lab.coverage import changes
from crosslane_lab.figures.fig09_delay import delays
from crosslane_lab.figures.panels import Column, Window, compare
from crosslane_lab.render.style import INK, MUTED, RED, annotate_empty, path_colour
from crosslane_lab.runs.folder import Run, RunFolder
from crosslane_lab.runs.frame import representative

_MARGIN_S = 0.6
_MAX_SHARED_S = 3.0
"""If the events of all strategies fit in this, they share a window; else each has a window of equal width."""
_MAX_WINDOW_S = 8.0
_RASTER_ABOVE = 1500


def draw(folder: RunFolder) -> Figure:
    """One panel per strategy: data packets by path, losses, reinjections, data delivered in order."""
    return compare(folder, {"dsn": 3.0}, _panel, windows(folder))


def caption(folder: RunFolder) -> str:
    """Lost and reinjected packets in the windows shown."""
    parts: list[str] = []
    for strategy, window in windows(folder).items():
        packets = data_packets(folder, representative(folder, strategy), window)
        lost = packets.filter("lost").height
        reinjected = packets.filter("reinjected").height
        parts.append(f"{strategy}: {lost} lost, {reinjected} reinjected on another path")
    same = len(set(windows(folder).values())) == 1
    axis = "on a common time axis" if same else "each around its worst delay, at a common scale"
    return (
        f"Every data packet around the handover, by path, {axis} ({'; '.join(parts)}). "
        "The line is the data delivered to the application in order; where it is flat, the application waits."
    )


def windows(folder: RunFolder) -> dict[str, Window]:
    """The window (s) of each strategy: around its handover and its worst delay."""
    focus = {s: _focus(folder, representative(folder, s)) for s in folder.measured}
    begin, end = min(a for a, _ in focus.values()), max(b for _, b in focus.values())
    if end - begin <= _MAX_SHARED_S:
        return dict.fromkeys(focus, (begin - _MARGIN_S, end + _MARGIN_S))
    width = min(max(b - a for a, b in focus.values()), _MAX_WINDOW_S) / 2 + _MARGIN_S
    return {s: ((a + b) / 2 - width, (a + b) / 2 + width) for s, (a, b) in focus.items()}


def _focus(folder: RunFolder, run: Run) -> Window:
    handover = run.metrics.get("handover.first_s")
    moments = [handover] if handover is not None else [change.t_s for change in changes(folder, run)]
    moment = (moments or [folder.duration_s / 2])[0]
    delivered = delays(run).drop_nulls().sort("delay_ms", "number")
    if not delivered.height:
        return (moment, moment + 1.0)
    worst = delivered.row(-1, named=True)
    begin, end = worst["sent_s"], worst["sent_s"] + worst["delay_ms"] / 1e3
    if handover is None:
        return (begin, end)
    near = abs(begin - moment) < _MAX_SHARED_S
    return (min(begin, moment), max(end, moment)) if near else (moment, moment + 0.2)


def data_packets(folder: RunFolder, run: Run, window: Window) -> pl.DataFrame:
    """`t_s`, `path`, `dsn`, `payload_bytes`, `lost`, `reinjected` of the data packets in a window (s).

    For plain TCP, `dsn` is the TCP sequence number. A packet is reinjected if its first byte was sent before
    on another subflow, up to five seconds before the window.
    """
    forward = pl.col("direction") == folder.scenario.direction
    sequence_number = pl.coalesce(pl.col("dsn"), pl.col("tcp_seq")).cast(pl.Int64).alias("dsn")
    begin, end = (int(max(0.0, t) * 1e9) for t in (window[0] - 5.0, window[1]))
    lost = (pl.col("drop").is_not_null() | pl.col("delivered_ns").is_null()).alias("lost")
    columns = [(pl.col("t_ns") / 1e9).alias("t_s"), "path", sequence_number, "payload_bytes", lost]
    subflow = pl.col("subflow").cast(pl.Int64).fill_null(-1).alias("subflow")
    has_data = forward & (pl.col("payload_bytes") > 0) & pl.col("t_ns").is_between(begin, end)
    frame = run.packets.filter(has_data).sort("t_ns").select(*columns, subflow).drop_nulls("dsn").collect()
    marked = frame.with_columns(pl.Series("reinjected", _reinjected(frame), dtype=pl.Boolean))
    return marked.filter(pl.col("t_s") >= window[0])


@dataclass
class _SentRanges:
    """The byte ranges that one subflow has sent: sorted starts, and their ends."""

    starts: list[int] = field(default_factory=list)
    ends: dict[int, int] = field(default_factory=dict)

    def add(self, start: int, end: int) -> None:
        if start not in self.ends:
            insort(self.starts, start)
        self.ends[start] = max(end, self.ends.get(start, 0))

    def contains(self, byte: int) -> bool:
        index = bisect_right(self.starts, byte)
        return index > 0 and self.ends[self.starts[index - 1]] > byte


def _reinjected(frame: pl.DataFrame) -> list[bool]:
    sent: dict[int, _SentRanges] = {}
    result: list[bool] = []
    for dsn, size, subflow in frame.select("dsn", "payload_bytes", "subflow").iter_rows():
        result.append(any(other.contains(dsn) for key, other in sent.items() if key != subflow))
        sent.setdefault(subflow, _SentRanges()).add(dsn, dsn + size)
    return result


def _panel(column: Column) -> None:
    axes, folder = column.axes["dsn"], column.folder
    if column.first:
        axes.set_ylabel("data sequence number (kB)")
    packets = data_packets(folder, column.run, column.window)
    if not packets.height:
        annotate_empty(axes, "no data in this window")
        return
    received = _received(folder, column.run, column.window)
    base = min(int(series.min() or 0) for series in (packets["dsn"], received["dsn"]) if series.len())  # pyright: ignore
    dense = packets.height > _RASTER_ABOVE
    look = {"linestyle": "none", "rasterized": dense}

    def points(frame: pl.DataFrame, **marks: object) -> None:
        axes.plot(frame["t_s"], (frame["dsn"] - base) / 1e3, **(look | marks))  # pyright: ignore[reportArgumentType]

    points(
        received, linestyle="-", drawstyle="steps-post", color=MUTED, linewidth=1.0, zorder=1.5, rasterized=False
    )
    arrived = packets.filter(~pl.col("lost"))
    for path in sorted(folder.scenario.paths, key=lambda p: -arrived.filter(pl.col("path") == p).height):
        of_path, colour = arrived.filter(pl.col("path") == path), path_colour(folder, path)
        points(of_path, marker="o", color=colour, markersize=1.8 if dense else 3.4, mew=0, alpha=0.85)
    points(
        packets.filter("lost"), marker="x", color=RED, markersize=2.6 if dense else 4.2, mew=0.6 if dense else 0.9
    )
    reinjected = packets.filter("reinjected")
    ring = {"marker": "o", "mfc": "none", "mec": INK, "rasterized": False}
    points(reinjected, **ring, markersize=3.6 if dense else 5.5, mew=0.45 if dense else 0.8)
    _legend(column)


def _received(folder: RunFolder, run: Run, window: Window) -> pl.DataFrame:
    """`t_s` and the `dsn` up to which the application has received all data in order.

    From the messages, which it reads in order; for bulk traffic from the data acknowledgements.
    """
    t_s, upto = pl.col("received_ns"), pl.col("size_bytes").cast(pl.Int64).cum_sum()
    frame = run.messages.sort("number").drop_nulls("received_ns").select(t_s, upto.alias("dsn")).collect()
    if not frame.height:
        acks = (pl.col("direction") != folder.scenario.direction) & pl.col("data_ack").is_not_null()
        upto = pl.col("data_ack").cast(pl.Int64).cum_max()
        frame = run.packets.filter(acks).sort("t_ns").select(received_ns="t_ns", dsn=upto).collect()
    at = (pl.col("received_ns") / 1e9).alias("t_s")
    return frame.select(at, "dsn").filter(pl.col("t_s").is_between(window[0], window[1]))


def _legend(column: Column) -> None:
    """The legend of the marks, in the upper corner of the first panel."""
    if not column.first:
        return
    axes = column.axes["dsn"]
    rows = [("x", RED, "lost"), ("o", INK, "reinjected on another path"), ("_", MUTED, "received in order")]
    for index, (mark, colour, text) in enumerate(rows):
        y = 0.965 - index * 0.062
        axes.plot(0.03, y, mark, color=colour, mfc="none", mew=0.9, markersize=5, transform=axes.transAxes)
        axes.text(0.06, y, text, fontsize=7.5, color=MUTED, va="center", transform=axes.transAxes)
