"""Line charts: over the deadline, over α, over time, and distributions of rates."""

from collections.abc import Callable, Sequence

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from crosslane_lab.papers.nota import traces as nota
from crosslane_lab.papers.nota.bars import COLOURS
from crosslane_lab.papers.nota.cases import ALPHAS, CONGESTIONS, LIMITS_S, SWEPT_S, Case, mp_dpa
from crosslane_lab.papers.nota.published import SAFE_ALPHA, SAVING_ALPHA
from crosslane_lab.papers.nota.results import EXPENSIVE, MINIMUM, MISSED, MU1, MU2, Results
from crosslane_lab.render.style import BLUE, GREEN, INK, MUTED, OCHRE, ORANGE, RED, WIDTH_IN, house_style
from crosslane_lab.runs.folder import Run

_COLOURS = {"lte-a": BLUE, "lte-b": ORANGE}
_BIN_S = 1.0


def limits(results: Results) -> Figure:
    """Figures 6.15 and 6.16: savings and reliability with deadlines down to 5 s."""
    with house_style():
        figure = Figure(figsize=(WIDTH_IN, 5.4))
        grid = figure.subplots(2, 2, sharex=True)
        for row, base in zip(grid, ("symmetric", "asymmetric"), strict=True):
            cases = [Case(base, d) for d in LIMITS_S]
            for axes, metric in zip(row, (EXPENSIVE, MISSED), strict=True):
                for strategy in ("single", "kernel", "mp-dpa", "mp-dpa-08", "deadline-mptcp", "deadline"):
                    _line(
                        axes,
                        LIMITS_S,
                        [results.median(c, strategy, metric) for c in cases],
                        COLOURS[strategy],
                        strategy,
                    )
                if metric == EXPENSIVE:
                    _line(
                        axes, LIMITS_S, [results.median(c, "kernel", MINIMUM) for c in cases], INK, "minimum", "--"
                    )
                word = "share on the expensive path" if metric == EXPENSIVE else "deadlines missed"
                axes.set_title(f"{base}: {word} (%)", fontsize=9)
                axes.set_ylim(bottom=0)
        for axes in grid[1]:
            axes.set_xlabel("deadline (s)")
        grid[0][0].legend(frameon=False, labelcolor=MUTED, ncols=3, fontsize=7)
        figure.subplots_adjust(left=0.04, right=0.99, top=0.94, bottom=0.09, wspace=0.1, hspace=0.22)
    return figure


def alphas(results: Results) -> Figure:
    """Figures 6.17 to 6.27: shares, misses, overhead and both utility factors over α, with BBR and cubic."""
    measures: dict[str, Callable[[Case, float], float]] = {
        "expensive path (%)": lambda case, a: 100 * (results.median(case, mp_dpa(a), EXPENSIVE) or 0),
        "missed (%)": lambda case, a: 100 * (results.median(case, mp_dpa(a), MISSED) or 0),
        "excess bytes (%)": lambda case, a: 100 * results.excess(case, mp_dpa(a)),
        "µ₁": lambda case, a: results.mu(case, mp_dpa(a), MU1),
        "µ₂": lambda case, a: results.mu(case, mp_dpa(a), MU2),
    }
    setups = [(base, d) for base in ("symmetric", "asymmetric") for d in SWEPT_S]
    with house_style():
        figure = Figure(figsize=(WIDTH_IN, 8.2))
        grid = figure.subplots(len(measures), len(setups), sharex=True, sharey="row")
        for column, (base, deadline_s) in zip(grid.T, setups, strict=True):
            column[0].set_title(f"{base}, {deadline_s:g} s")
            column[-1].set_xlabel("α")
            for axes, (word, measure) in zip(column, measures.items(), strict=True):
                for congestion, colour in zip(CONGESTIONS, (GREEN, OCHRE), strict=True):
                    case = Case(base, deadline_s, congestion)
                    _line(axes, ALPHAS, [measure(case, alpha) for alpha in ALPHAS], colour, congestion)
                best = (SAVING_ALPHA if word == "µ₂" else SAFE_ALPHA)[base, deadline_s]
                axes.axvline(best, color=RED, lw=1, ls="--", label="published best α")
        for row, word in zip(grid, measures, strict=True):
            row[0].set_ylabel(word)
        grid[0][0].legend(frameon=False, labelcolor=MUTED, fontsize=7)
        figure.subplots_adjust(left=0.06, right=0.99, top=0.96, bottom=0.06, wspace=0.06, hspace=0.12)
    return figure


def throughput(results: Results, shown: Sequence[tuple[Case, str]]) -> Figure:
    """Throughput of both paths in each second, one run per row (as figures 6.3, 6.10, 6.28, 6.33)."""
    with house_style():
        figure = Figure(figsize=(WIDTH_IN, 1.25 * len(shown) + 0.6))
        rows = figure.subplots(len(shown), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
        for axes, (case, strategy) in zip(rows, shown, strict=True):
            for path, rates in _rates(results.recorded(case, strategy)).items():
                at_s = np.arange(len(rates)) * _BIN_S
                axes.fill_between(at_s, rates, step="post", color=_COLOURS[path], alpha=0.25, lw=0)
                axes.step(at_s, rates, where="post", color=_COLOURS[path], lw=1, label=path)
            axes.set_title(f"{strategy}, deadline {case.deadline_s:g} s", fontsize=9)
            axes.set_ylabel("Mbit/s")
            axes.set_ylim(bottom=0)
        rows[0].legend(frameon=False, labelcolor=MUTED, loc="upper right", ncols=2)
        rows[-1].set_xlabel("time since the start of the run (s)")
        figure.subplots_adjust(
            left=0.05, right=0.99, top=1 - 0.3 / figure.get_figheight(), bottom=0.09, hspace=0.35
        )
    return figure


def densities(results: Results, shown: Sequence[tuple[Case, str]]) -> Figure:
    """Distribution of the rates of a path over the seconds with data (as figures 6.4 to 6.6, 6.11, 6.12)."""
    with house_style():
        figure = Figure(figsize=(WIDTH_IN, 2.6))
        for axes, (case, strategy) in zip(figure.subplots(1, len(shown), sharey=True), shown, strict=True):
            _histograms(axes, _rates(results.recorded(case, strategy)), 16)
            axes.set_title(f"{case.base}: {strategy}, {case.deadline_s:g} s", fontsize=9)
        figure.subplots_adjust(left=0.05, right=0.99, top=0.9, bottom=0.17, wspace=0.08)
    return figure


def roads() -> Figure:
    """Figures 6.32, 6.36, 6.40: the rates of both operators and their distribution."""
    with house_style():
        figure = Figure(figsize=(WIDTH_IN, 6.6))
        grid = figure.subplots(len(nota.ROADS), 2, width_ratios=[3, 1])
        for (over_time, spread), road in zip(grid, nota.ROADS, strict=True):
            both = {"lte-a": nota.rates(road, road.a), "lte-b": nota.rates(road, road.b)}
            for (path, rates), profile in zip(both.items(), (road.a, road.b), strict=True):
                over_time.step(
                    range(len(rates)), rates, where="post", color=_COLOURS[path], lw=1, label=profile.operator
                )
            over_time.axhline(nota.NEEDED_MBIT_S, color=MUTED, lw=0.8, ls="--", label="100 MB in 60 s")
            over_time.set_title(road.name)
            over_time.set_ylabel("Mbit/s")
            over_time.set_xlim(0, road.duration_s)
            _histograms(spread, {path: np.array(rates) for path, rates in both.items()}, 50)
        grid[0][0].legend(frameon=False, labelcolor=MUTED, ncols=3, loc="upper right")
        grid[-1][0].set_xlabel("time (s)")
        figure.subplots_adjust(left=0.05, right=0.99, top=0.95, bottom=0.07, wspace=0.08, hspace=0.32)
    return figure


def _line(
    axes: Axes, over: Sequence[float], values: Sequence[float | None], colour: str, label: str, style: str = "-"
) -> None:
    scale = 100 if style == "--" or label in COLOURS else 1
    heights = [np.nan if value is None else value * scale for value in values]
    axes.plot(over, heights, color=colour, lw=1.4, ls=style, marker="o", ms=2.5, label=label)


def _rates(run: Run) -> dict[str, np.ndarray]:
    """Uplink payload of each path per second, in Mbit/s."""
    table = run.throughput.filter(pl.col("direction") == "up").collect()
    size_ns = int(_BIN_S * 1e9)
    count = int(table["t_ns"].max() or 0) // size_ns + 1  # type: ignore[operator]
    rates = {}
    for path in _COLOURS:
        of_path = table.filter(pl.col("path") == path)
        seconds = (of_path["t_ns"] // size_ns).to_numpy()
        rates[path] = np.bincount(seconds, of_path["payload_bytes"].to_numpy(), count) * 8e-6 / _BIN_S
    return rates


def _histograms(axes: Axes, rates: dict[str, np.ndarray], top: float) -> None:
    edges = [top * edge / 25 for edge in range(26)]
    for path, values in rates.items():
        nonzero = values[values > 0]
        axes.hist(nonzero, edges, density=True, histtype="stepfilled", alpha=0.3, color=_COLOURS[path])
        axes.hist(nonzero, edges, density=True, histtype="step", color=_COLOURS[path], label=path)
    axes.set_xlabel("Mbit/s")
