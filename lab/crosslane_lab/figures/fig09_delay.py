"""Figure 9: end-to-end delay of each message (logarithmic), for the baselines and our strategies."""

import polars as pl
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter

from crosslane_lab.figures.panels import Column, compare
from crosslane_lab.render.markdown import number
from crosslane_lab.render.style import INK, RED, annotate_empty, strategy_colour
from crosslane_lab.runs.folder import Run, RunFolder
from crosslane_lab.runs.frame import representative

TITLE = "End-to-end delay of every message"


def skip_reason(folder: RunFolder) -> str | None:
    """The figure needs delivered messages, which bulk traffic does not have."""
    if folder.scenario.deadline_s is not None:
        return "the delay of an object is meaningful only with its deadline"
    some = any(delays(representative(folder, s)).height for s in folder.measured)
    return None if some else "the traffic has no messages"


def draw(folder: RunFolder) -> Figure:
    """One panel per strategy: a dot per message at its send time, the worst one labelled."""
    return compare(folder, {"delay": 2.7}, _panel)


def caption(folder: RunFolder) -> str:
    """The worst message of each strategy and its send time."""
    parts: list[str] = []
    for strategy in folder.measured:
        delivered_messages = delays(representative(folder, strategy)).drop_nulls()
        if delivered_messages.height:
            worst = delivered_messages.sort("delay_ms", "number").row(-1, named=True)
            parts.append(f"{number(worst['delay_ms'], 'ms')} with {strategy} (sent at {worst['sent_s']:.1f} s)")
    return (
        f"Worst message in the median run: {', '.join(parts)}. "
        "Each dot is a message at the start of its write; the scale is logarithmic."
    )


def delays(run: Run) -> pl.DataFrame:
    """`number`, `sent_s` and `delay_ms` (null where never delivered) of each message."""
    delivered = pl.col("received_ns").cast(pl.Int64) - pl.col("sent_ns").cast(pl.Int64)
    columns = ["number", (pl.col("sent_ns") / 1e9).alias("sent_s"), (delivered / 1e6).alias("delay_ms")]
    return run.messages.select(columns).sort("number").collect()


def _panel(column: Column) -> None:
    axes = column.axes["delay"]
    frame = delays(column.run)
    delivered_messages = frame.drop_nulls()
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    if column.first:
        axes.set_ylabel("delivery delay (ms)")
    if not delivered_messages.height:
        annotate_empty(axes, "no message was delivered")
        return
    colour = strategy_colour(column.folder, column.strategy)
    axes.plot(
        delivered_messages["sent_s"],
        delivered_messages["delay_ms"].clip(0.01, None),
        ".",
        color=colour,
        markersize=3.2,
        mew=0,
        alpha=0.8,
        rasterized=delivered_messages.height > 1500,
    )
    _label_worst(column, delivered_messages)
    lost = frame.filter(pl.col("delay_ms").is_null())
    if lost.height:
        axes.plot(
            lost["sent_s"],
            [0.985] * lost.height,
            "|",
            color=RED,
            markersize=6,
            transform=axes.get_xaxis_transform(),
        )
        axes.text(
            0.99,
            0.95,
            f"{lost.height} never delivered",
            color=RED,
            fontsize=7.5,
            ha="right",
            va="top",
            transform=axes.transAxes,
        )
    _label_message_numbers(column, frame)
    low, high = axes.get_ylim()
    axes.set_ylim(low / 1.3, high * 2.2)


def _label_worst(column: Column, delivered_messages: pl.DataFrame) -> None:
    worst = delivered_messages.sort("delay_ms", "number").row(-1, named=True)
    right = worst["sent_s"] < sum(column.window) * 0.62
    axes = column.axes["delay"]
    axes.plot(worst["sent_s"], worst["delay_ms"], "o", markersize=6, mfc="none", mec=INK, mew=0.9)
    axes.annotate(
        number(worst["delay_ms"], "ms"),
        (worst["sent_s"], worst["delay_ms"]),
        xytext=(7 if right else -7, 3),
        textcoords="offset points",
        ha="left" if right else "right",
        fontsize=9,
        fontweight="bold",
        color=INK,
    )


def _label_message_numbers(column: Column, frame: pl.DataFrame) -> None:
    """Message numbers (the axis of the paper) along the lower edge of the panel."""
    axes = column.axes["delay"]
    top = axes.secondary_xaxis(0.0)
    marks = [frame.row(frame.height * i // 4, named=True) for i in (1, 2, 3)]
    top.set_ticks([])
    top.xaxis.set_major_locator(FixedLocator([m["sent_s"] for m in marks]))
    top.set_xticklabels([f"message {m['number']}" if i == 0 else str(m["number"]) for i, m in enumerate(marks)])
    top.tick_params(labelsize=7, length=3, pad=2)
    top.spines["bottom"].set_visible(False)
