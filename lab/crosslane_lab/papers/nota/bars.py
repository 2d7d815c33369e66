"""Bar charts: a group per case, a bar per strategy with its range over the seeds, and the published value."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from crosslane_lab.papers.nota.cases import Case
from crosslane_lab.papers.nota.published import Published
from crosslane_lab.papers.nota.results import DELIVERED_S, EXPENSIVE, MINIMUM, MISSED, OVERHEAD, WRITTEN_S, Results
from crosslane_lab.render.style import BLUE, GREEN, GREY, INK, MUTED, OCHRE, PURPLE, RED, SKY, WIDTH_IN, house_style
from crosslane_lab.runs.frame import Spread

COLOURS = {
    "single": MUTED,
    "kernel": GREY,
    "kernel-tuned": PURPLE,
    "mp-dpa": SKY,
    "mp-dpa-08": OCHRE,
    "deadline-mptcp": GREEN,
    "deadline": BLUE,
}
Value = Callable[[Case, str], Spread | None]


@dataclass(frozen=True)
class Panel:
    """One panel: its title, the unit (`%` or `s`), and the value of a bar."""

    title: str
    unit: str
    value: Value
    metric: str = ""


def panels(results: Results, *metrics: str) -> list[Panel]:
    """Panels of metrics of the run folders."""
    titles = {
        EXPENSIVE: ("share on the expensive path", "%"),
        MISSED: ("deadlines missed", "%"),
        OVERHEAD: ("IP bytes in excess of the payload", "%"),
        DELIVERED_S: ("time until read by the peer, median", "s"),
        WRITTEN_S: ("time until written, median", "s"),
    }
    return [Panel(*titles[metric], _of(results, metric), metric) for metric in metrics]


def draw(
    results: Results,
    cases: Sequence[Case],
    labels: Sequence[str],
    shown: Sequence[Panel],
    published: Sequence[Published] = (),
) -> Figure:
    """Panels side by side."""
    strategies = [s for s in COLOURS if any(s in case.strategies for case in cases)]
    with house_style():
        figure = Figure(figsize=(WIDTH_IN, 3.3))
        for axes, panel in zip(figure.subplots(1, len(shown), squeeze=False)[0], shown, strict=True):
            _panel(axes, cases, strategies, panel, published)
            if panel.metric == EXPENSIVE:
                _minimum(axes, results, cases)
            axes.set_xticks(range(len(cases)), labels, color=INK)
            axes.set_title(f"{panel.title} ({panel.unit})", fontsize=9)
        marks = [Line2D([], [], color=COLOURS[s], lw=6, label=s) for s in strategies]
        marks.append(Line2D([], [], color=RED, marker="D", ls="", ms=4, label="published"))
        marks.append(Line2D([], [], color=INK, lw=1.2, ls=(0, (2, 1)), label="minimum"))
        figure.legend(handles=marks, loc="lower center", ncols=len(marks), frameon=False, labelcolor=MUTED)
        figure.subplots_adjust(left=0.04, right=0.99, top=0.9, bottom=0.2, wspace=0.14)
    return figure


def _of(results: Results, metric: str) -> Value:
    return lambda case, strategy: results.spread(case, strategy, metric)


def _panel(
    axes: Axes, cases: Sequence[Case], strategies: list[str], panel: Panel, published: Sequence[Published]
) -> None:
    scale, width = (100 if panel.unit == "%" else 1), 0.84 / len(strategies)
    for index, case in enumerate(cases):
        for position, strategy in enumerate(strategies):
            stats = panel.value(case, strategy) if strategy in case.strategies else None
            if stats is None:
                continue
            x, height = index - 0.42 + (position + 0.5) * width, stats.median * scale
            error = [[height - stats.low * scale], [stats.high * scale - height]]
            axes.bar(x, height, width * 0.9, color=COLOURS[strategy], yerr=error, ecolor=INK, error_kw={"lw": 0.7})
            for entry in published:
                if (entry.case, entry.strategy, entry.metric) == (case, strategy, panel.metric):
                    low, high = entry.range
                    axes.plot([x, x], [low * scale, high * scale], color=RED, marker="D", ms=4, lw=1.2)
    axes.set_ylim(bottom=0)


def _minimum(axes: Axes, results: Results, cases: Sequence[Case]) -> None:
    for index, case in enumerate(cases):
        minimum = results.median(case, "kernel", MINIMUM)
        if minimum is not None:
            axes.plot([index - 0.42, index + 0.42], [minimum * 100] * 2, color=INK, lw=1.2, ls=(0, (2, 1)))
