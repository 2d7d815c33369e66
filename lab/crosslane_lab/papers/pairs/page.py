"""The page of `crosslane-lab reproduce pairs`: strategies compared with the better path alone, over the pairs."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

from crosslane_lab.papers.frame import Options, Results
from crosslane_lab.papers.pairs.campaign import SINGLE, TRAFFIC, rows
from crosslane_lab.render.markdown import table

HEADERS = 0.953
"""Share of a path's rate that the headers of the encrypted tunnel leave."""


def write(results: Results, options: Options) -> list[Path]:
    """Write the page and the underlying rows; returns the files written."""
    frame = rows(results)
    files = [options.out, options.out.with_suffix(".csv")]
    files[0].write_text("\n".join(page(frame)) + "\n", encoding="utf-8")
    frame.write_csv(files[1])
    return files


def page(frame: pl.DataFrame) -> Iterator[str]:
    """The page in Markdown, a function of the rows only."""
    lots = ", ".join(map(str, sorted(frame["lot"].unique())))
    yield f"# Pairs of paths drawn at random: lots {lots}"
    for traffic in TRAFFIC:
        yield from ["", f"## {traffic}", ""]
        yield from _table(compared(frame, traffic), traffic)


def compared(frame: pl.DataFrame, traffic: str) -> pl.DataFrame:
    """A row per pair and strategy; `value` is goodput as a share of the better path's, or p99 less the better's.

    For a tunnel the better path's goodput is without the tunnel's headers.
    """
    of = frame.filter(pl.col("traffic") == traffic)
    is_bulk, pair = traffic != "messages", ["lot", "pair"]
    metric = "goodput_mbit_s" if is_bulk else "p99_ms"
    alone = of.filter(pl.col("strategy").is_in(SINGLE)).group_by(pair)
    better = alone.agg(better=pl.col(metric).max() if is_bulk else pl.col(metric).min())
    headers = pl.when(pl.col("strategy").str.starts_with("tunnel")).then(HEADERS).otherwise(1.0)
    value = pl.col(metric) / (pl.col("better") * headers) if is_bulk else pl.col(metric) - pl.col("better")
    others = of.filter(~pl.col("strategy").is_in(SINGLE)).join(better, on=pair)
    return others.select(*pair, "strategy", value=value)


def _table(frame: pl.DataFrame, traffic: str) -> Iterator[str]:
    is_bulk = traffic != "messages"
    harmed = pl.col("value") < 0.97 if is_bulk else pl.col("value") > 5
    pools = frame.group_by("strategy", maintain_order=True).agg(
        pairs=pl.len(),
        median=pl.col("value").median(),
        tail=pl.col("value").quantile(0.1 if is_bulk else 0.9, "nearest"),
        worst=pl.col("value").min() if is_bulk else pl.col("value").max(),
        harmed=harmed.sum(),
    )
    if is_bulk:
        head = ["strategy", "pairs", "times the better path, median", "p10", "worst", "below 0.97"]
    else:
        head = ["strategy", "pairs", "ms above the better path's p99, median", "p90", "worst", "above 5 ms"]
    return table(head, (_cells(row, 2 if is_bulk else 0) for row in pools.iter_rows(named=True)), compact=True)


def _cells(row: dict[str, Any], digits: int) -> list[str]:
    values = [f"{row[key]:.{digits}f}" for key in ("median", "tail", "worst")]
    return [f"`{row['strategy']}`", str(row["pairs"]), *values, str(row["harmed"])]
