"""Cumulative distribution of the worst delay over many seeds. Not in the paper."""

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, PercentFormatter

from crosslane_lab.render.markdown import number
from crosslane_lab.render.style import INK, WIDTH_IN, house_style, strategy_colour
from crosslane_lab.runs.catalog import WORST_DELAY, describe
from crosslane_lab.runs.folder import RunFolder

TITLE = "Distribution of the worst delivery delay over the drives"

_MIN_MS = 0.1
_DASHES = ("-", (0, (2, 2)))
"""Every second line is dashed, so that equal lines stay visible."""


def skip_reason(folder: RunFolder) -> str | None:
    """The figure needs a delay."""
    return None if _values(folder) else "no valid run with a worst delay"


def draw(folder: RunFolder) -> Figure:
    """One step line per strategy, on a logarithmic axis of delays."""
    values = _values(folder)
    with house_style():
        figure = Figure(figsize=(WIDTH_IN, 4.2))
        axes = figure.add_axes((0.07, 0.13, 0.9, 0.76))
        axes.set_xscale("log")
        for index, (strategy, ranked) in enumerate(values.items()):
            shares = [(drive + 1) / len(ranked) for drive in range(len(ranked))]
            colour, dashes = strategy_colour(folder, strategy), _DASHES[index % 2]
            x, y = [ranked[0], *ranked], [0.0, *shares]
            axes.step(x, y, where="post", color=colour, linewidth=2, linestyle=dashes, label=strategy)
        axes.grid(True, axis="both")
        axes.set_ylim(0, 1.02)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_xlabel(f"{describe(WORST_DELAY).label} (ms)")
        axes.set_ylabel("share of drives")
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=8, frameon=False, labelcolor=INK, fontsize=9)
    return figure


def caption(folder: RunFolder) -> str:
    """Median and 95th percentile per strategy."""
    parts = [
        f"{strategy} {number(middle, 'ms')} and {number(high, 'ms')} ({len(v)} drives)"
        for strategy, v in _values(folder).items()
        for middle, high in [np.quantile(v, [0.5, 0.95]).tolist()]
    ]
    return f"Worst delivery delay of a drive, median and 95th percentile: {'; '.join(parts)}."


def _values(folder: RunFolder) -> dict[str, list[float]]:
    """Sorted values per strategy."""
    found = {
        s: sorted(
            max(run.metrics[WORST_DELAY], _MIN_MS) for run in folder.valid_runs(s) if WORST_DELAY in run.metrics
        )
        for s in folder.measured
    }
    return {strategy: values for strategy, values in found.items() if values}
