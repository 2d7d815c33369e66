"""The page of `crosslane-lab reproduce adaptive`: a table and a figure, functions of the rows only."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from crosslane_lab.output import write_file
from crosslane_lab.papers.adaptive.campaign import LATE_MS, LIMIT_MS, OTHERS, SCENARIOS, named, rows
from crosslane_lab.papers.frame import Options, Results, filled
from crosslane_lab.render.markdown import table
from crosslane_lab.render.style import BLUE, GREEN, GREY, INK, MUTED, OCHRE, ORANGE, PURPLE, WIDTH_IN, house_style
from crosslane_lab.render.svg import png

_COLOURS = dict(zip(OTHERS, (GREEN, OCHRE, BLUE, GREY, PURPLE), strict=True))


def write(results: Results, options: Options) -> list[Path]:
    """Write the page, its figure and the rows; returns the files written."""
    frame = rows(results)
    files = [options.out, options.out.with_suffix(".png"), options.out.with_suffix(".csv")]
    write_file(files[0], page(frame, files[1].name))
    write_file(files[1], png(draw(frame)))
    write_file(files[2], frame.write_csv())
    return files


def page(frame: pl.DataFrame, figure: str) -> str:
    """The page in Markdown."""
    head = ["scenario", "strategy", "share %", "worst", "p95", "in time %"]
    return filled(
        Path(__file__).with_name("page.template"),
        seeds=frame["seeds"].max(),
        figure=figure,
        limit_ms=LIMIT_MS,
        table="\n".join(table(head, map(_cells, frame.iter_rows(named=True)), compact=True)),
        targets="\n".join(_targets(frame)),
    )


def _cells(row: dict[str, Any]) -> list[str]:
    name = f"`adaptive`, {row['late_ms']}" if row["late_ms"] else f"`{row['strategy']}`"
    delays = [f"{row[key]:.0f}" for key in ("worst", "p95")]
    return [row["scenario"], name, f"{row['share'] * 100:.1f}", *delays, f"{row['in_time'] * 100:.0f}"]


def _row(frame: pl.DataFrame, scenario: str, strategy: str) -> dict[str, Any]:
    return frame.row(by_predicate=(pl.col("scenario") == scenario) & (pl.col("strategy") == strategy), named=True)


def _verdict(is_met: bool) -> str:
    return "reached" if is_met else "**not reached**"


def _targets(frame: pl.DataFrame) -> Iterator[str]:
    cells = []
    for scenario, share in SCENARIOS.items():
        ours, threshold, oracle = (_row(frame, scenario, name) for name in (named(LIMIT_MS), "threshold", "oracle"))
        is_met = ours["in_time"] >= 0.95 and ours["share"] >= share
        asked = f"{LIMIT_MS}: in time in 95 %, at {share * 100:.0f} %"
        cells.append([scenario, asked, _verdict(is_met)])
        ours = _row(frame, scenario, named(150))
        ratio = ours["share"] / oracle["share"]
        is_met = ratio >= 0.95 and ours["worst"] <= oracle["worst"] and ours["p95"] <= oracle["p95"]
        found = f"{_verdict(is_met)}: {ratio:.3f} ×, median {ours['worst']:.0f} and {oracle['worst']:.0f} ms"
        cells.append([scenario, "150: share 0.95 × that of `oracle`, not later than it in median and p95", found])
        ours = _row(frame, scenario, named(30))
        is_met = ours["share"] > threshold["share"] and all(
            ours[key] <= threshold[key] + 5 for key in ("worst", "p95")
        )
        more = (ours["share"] - threshold["share"]) * 100
        asked = "30: share above that of `threshold`, at most 5 ms later in median and p95"
        cells.append([scenario, asked, f"{_verdict(is_met)}: {more:+.1f} points"])
    return table(["scenario", "`late_ms`: asked", "found"], cells, compact=True)


def draw(frame: pl.DataFrame) -> Figure:
    """A panel per scenario: worst delay over share. `adaptive` is a curve; a line leads from median to p95."""
    with house_style():
        figure = Figure(figsize=(WIDTH_IN, 3.6))
        panels = figure.subplots(1, len(SCENARIOS), sharey=True)
        for axes, scenario in zip(panels, SCENARIOS, strict=True):
            part = frame.filter(pl.col("scenario") == scenario)
            curve = part.filter(pl.col("late_ms").is_not_null())
            share = curve["share"] * 100
            axes.vlines(share, curve["worst"], curve["p95"], color=ORANGE, alpha=0.4)
            axes.plot(share, curve["worst"], "o-", color=ORANGE, markersize=4, label="adaptive, by late_ms")
            for late_ms in (LATE_MS[0], LIMIT_MS):
                at = _row(frame, scenario, named(late_ms))
                place = (at["share"] * 100, at["worst"])
                axes.annotate(
                    f"{late_ms}", place, (0, -12), textcoords="offset points", ha="center", color=INK, fontsize=7
                )
            for strategy, colour in _COLOURS.items():
                at = _row(frame, scenario, strategy)
                axes.vlines(at["share"] * 100, at["worst"], at["p95"], color=colour, alpha=0.4)
                axes.plot(at["share"] * 100, at["worst"], "s", color=colour, markersize=5, label=strategy)
            axes.set_title(scenario)
            axes.set_xlim(0, 102)
            axes.set_yscale("log")
            axes.set_xlabel("share of the roadside network (%)")
        panels[0].yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        panels[0].yaxis.set_minor_formatter(NullFormatter())
        panels[0].set_ylabel("worst delay of a drive (ms)")
        panels[0].legend(loc="upper left", frameon=False, fontsize=7, labelcolor=MUTED)
        figure.subplots_adjust(left=0.06, right=0.99, top=0.9, bottom=0.14, wspace=0.08)
    return figure
