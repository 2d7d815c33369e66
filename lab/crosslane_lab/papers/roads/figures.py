"""Uploads over recorded drives: misses and cost of each strategy, and its expensive share above the optimum."""

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from crosslane_lab.papers.roads import campaign as roads
from crosslane_lab.render.style import BLUE, GREEN, GREY, MUTED, OCHRE, PURPLE, WIDTH_IN, house_style

_COLOURS = {roads.OURS: GREEN, roads.OVER_MPTCP: BLUE, "kernel": GREY, "kernel-tuned": PURPLE}


def draw(frame: pl.DataFrame) -> Figure:
    """Left: misses over cost, pooled over drives, a panel per load; right: the share above the optimum."""
    with house_style():
        figure = Figure(figsize=(WIDTH_IN, 3.6))
        panels = figure.subplots(1, len(roads.LOADS) + 1, width_ratios=[1] * len(roads.LOADS) + [1.4])
        for axes, load in zip(panels, roads.LOADS, strict=False):
            table = roads.pooled(frame.filter(pl.col("load") == load))
            swept = table.filter(pl.col("strategy").str.starts_with("mp-dpa")).sort("strategy")
            axes.plot(
                swept["cost"], swept["missed"] * 100, "o-", color=OCHRE, markersize=3, label="mp-dpa at several α"
            )
            for strategy, colour in _COLOURS.items():
                row = table.filter(pl.col("strategy") == strategy)
                axes.plot(row["cost"], row["missed"] * 100, "o", color=colour, label=strategy)
            axes.set_title(f"{load} % of the capacity of both")
            axes.set_xlabel("cost / optimum")
        panels[0].set_ylabel("deadlines missed (%)")
        panels[0].legend(loc="upper right", frameon=False, fontsize=7, labelcolor=MUTED)
        _distribution(panels[-1], frame)
        figure.subplots_adjust(left=0.05, right=0.99, top=0.9, bottom=0.14, wspace=0.22)
    return figure


def _distribution(axes: Axes, frame: pl.DataFrame) -> None:
    for strategy, colour in {
        roads.OURS: GREEN,
        roads.OVER_MPTCP: BLUE,
        "kernel": GREY,
        roads.alpha_name(1.0): OCHRE,
    }.items():
        of = frame.filter(pl.col("strategy") == strategy)
        above = sorted(((of["share"] - of["share_optimum"]) * 100).to_list())
        heights = [100 * (index + 1) / len(above) for index in range(len(above))]
        axes.plot(above, heights, color=colour, label=strategy)
    axes.set_title("Expensive share above the optimum")
    axes.set_xlabel("points")
    axes.set_ylabel("drives and loads (%)")
    axes.legend(loc="lower right", frameon=False, fontsize=7, labelcolor=MUTED)
