"""The page of `crosslane-lab reproduce drives`: a table per kind of message and choice of operators."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

from crosslane_lab.papers.drives.campaign import MODES, TRAFFIC, pooled, rows, title
from crosslane_lab.papers.frame import DASH, Options, Results, filled, write_page
from crosslane_lab.render.markdown import table

ALL_PAIRS = "all pairs"
ALL_THREE = "all three"

ALL_TWICE = "tunnel-redundant"
TARGETS = {"adaptive": 2.2, "tunnel-adaptive": 1.5}
"""Late or lost at most, as a multiple of that with all sent twice, on each choice of operators."""


def write(results: Results, options: Options) -> list[Path]:
    """Write the page and the underlying rows; returns the files written."""
    frame = rows(results)
    return write_page(page(frame, (options.figures or MODES)[0]), frame, options)


def page(frame: pl.DataFrame, mode: str = MODES[0]) -> str:
    """The page in Markdown, a function of the rows only."""
    triple = pl.col("operators").str.count_matches(r"\+") == 2
    orders = pl.when(triple).then(pl.lit(ALL_THREE)).otherwise("operators").alias("operators")
    of_orders = frame.with_columns(orders)
    of_all = frame.filter(~triple).with_columns(operators=pl.lit(ALL_PAIRS))
    pools = pooled(pl.concat([of_all, of_orders]))
    lines: list[str] = []
    for traffic, (size_bytes, every_ms) in TRAFFIC.items():
        of = pools.filter(pl.col("traffic") == traffic)
        if of.is_empty():
            continue
        lines += ["", f"## {size_bytes} bytes every {every_ms} ms", "", *_ratios(of)]
        for operators in sorted(of["operators"].unique(), key=lambda name: (name != ALL_PAIRS, name)):
            part = of.filter(pl.col("operators") == operators)
            lines += ["", f"**{_title(operators)}** ({part['drives'].max()} drives)", "", *_table(part)]
    segments = frame["segment"].n_unique()
    return filled(
        Path(__file__).with_name("page.template"),
        segments=segments,
        mode=mode,
        tables="\n".join(lines).lstrip(),
    )


def _title(operators: str) -> str:
    if "+" not in operators:
        return operators.capitalize()
    return title(operators)


def _ratios(frame: pl.DataFrame) -> Iterator[str]:
    """What is late or lost as a multiple of that with all sent twice."""
    late = {(row["operators"], row["strategy"]): row["late"] for row in frame.iter_rows(named=True)}

    def cells(operators: str) -> Iterator[str]:
        twice = late.get((operators, ALL_TWICE))
        yield DASH if twice is None else f"{twice * 100:.2f}"
        for name, most in TARGETS.items():
            ours = late.get((operators, name))
            ratio = ours / twice if twice and ours is not None else None
            text = DASH if ratio is None else f"{ratio:.2f}"
            yield f"**{text}**" if ratio and ratio > most else text

    asked = (f"`{name}`, × (asked: {most})" for name, most in TARGETS.items())
    head = ["late or lost", f"`{ALL_TWICE}`, %", *asked]
    order = sorted(frame["operators"].unique(), key=lambda name: (name not in (ALL_PAIRS, ALL_THREE), name))
    yield from table(head, ([_title(each), *cells(each)] for each in order), compact=True)


def _table(frame: pl.DataFrame) -> Iterator[str]:
    head = ["strategy", "late or lost %", "delay ms, p50", "p99", "worst, p50 over drives", "p75", "p90", "changes"]
    return table(head, map(_cells, frame.iter_rows(named=True)), compact=True)


def _cells(row: dict[str, Any]) -> list[str]:
    delays = [row[key] for key in ("p50_ms", "p99_ms", "worst_p50_ms", "worst_p75_ms", "worst_p90_ms")]
    changes = DASH if row["changes"] is None else f"{row['changes']:.0f}"
    return [f"`{row['strategy']}`", f"{row['late'] * 100:.2f}", *(f"{delay:.0f}" for delay in delays), changes]
