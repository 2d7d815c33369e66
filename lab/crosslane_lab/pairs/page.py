"""The page of `crosslane-lab tunnel-pairs`: strategies compared with the better path alone, over the draws."""

from collections.abc import Iterator
from math import inf
from typing import Any

import polars as pl

from crosslane_lab.pairs.draw import TRAFFIC, Lot
from crosslane_lab.papers.frame import Results
from crosslane_lab.render.markdown import table
from crosslane_lab.runs.catalog import GOODPUT
from crosslane_lab.runs.frame import metric

HEADERS = 0.953
"""Share of a path's rate that the headers of the encrypted tunnel leave."""
WORST = 10
"""Draws that are listed, with the worst first."""
NEAR = 0.1
"""How far the engines may differ, as a share of the simulated value."""


def rows(results: Results) -> pl.DataFrame:
    """A row per run: lot, traffic, draw, paths, strategy, goodput in Mbit/s and p99 of the delay in ms."""
    parts, frame = pl.col("run").str.split("/"), results.frame
    return frame.select(
        lot=parts.list.get(0),
        traffic=parts.list.get(1),
        draw=parts.list.get(2).cast(pl.Int64),
        paths=parts.list.get(3),
        strategy="strategy",
        goodput_mbit_s=metric(frame, GOODPUT),
        p99_ms=metric(frame, "delivery_delay_ms.p99"),
    )


def page(frame: pl.DataFrame, lots: list[Lot]) -> Iterator[str]:
    """The page in Markdown, a function of the rows only."""
    drawn = ", ".join(f"{lot.count} {lot.name.replace('-', ' of seed ')}" for lot in lots)
    yield f"# Paths drawn at random: {drawn}"
    for lot in lots:
        for traffic in TRAFFIC:
            of = compared(frame.filter((pl.col("lot") == lot.name) & (pl.col("traffic") == traffic)))
            yield from ["", f"## {lot.name}, {traffic}", ""]
            yield from _distribution(of, traffic)
            yield from ["", f"The {WORST} worst of `tunnel`:", ""]
            yield from _worst(of, traffic, lot)
        if (frame["lot"] == lot.driven_name).any():
            yield from _driven(frame, lot)


def compared(frame: pl.DataFrame) -> pl.DataFrame:
    """A row per draw and strategy of one kind of traffic, with `value` and `of_kernel`.

    `value` is goodput as a share of the better path's, for a tunnel without its headers; of messages the p99 less
    the better path's, in ms. `of_kernel` is the same relative to `kernel`. Strategy `tunnel-pair` is the better
    `tunnel` over a pair of a triple. A run that delivered nothing has a goodput of 0, or an endless delay, and is
    left out if no path alone delivered anything either.
    """
    is_bulk = not frame["traffic"].is_in(["messages"]).any()
    frame = frame.with_columns(
        ours=pl.col("goodput_mbit_s").fill_null(0.0) if is_bulk else pl.col("p99_ms").fill_null(inf)
    )
    ours = pl.col("ours")
    best = ours.max() if is_bulk else ours.min()
    is_whole = pl.col("paths").str.len_chars() == frame["paths"].str.len_chars().max()
    whole = frame.filter(is_whole)
    is_single = pl.col("strategy").str.starts_with("single-")
    better = whole.filter(is_single).group_by("draw").agg(better=best)
    kernel = whole.filter(pl.col("strategy") == "kernel").select("draw", kernel="ours")
    parts = frame.filter(~is_whole).group_by("draw", maintain_order=True).agg(best)
    pairs = parts.select("draw", pl.lit("tunnel-pair").alias("strategy"), "ours")
    others = pl.concat([whole.filter(~is_single).select("draw", "strategy", "ours"), pairs])
    headers = pl.when(pl.col("strategy").str.starts_with("tunnel")).then(HEADERS).otherwise(1.0)

    def relative(to: str) -> pl.Expr:
        return (ours / (pl.col(to) * headers) if is_bulk else ours - pl.col(to)).fill_nan(None)

    joined = others.join(better, on="draw", maintain_order="left").join(kernel, on="draw", maintain_order="left")
    return joined.select(
        "draw", "strategy", "ours", "better", value=relative("better"), of_kernel=relative("kernel")
    ).drop_nulls("value")


def _distribution(frame: pl.DataFrame, traffic: str) -> Iterator[str]:
    is_bulk, value = traffic != "messages", pl.col("value")
    harmed, much = (value < 0.97, value < 0.93) if is_bulk else (value > 5, value > 30)
    pools = (
        frame.group_by("strategy", maintain_order=True)
        .agg(
            draws=pl.len(),
            median=value.median(),
            tail=value.quantile(0.05 if is_bulk else 0.95, "nearest"),
            worst=value.min() if is_bulk else value.max(),
            harmed=harmed.sum(),
            much=much.sum(),
            of_kernel=pl.col("of_kernel").median(),
        )
        .sort("strategy")
    )
    if is_bulk:
        head = ["times the better path, median", "p5", "worst", "below 0.97", "below 0.93", "median of `kernel`"]
    else:
        head = ["ms above the better path's p99, median", "p95", "worst", "above 5", "above 30", "above `kernel`'s"]
    return table(
        ["strategy", "draws", *head],
        (_cells(row, 2 if is_bulk else 0) for row in pools.iter_rows(named=True)),
        compact=True,
    )


def _cells(row: dict[str, Any], digits: int) -> list[str]:
    values = [f"{row[key]:.{digits}f}" for key in ("median", "tail", "worst")]
    counts = [str(row["harmed"]), str(row["much"]), f"{row['of_kernel']:.{digits}f}"]
    return [f"`{row['strategy']}`", str(row["draws"]), *values, *counts]


def _worst(frame: pl.DataFrame, traffic: str, lot: Lot) -> Iterator[str]:
    is_bulk, draws = traffic != "messages", lot.draws()
    of = (
        frame.filter(pl.col("strategy") == "tunnel")
        .sort("value", "draw", descending=[not is_bulk, False])
        .head(WORST)
    )
    unit = "Mbit/s" if is_bulk else "p99 in ms"
    cells = (
        [
            str(row["draw"]),
            " beside ".join(path.words for path in draws[row["draw"]]),
            f"{row['better']:.1f}",
            f"{row['ours']:.1f}",
            f"{row['value']:.{2 if is_bulk else 0}f}",
        ]
        for row in of.iter_rows(named=True)
    )
    return table(["draw", "paths", f"better path, {unit}", "`tunnel`", "compared"], cells, compact=True)


def agreement(frame: pl.DataFrame, lot: Lot) -> pl.DataFrame:
    """A row per run on the kernel: traffic, draw, strategy, and both engines' goodput, or p99 of messages in ms."""
    metric = pl.when(pl.col("traffic") == "messages").then("p99_ms").otherwise("goodput_mbit_s")
    keys = ["traffic", "draw", "strategy", "paths"]

    def of(name: str, engine: str) -> pl.DataFrame:
        return frame.filter(pl.col("lot") == name).select(*keys, metric.alias(engine))

    joined = of(lot.driven_name, "driven").join(of(lot.name, "simulated"), on=keys, maintain_order="left")
    return joined.with_columns(ratio=pl.col("driven") / pl.col("simulated"))


def _driven(frame: pl.DataFrame, lot: Lot) -> Iterator[str]:
    both = agreement(frame, lot)
    yield from ["", f"## {lot.name}, on the kernel", ""]
    yield "Driven, relative to simulated: goodput of bulk, p99 of the delay of messages; near: within 10 %."
    yield ""
    ratio = pl.col("ratio")
    near = ((ratio - 1).abs() <= NEAR).sum()
    pools = both.group_by("traffic", "strategy", maintain_order=True).agg(
        drives=pl.len(), median=ratio.median(), least=ratio.min(), greatest=ratio.max(), near=near
    )
    spreads = (
        [row["traffic"], f"`{row['strategy']}`", str(row["drives"])]
        + [f"{row[key]:.2f}" for key in ("median", "least", "greatest")]
        + [str(row["near"])]
        for row in pools.iter_rows(named=True)
    )
    head = ["traffic", "strategy", "drives", "median", "least", "greatest", "near"]
    yield from table(head, spreads, compact=True)
    yield from ["", "`tunnel`, draw by draw, Mbit/s or ms:", ""]
    draws = lot.draws()
    cells = (
        [row["traffic"], str(row["draw"]), " beside ".join(path.words for path in draws[row["draw"]])]
        + [f"{row[key]:.1f}" for key in ("simulated", "driven")]
        + [f"{row['ratio']:.2f}"]
        for row in both.filter(pl.col("strategy") == "tunnel").iter_rows(named=True)
    )
    yield from table(["traffic", "draw", "paths", "simulated", "driven", "ratio"], cells, compact=True)
