"""Figure 9: end-to-end delay of each message (logarithmic), the baselines beside ours."""

import polars as pl
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter

from crosslane_lab.figures.panels import Column, compare
from crosslane_lab.figures.style import INK, RED, say_nothing_here, strategy_colour
from crosslane_lab.metrics import number, representative
from crosslane_lab.run import Run, RunFolder

TITLE = "End-to-end delay of every message"


def why_not(folder: RunFolder) -> str | None:
    """Nothing to show where no run delivered a message (bulk traffic)."""
    if folder.scenario.deadline_s is not None:
        return "an object's delay says nothing without its deadline"
    some = any(delays(representative(folder, s)).height for s in folder.measured)
    return None if some else "the traffic has no messages"


def draw(folder: RunFolder) -> Figure:
    """One panel per strategy: a dot per message at the time it was sent, the worst one named."""
    return compare(folder, {"delay": 2.7}, _panel)


def caption(folder: RunFolder) -> str:
    """The worst message of each strategy, and when it was sent."""
    told: list[str] = []
    for strategy in folder.measured:
        got = delays(representative(folder, strategy)).drop_nulls()
        if got.height:
            worst = got.sort("delay_ms", "number").row(-1, named=True)
            told.append(f"{number(worst['delay_ms'], 'ms')} with {strategy} (sent after {worst['sent_s']:.1f} s)")
    return (
        f"In the median run the worst message took {', '.join(told)}. "
        "Each dot is a message at the time its write began; the scale is logarithmic."
    )


def delays(run: Run) -> pl.DataFrame:
    """`number`, `sent_s` and `delay_ms` (null where never delivered) of each message."""
    delivered = pl.col("received_ns").cast(pl.Int64) - pl.col("sent_ns").cast(pl.Int64)
    columns = ["number", (pl.col("sent_ns") / 1e9).alias("sent_s"), (delivered / 1e6).alias("delay_ms")]
    return run.messages.select(columns).sort("number").collect()


def _panel(column: Column) -> None:
    axes = column.axes["delay"]
    frame = delays(column.run)
    got = frame.drop_nulls()
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    if column.first:
        axes.set_ylabel("delivery delay (ms)")
    if not got.height:
        say_nothing_here(axes, "no message was delivered")
        return
    colour = strategy_colour(column.folder, column.strategy)
    axes.plot(
        got["sent_s"],
        got["delay_ms"].clip(0.01, None),
        ".",
        color=colour,
        markersize=3.2,
        mew=0,
        alpha=0.8,
        rasterized=got.height > 1500,
    )
    _name_the_worst(column, got)
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
    _number_messages(column, frame)
    low, high = axes.get_ylim()
    axes.set_ylim(low / 1.3, high * 2.2)


def _name_the_worst(column: Column, got: pl.DataFrame) -> None:
    worst = got.sort("delay_ms", "number").row(-1, named=True)
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


def _number_messages(column: Column, frame: pl.DataFrame) -> None:
    """Message numbers (the paper's axis) along the panel's foot, at four places."""
    axes = column.axes["delay"]
    top = axes.secondary_xaxis(0.0)
    marks = [frame.row(frame.height * i // 4, named=True) for i in (1, 2, 3)]
    top.set_ticks([])
    top.xaxis.set_major_locator(FixedLocator([m["sent_s"] for m in marks]))
    top.set_xticklabels([f"message {m['number']}" if i == 0 else str(m["number"]) for i, m in enumerate(marks)])
    top.tick_params(labelsize=7, length=3, pad=2)
    top.spines["bottom"].set_visible(False)
