"""Messages over held-out drives of PAM 2025, either operator preferred: up, or down."""

from collections.abc import Container, Iterator
from pathlib import Path

import polars as pl

from crosslane_lab.papers.drives.campaign import FIRST_TRAFFIC, MODES, QUICK_EVERY, SIMULATED, messages
from crosslane_lab.papers.frame import DASH, Options, Results, filled, write_page
from crosslane_lab.papers.roads.campaign import OPERATORS, TUNED_EVERY, Drive, drives
from crosslane_lab.render.markdown import table
from crosslane_lab.runs.catalog import COPIES, DELIVERED, LATE, WORST_DELAY
from crosslane_lab.runs.frame import metric
from crosslane_lab.runs.runner import Comparison

FOLDERS = {"pam2025": "uplink", "pam2025-down": "downlink"}
"""Figures, and the folders of their recordings."""

MIN_DURATION_S = 10
"""Shorter drives are excluded."""

DELAY_MS = 25
"""One-way delay of each path; the recordings do not have it."""

TARGETS = (
    ("adaptive", "oracle", "worst_p50_ms", 1.2),
    ("adaptive", "oracle", "worst_p90_ms", 1.5),
    ("tunnel-adaptive", "tunnel-redundant", "worst_p90_ms", 1.2),
)
"""A strategy, the reference, the column, and the greatest ratio asked for."""

LOOKED_AT = {
    "uplink": {"1-run-23", "1-run-68"},
    "downlink": {"1-run-13", "2-run-59", "3-run-66", "1-run-9", "2-run-48", "2-run-88"},
}
"""Drives that were looked at when a rule was made (decisions 133, 140 and 143)."""

_NOTES = {
    "pam2025": "every fifth one, every fifth of the others, on which rules of the tunnel were chosen "
    "([decision 142](../decisions/0142-a-path-that-recovers-is-not-held-back.md)), and two that were looked at "
    "([decision 143](../decisions/0143-a-path-too-slow-for-its-messages-is-noticed.md))",
    "pam2025-down": "every fifth one, and six that were looked at "
    "([decisions 133](../decisions/0133-what-comes-down-is-judged-by-the-receiver.md) and "
    "[140](../decisions/0140-after-a-break-a-path-must-carry-what-was-sent.md)); shares over all drives of "
    "this page were seen while decision 140 was made",
}

MOST_ABOVE_KERNEL = 0.05
"""Share of drives in which the worst delay of `adaptive` may be above that of `kernel`."""


def is_in(figures: Container[str]) -> bool:
    """Whether one of these is made."""
    return any(figure in figures for figure in FOLDERS)


def _figure(options: Options) -> str:
    return next(figure for figure in FOLDERS if figure in options.figures)


def scenario(drive: Drive, preferred: str, mode: str) -> str:
    """The scenario of a drive in a mode of the service."""
    operators = sorted(OPERATORS, key=lambda operator: operator != preferred)
    paths = (drive.path(operator, DELAY_MS) for operator in operators)
    return messages(
        data_set="PAM 2025",
        file=drive.file,
        name=f"messages-{drive.name}-{preferred}-{mode}",
        over="AT&T and Verizon",
        duration_s=drive.duration_s,
        paths="".join(paths),
        mode=mode,
        operators=operators,
        traffic=FIRST_TRAFFIC,
        direction=drive.folder.removesuffix("link"),
    )


def held_out(found: list[Drive]) -> list[Drive]:
    """The drives on which nothing was tuned: not every fifth, nor, of those up, every fifth of the others."""
    others = [drive for place, drive in enumerate(found) if place % TUNED_EVERY]
    others = [drive for place, drive in enumerate(others) if place % TUNED_EVERY or drive.folder != "uplink"]
    return [drive for drive in others if drive.name not in LOOKED_AT[drive.folder]]


def plan(options: Options) -> list[Comparison]:
    """Every strategy over every held-out drive, in both modes, with either operator preferred."""
    figure = _figure(options)
    found = drives(options.runner, MIN_DURATION_S, FOLDERS[figure])
    chosen = held_out(found)[:: QUICK_EVERY if options.quick else 1]
    return [
        Comparison(f"{figure}/{mode}/{drive.name}@{preferred}", scenario(drive, preferred, mode), SIMULATED)
        for drive in chosen
        for preferred in OPERATORS
        for mode in MODES
    ]


def rows(results: Results) -> pl.DataFrame:
    """A row per drive, preferred operator, mode and strategy."""
    parts = pl.col("run").str.split("/")
    place = parts.list.last().str.split("@")
    wanted = {
        "late": LATE,
        "messages": "messages.sent",
        "worst_ms": WORST_DELAY,
        "copied_bytes": COPIES,
        "delivered_bytes": DELIVERED,
    }
    return results.frame.select(
        place.list.first().alias("drive"),
        place.list.last().alias("preferred"),
        parts.list.get(-2).alias("mode"),
        "strategy",
        *(metric(results.frame, name).alias(short) for short, name in wanted.items()),
    )


def pooled(frame: pl.DataFrame) -> pl.DataFrame:
    """Per mode and strategy: late messages, worst delays over drives, drives worse than with `kernel`, copies."""
    keys = ["drive", "preferred", "mode"]
    kernel = frame.filter(pl.col("strategy") == "kernel").select(*keys, kernel_ms="worst_ms")
    worst, messages = pl.col("worst_ms"), pl.col("messages")
    return (
        frame.join(kernel, on=keys, maintain_order="left")
        .group_by("mode", "strategy", maintain_order=True)
        .agg(
            drives=pl.len(),
            late=(pl.col("late") * messages).sum() / messages.sum(),
            worst_p50_ms=worst.median(),
            **{f"worst_p{share}_ms": worst.quantile(share / 100, "nearest") for share in (75, 90, 95)},
            above_kernel=(worst > pl.col("kernel_ms")).mean(),
            copies=pl.col("copied_bytes").sum() / pl.col("delivered_bytes").sum(),
        )
    )


def write(results: Results, options: Options) -> list[Path]:
    """Write the page and the underlying rows; returns the files written."""
    frame = rows(results)
    return write_page(page(frame, _figure(options)), frame, options)


def page(frame: pl.DataFrame, figure: str = "pam2025") -> str:
    """The page of a figure in Markdown, a function of the rows only."""
    pools, lines = pooled(frame), []
    for mode in MODES:
        of = pools.filter(pl.col("mode") == mode)
        lines += ["", f"## Mode `{mode}`", "", *_table(of), "", *_targets(of)]
    return filled(
        Path(__file__).with_name("pam2025.template"),
        folder=FOLDERS[figure],
        figure=figure,
        note=_NOTES[figure],
        recordings=frame["drive"].n_unique(),
        drives=frame.select("drive", "preferred").n_unique(),
        tables="\n".join(lines).lstrip(),
    )


def _table(frame: pl.DataFrame) -> Iterator[str]:
    head = ["strategy", "late or lost %", "worst ms, p50", "p75", "p90", "p95", "above `kernel` %", "copies %"]
    return table(head, map(_cells, frame.iter_rows(named=True)), compact=True)


def _cells(row: dict[str, float]) -> list[str]:
    worst = [f"{row[f'worst_p{share}_ms']:.0f}" for share in (50, 75, 90, 95)]
    copies = f"{row['copies'] * 100:.1f}" if row["copies"] else DASH
    return [f"`{row['strategy']}`", f"{row['late'] * 100:.2f}", *worst, f"{row['above_kernel'] * 100:.1f}", copies]


def _targets(frame: pl.DataFrame) -> Iterator[str]:
    of = {row["strategy"]: row for row in frame.iter_rows(named=True)}
    words = {"worst_p50_ms": "p50 of the worst", "worst_p90_ms": "p90 of the worst"}
    for strategy, reference, column, most in TARGETS:
        ratio = of[strategy][column] / of[reference][column]
        asked = f"{words[column]} of `{strategy}` at most {most} × that of `{reference}`"
        yield f"- {asked}: {ratio:.2f} ×, {'reached' if ratio <= most else '**not reached**'}."
    above = of["adaptive"]["above_kernel"]
    verdict = "reached" if above <= MOST_ABOVE_KERNEL else "**not reached**"
    yield f"- worst of `adaptive` above that of `kernel` in at most 5 % of drives: {above * 100:.1f} %, {verdict}."
