"""Figures of bars: a group per case, a bar per strategy, its range over the seeds, and what was published."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from crosslane_lab.figures.style import GREEN, GREY, INK, MUTED, OCHRE, PURPLE, RED, SKY, WIDTH_IN, house_style
from crosslane_lab.metrics import Spread
from crosslane_lab.nota.cases import Case
from crosslane_lab.nota.found import DEAR, DELIVERED_S, LEAST, MISSED, OVERHEAD, WRITTEN_S, Found
from crosslane_lab.nota.published import Told

COLOURS = {
    "single": MUTED,
    "kernel": GREY,
    "kernel-tuned": PURPLE,
    "mp-dpa": SKY,
    "mp-dpa-08": OCHRE,
    "deadline": GREEN,
}
Value = Callable[[Case, str], Spread | None]


@dataclass(frozen=True)
class Panel:
    """What one panel shows: its title, the unit (`%` or `s`), and the value of a bar."""

    title: str
    unit: str
    value: Value
    metric: str = ""


def panels(found: Found, *metrics: str) -> list[Panel]:
    """Panels of metrics of the run folders."""
    titles = {
        DEAR: ("sent over the path not preferred", "%"),
        MISSED: ("deadlines missed", "%"),
        OVERHEAD: ("IP bytes sent beyond the payload", "%"),
        DELIVERED_S: ("time until read by the peer, median", "s"),
        WRITTEN_S: ("time until handed over, median", "s"),
    }
    return [Panel(*titles[metric], _of(found, metric), metric) for metric in metrics]


def draw(
    found: Found, cases: Sequence[Case], labels: Sequence[str], shown: Sequence[Panel], told: Sequence[Told] = ()
) -> Figure:
    """Panels side by side."""
    strategies = [s for s in COLOURS if any(s in case.strategies for case in cases)]
    with house_style():
        figure = Figure(figsize=(WIDTH_IN, 3.3))
        for axes, panel in zip(figure.subplots(1, len(shown), squeeze=False)[0], shown, strict=True):
            _panel(axes, cases, strategies, panel, told)
            if panel.metric == DEAR:
                _least(axes, found, cases)
            axes.set_xticks(range(len(cases)), labels, color=INK)
            axes.set_title(f"{panel.title} ({panel.unit})", fontsize=9)
        marks = [Line2D([], [], color=COLOURS[s], lw=6, label=s) for s in strategies]
        marks.append(Line2D([], [], color=RED, marker="D", ls="", ms=4, label="published"))
        marks.append(Line2D([], [], color=INK, lw=1.2, ls=(0, (2, 1)), label="least possible"))
        figure.legend(handles=marks, loc="lower center", ncols=len(marks), frameon=False, labelcolor=MUTED)
        figure.subplots_adjust(left=0.04, right=0.99, top=0.9, bottom=0.2, wspace=0.14)
    return figure


def _of(found: Found, metric: str) -> Value:
    return lambda case, strategy: found.spread(case, strategy, metric)


def _panel(axes: Axes, cases: Sequence[Case], strategies: list[str], panel: Panel, told: Sequence[Told]) -> None:
    scale, width = (100 if panel.unit == "%" else 1), 0.84 / len(strategies)
    for place, case in enumerate(cases):
        for nth, strategy in enumerate(strategies):
            over = panel.value(case, strategy) if strategy in case.strategies else None
            if over is None:
                continue
            x, height = place - 0.42 + (nth + 0.5) * width, over.median * scale
            reach = [[height - over.low * scale], [over.high * scale - height]]
            axes.bar(x, height, width * 0.9, color=COLOURS[strategy], yerr=reach, ecolor=INK, error_kw={"lw": 0.7})
            for entry in told:
                if (entry.case, entry.strategy, entry.metric) == (case, strategy, panel.metric):
                    low, high = entry.published
                    axes.plot([x, x], [low * scale, high * scale], color=RED, marker="D", ms=4, lw=1.2)
    axes.set_ylim(bottom=0)


def _least(axes: Axes, found: Found, cases: Sequence[Case]) -> None:
    for place, case in enumerate(cases):
        least = found.median(case, "kernel", LEAST)
        if least is not None:
            axes.plot([place - 0.42, place + 0.42], [least * 100] * 2, color=INK, lw=1.2, ls=(0, (2, 1)))
