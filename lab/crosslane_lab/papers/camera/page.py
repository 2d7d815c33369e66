"""The page of `crosslane-lab reproduce camera`: a table per rate, with the ratio to the better operator alone."""

from collections.abc import Iterator
from pathlib import Path
from statistics import fmean, median

import polars as pl

from crosslane_lab.papers.camera.campaign import BOTH, OURS, RATES, alone, rows
from crosslane_lab.papers.frame import Options, Results, filled, write_page
from crosslane_lab.render.markdown import table

TARGET = 0.6
"""Late or dropped frames over both operators, as a part of those over the better operator alone."""


def write(results: Results, options: Options) -> list[Path]:
    """Write the page and the underlying rows; returns the files written."""
    frame = rows(results)
    return write_page(page(frame), frame, options)


def page(frame: pl.DataFrame) -> str:
    """The page in Markdown, a function of the rows only."""
    lines: list[str] = []
    for rate in RATES:
        lines += [f"**{rate.name.replace('-', ' to ')} Mbit/s**", "", *_table(frame, rate.name), ""]
        lines += [_verdict(frame, rate.name), ""]
    return filled(
        Path(__file__).with_name("page.template"),
        drives=frame["drive"].n_unique(),
        tables="\n".join(lines).rstrip(),
    )


def _places(frame: pl.DataFrame, rate: str) -> dict[str, pl.DataFrame]:
    at_rate = frame.filter(pl.col("rate") == rate)
    both = at_rate.filter(pl.col("place") == BOTH)
    return {
        "both operators, `deadline`": both.filter(pl.col("strategy") == OURS),
        "the better one alone, `deadline`": alone(at_rate, OURS),
        "both operators, `kernel` (MPTCP)": both.filter(pl.col("strategy") == "kernel"),
        "the better one alone, plain TCP": alone(at_rate, "single"),
    }


def _table(frame: pl.DataFrame, rate: str) -> Iterator[str]:
    head = ["over", "late or dropped %", "of those that may not be dropped %", "delivered Mbit/s", "overhead %"]
    return table(head, (_cells(name, part) for name, part in _places(frame, rate).items()), compact=True)


def _cells(name: str, part: pl.DataFrame) -> list[str]:
    share = [f"{fmean(part[column].to_list() or [0.0]) * 100:.1f}" for column in ("missed", "undroppable")]
    overhead = part["overhead"].drop_nulls().to_list()
    rate = fmean(part["mbit_s"].to_list() or [0.0])
    return [name, *share, f"{rate:.1f}", f"{median(overhead) * 100:.1f}" if overhead else "–"]


def _verdict(frame: pl.DataFrame, rate: str) -> str:
    ours, single, *_ = _places(frame, rate).values()
    pairs = ours.join(single, on=["drive", "rate"], suffix="_alone")
    reached = pairs.filter(pl.col("missed") <= TARGET * pl.col("missed_alone")).height
    ratio = sum(pairs["missed"].to_list()) / max(sum(pairs["missed_alone"].to_list()), 1e-9)
    met = "reached" if ratio <= TARGET else "**not reached**"
    return (
        f"Over all drives {ratio:.2f} of the better operator alone by the same engine (target: {TARGET}, {met}); "
        f"in {reached} of {pairs.height} drives at most {TARGET}."
    )
