"""The figures of Szilágyi & Kovács 2022 from our drives: goodput, CPU time, goodput over time."""

from collections.abc import Callable, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from crosslane_lab.papers.szilagyi.results import (
    BARS,
    FIRST,
    REDUNDANCY_STRATEGIES,
    SECOND,
    VXLAN_FIRST,
    VXLAN_SECOND,
    Case,
)
from crosslane_lab.render.style import (
    FAINT,
    GREEN,
    GREY,
    INK,
    MUTED,
    OCHRE,
    ORANGE,
    PURPLE,
    RED,
    SKY,
    WIDTH_IN,
    house_style,
)
from crosslane_lab.runs.frame import Spread

COLOURS = {
    FIRST: MUTED,
    SECOND: MUTED,
    VXLAN_FIRST: OCHRE,
    VXLAN_SECOND: OCHRE,
    "kernel": GREY,
    "kernel-tuned": PURPLE,
    "tunnel": GREEN,
    "tunnel-plain": SKY,
    "tunnel-redundant": ORANGE,
}
NAMES = {FIRST: "path 1", SECOND: "path 2", VXLAN_FIRST: "VXLAN 1", VXLAN_SECOND: "VXLAN 2"}
GOODPUT_MBIT_S = {
    "equal": {FIRST: 60.0, SECOND: 60.0, "tunnel": 107.0},
    "unequal": {FIRST: 246.0, SECOND: 469.0, "tunnel": 247.0},
}
"""Published in figures 5 and 7; the values of MPT-GRE are shown at `tunnel`."""
TITLES = {"equal": "60 + 60 Mbit/s (figure {})", "unequal": "246 + 469 Mbit/s (figure {})"}


def goodput(cases: dict[str, Case]) -> Figure:
    """Figures 5 and 7: a bar per strategy, its range over the runs, and the published value."""
    with house_style():
        figure, panels = _panels()
        for axes, case, number in zip(panels, TITLES, (5, 7), strict=True):
            _bars(axes, BARS, cases[case].goodput)
            for strategy, published in GOODPUT_MBIT_S[case].items():
                axes.plot(BARS.index(strategy), published, color=RED, marker="D", ms=5, ls="")
            axes.set_title(f"goodput in Mbit/s, {TITLES[case].format(number)}", fontsize=9)
        marks = [Line2D([], [], color=RED, marker="D", ls="", ms=5, label="published; at `tunnel`: MPT-GRE")]
        figure.legend(handles=marks, loc="lower center", frameon=False, labelcolor=MUTED)
    return figure


def cpu(cases: dict[str, Case]) -> Figure:
    """Figures 6 and 8: CPU time of both endpoints of our tunnel; the paper measures another quantity."""
    with house_style():
        figure, panels = _panels()
        for axes, case, number in zip(panels, TITLES, (6, 8), strict=True):
            _bars(axes, ("tunnel", "tunnel-plain"), cases[case].cpu_s_per_gb)
            axes.set_title(f"CPU-seconds per GB, {TITLES[case].format(number)}", fontsize=9)
    return figure


def timeline(case: Case) -> Figure:
    """Figure 9: goodput in each second while an interface is down, a panel per strategy."""
    with house_style():
        figure = Figure(figsize=(WIDTH_IN, 5.0))
        panels: Sequence[Axes] = figure.subplots(len(REDUNDANCY_STRATEGIES), 1, sharex=True, sharey=True)
        for axes, strategy in zip(panels, REDUNDANCY_STRATEGIES, strict=True):
            for begin, end in case.outages_s:
                axes.axvspan(begin, end, color=FAINT, alpha=0.5, lw=0)
            rates = case.per_second(strategy)
            axes.step(range(len(rates)), rates, where="post", color=COLOURS[strategy], lw=1.6)
            axes.set_ylim(bottom=0)
            axes.set_title(strategy, fontsize=9)
        panels[-1].set_xlabel("seconds; grey: an interface is down (the first, then the second)")
        figure.supylabel("Mbit/s in each second", fontsize=8.5, color=MUTED)
        figure.subplots_adjust(left=0.06, right=0.99, top=0.94, bottom=0.1, hspace=0.45)
    return figure


def _panels() -> tuple[Figure, Sequence[Axes]]:
    figure = Figure(figsize=(WIDTH_IN, 3.3))
    panels: Sequence[Axes] = figure.subplots(1, 2)
    figure.subplots_adjust(left=0.04, right=0.99, top=0.9, bottom=0.2, wspace=0.1)
    return figure, panels


def _bars(axes: Axes, strategies: Sequence[str], value: Callable[[str], Spread | None]) -> None:
    for index, strategy in enumerate(strategies):
        stats = value(strategy)
        if stats is None:
            continue
        error = [[stats.median - stats.low], [stats.high - stats.median]]
        axes.bar(index, stats.median, 0.7, color=COLOURS[strategy], yerr=error, ecolor=INK, error_kw={"lw": 0.8})
    axes.set_xticks(range(len(strategies)), [NAMES.get(name, name) for name in strategies], color=INK)
    axes.set_ylim(bottom=0)
