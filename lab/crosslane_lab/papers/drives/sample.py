"""`crosslane-lab reproduce drives --engine kernel`: a sample of the segments, driven and simulated."""

from collections.abc import Iterator
from pathlib import Path

import polars as pl

from crosslane_lab.errors import unreadable
from crosslane_lab.papers.drives import campaign
from crosslane_lab.papers.drives.campaign import FIRST_TRAFFIC, STRATEGIES
from crosslane_lab.papers.frame import DASH, Options, Results, filled, write_page
from crosslane_lab.render.markdown import table
from crosslane_lab.runs.runner import Comparison

COUNT = 5
"""Number of scenarios, spread over all."""

MOST_S = 120
"""Longest run."""

_SIMULATED = "simulated/"


def plan(options: Options) -> list[Comparison]:
    """Every strategy over the sample, on the kernel and in the simulator."""
    mode, found = campaign.chosen(options)
    if mode not in campaign.MODES:
        raise unreadable("the command line", f"{mode} on the kernel", "leave out --engine kernel")
    comparisons: list[Comparison] = []
    for drive in found[:: max(1, len(found) // COUNT)][:COUNT]:
        name = campaign.name(drive, FIRST_TRAFFIC, mode)
        scenario = campaign.scenario(drive, FIRST_TRAFFIC, mode, MOST_S)
        comparisons.append(Comparison(name, scenario, STRATEGIES, engine="kernel"))
        comparisons.append(Comparison(_SIMULATED + name, scenario, STRATEGIES))
    return comparisons


def rows(results: Results) -> pl.DataFrame:
    """A row per drive, strategy and engine."""
    is_simulated = results.frame["run"].str.starts_with(_SIMULATED)
    return campaign.rows(results).with_columns(is_simulated.alias("simulated"))


def write(results: Results, options: Options) -> list[Path]:
    """Write the page and the underlying rows; returns the files written."""
    frame = rows(results)
    return write_page(page(frame, (options.figures or campaign.MODES)[0]), frame, options)


def page(frame: pl.DataFrame, mode: str = campaign.MODES[0]) -> str:
    """The page in Markdown, a function of the rows only."""
    lines: list[str] = []
    for segment, operators in frame.select("segment", "operators").unique(maintain_order=True).rows():
        of = frame.filter(segment=segment, operators=operators)
        lines += ["", f"**{segment}**: {campaign.title(operators)}", "", *_table(of)]
    return filled(Path(__file__).with_name("sample.template"), mode=mode, tables="\n".join(lines).lstrip())


def _table(frame: pl.DataFrame) -> Iterator[str]:
    head = ["strategy", "late or lost %, driven", "simulated", "p99 ms, driven", "simulated", "worst ms, driven"]
    return table([*head, "simulated", "changes, driven", "simulated"], _lines(frame), compact=True)


def _lines(frame: pl.DataFrame) -> Iterator[list[str]]:
    columns = (("late", 100, 2), ("p99_ms", 1, 0), ("worst_ms", 1, 0), ("changes", 1, 0))
    for strategy in STRATEGIES:
        of = {row["simulated"]: row for row in frame.filter(strategy=strategy).iter_rows(named=True)}
        cells = [f"`{strategy}`"]
        for column, factor, digits in columns:
            figures = (of.get(simulated, {}).get(column) for simulated in (False, True))
            cells += [DASH if figure is None else f"{figure * factor:.{digits}f}" for figure in figures]
        yield cells
