"""Worst delay over the seeds: a dot per run, the median labelled. Not in the paper, which shows single runs."""

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from crosslane_lab.render.markdown import number
from crosslane_lab.render.style import INK, WIDTH_IN, house_style, strategy_colour
from crosslane_lab.runs.catalog import GAP, WORST_DELAY, describe
from crosslane_lab.runs.folder import RunFolder

TITLE = "Over all seeds"

_MIN_SEEDS = 3


def skip_reason(folder: RunFolder) -> str | None:
    """The figure needs enough seeds for a distribution."""
    if folder.scenario.deadline_s is not None:
        return "the delay of an object is meaningful only with its deadline"
    most = max((len(values) for values in _values(folder).values()), default=0)
    return None if most >= _MIN_SEEDS else f"fewer than {_MIN_SEEDS} valid seeds with a worst delay"


def draw(folder: RunFolder) -> Figure:
    """One row per strategy, logarithmic; the median marked and labelled."""
    values = _values(folder)
    with house_style():
        height = 0.75 + 0.42 * len(values)
        figure = Figure(figsize=(WIDTH_IN, height))
        axes = figure.add_axes((1.35 / WIDTH_IN, 0.5 / height, (WIDTH_IN - 1.65) / WIDTH_IN, 1 - 0.6 / height))
        axes.set_xscale("log")
        for row, (strategy, runs) in enumerate(values.items()):
            colour = strategy_colour(folder, strategy)
            y = [-row + _offset(index) for index in range(len(runs))]
            axes.plot(runs, y, "o", color=colour, markersize=6, alpha=0.75, mew=0)
            middle = float(np.median(runs))
            axes.plot([middle, middle], [-row - 0.3, -row + 0.3], color=INK, linewidth=1.6)
            axes.annotate(
                number(middle, "ms"),
                (middle, -row + 0.3),
                xytext=(4, -1),
                textcoords="offset points",
                fontsize=8.5,
                fontweight="bold",
                va="center",
            )
        axes.set_yticks([-row for row in range(len(values))], list(values), color=INK)
        axes.tick_params(axis="y", labelcolor=INK, labelsize=9)
        axes.set_ylim(-len(values) + 0.4, 0.6)
        axes.grid(True, axis="x")
        axes.grid(False, axis="y")
        low, high = axes.get_xlim()
        axes.set_xlim(low / 1.2, high * 1.35)
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_xlabel(f"{describe(_metric(folder)).label} (ms)")
    return figure


def caption(folder: RunFolder) -> str:
    """Median and range per strategy."""
    parts = [
        f"{s} {number(float(np.median(v)), 'ms')} ({number(min(v))}–{number(max(v))}, {len(v)} runs)"
        for s, v in _values(folder).items()
    ]
    return f"Each dot is a run; the tick is the median: {'; '.join(parts)}."


def _metric(folder: RunFolder) -> str:
    has_delay = any(WORST_DELAY in run.metrics for run in folder.runs if run.valid)
    return WORST_DELAY if has_delay else GAP


def _values(folder: RunFolder) -> dict[str, list[float]]:
    metric = _metric(folder)
    found = {s: [r.metrics[metric] for r in folder.valid_runs(s) if metric in r.metrics] for s in folder.measured}
    return {strategy: [max(v, 0.1) for v in values] for strategy, values in found.items() if values}


def _offset(index: int) -> float:
    """A small fixed displacement, so that equal runs stay visible."""
    return (0.0, 0.13, -0.13, 0.07, -0.07)[index % 5]
