"""Figures 4 and 5 of Torrinhas et al. 2024 from our runs: bitrate and RTT of each subflow over time."""

from collections.abc import Mapping, Sequence

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from crosslane_lab.papers.frame import Results
from crosslane_lab.papers.torrinhas.results import OURS, PHASES, bitrates, rtts
from crosslane_lab.render.style import BLUE, FAINT, ORANGE, PURPLE, WIDTH_IN, annotate_empty, house_style

COLOURS = {"rsu1": ORANGE, "rsu2": BLUE, "rsu3": PURPLE}
"""The paper has subflow 2 in blue."""


def draw(results: Results, runs: Mapping[str, str]) -> Figure:
    """A column per run with its title: above the bitrate in each second, below the RTT; of the first valid seed."""
    with house_style():
        figure = Figure(figsize=(WIDTH_IN, 4.6))
        panels = figure.subplots(2, len(runs), sharex=True, sharey="row", squeeze=False)
        for (above, below), (run, title) in zip(panels.T, runs.items(), strict=True):
            valid = results.runs(run, OURS)
            if not valid:
                annotate_empty(above, "no valid run")
                continue
            _lines(above, bitrates(valid[0]), "mbit_s")
            _lines(below, rtts(valid[0]), "rtt_ms")
            above.set_title(title.replace("The same", "Scenario 2"))
            below.set_xlabel("seconds; dotted: a unit appears or is gone")
        for axes, label in zip(panels[:, 0], ("a) Mbit/s by subflow", "b) RTT in ms"), strict=True):
            axes.set_ylabel(label)
            axes.set_ylim(bottom=0)
        figure.legend(*panels[0, 0].get_legend_handles_labels(), loc="upper right", ncols=3, frameon=False)
        figure.subplots_adjust(left=0.05, right=0.99, top=0.88, bottom=0.1, hspace=0.12, wspace=0.06)
    return figure


def _lines(axes: Axes, frame: pl.DataFrame, column: str) -> None:
    """A line per subflow, broken where it carries nothing or its unit is not in reach."""
    seconds: Sequence[int] = range(PHASES[-1].to_s)
    for unit, colour in COLOURS.items():
        of = dict(frame.filter(pl.col("path") == unit).select("second", column).iter_rows())
        values = [of.get(each) or float("nan") for each in seconds]
        axes.plot(seconds, values, color=colour, lw=1.4, label=f"subflow {unit[-1]} ({unit.upper()})")
    for at_s in (each.from_s for each in PHASES[1:]):
        axes.axvline(at_s, color=FAINT, lw=1, ls=":")
