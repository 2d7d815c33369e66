"""The page of `crosslane-lab reproduce roads`: a table per load, the targets with verdicts, a figure."""

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

import polars as pl

from crosslane_lab.output import write_file
from crosslane_lab.papers.frame import Bound, Claim, Options, Results, filled
from crosslane_lab.papers.roads import figures
from crosslane_lab.papers.roads.campaign import (
    BASELINES,
    CONGESTIONS,
    LOADS,
    OURS,
    pooled,
    rows,
    tuned_on,
)
from crosslane_lab.render.markdown import table
from crosslane_lab.render.svg import png
from crosslane_lab.runs.frame import Spread

MISSED_POINTS, COST, SHARE, RIGHT = 2.0, 1.08, 0.01, 0.9
"""Targets: missed deadlines below the kernel's, cost as a multiple of the optimum's, the expensive share where
the preferred path suffices, and the share of objects whose completion is predicted rightly."""

SUFFICES = 0.001
"""The preferred path suffices in a run whose optimum has at most this expensive share."""


def write(results: Results, options: Options) -> list[Path]:
    """Write the page, its picture and the underlying rows; returns the files written."""
    frame = rows(results)
    files = [options.out, *(options.out.with_suffix(suffix) for suffix in (".png", ".csv"))]
    congestion = (options.figures or CONGESTIONS)[0]
    write_file(files[0], page(frame, tuned_on(results.names), congestion, files[1].name, options.quick))
    write_file(files[1], png(figures.draw(frame)))
    write_file(files[2], frame.write_csv())
    return files


def page(
    frame: pl.DataFrame,
    tuned_drives: Collection[str],
    congestion: str = CONGESTIONS[0],
    picture: str = "roads.png",
    quick: bool = False,
) -> str:
    """The page in Markdown, a function of the rows only. With `quick` none of the drives was tuned on."""
    drives = frame["drive"].unique(maintain_order=True).to_list()
    lines: list[str] = []
    for load in LOADS:
        lines += ["", f"**{load} %**", "", *_table(frame.filter(pl.col("load") == load))]
    lines += ["", "**All loads**", "", *_table(frame), ""]
    tuned = pl.col("drive").is_in(tuned_drives)
    parts = {"held out": frame} if quick else {"held out": frame.filter(~tuned), "tuned on": frame.filter(tuned)}
    found = [claim for which, part in parts.items() for claim in claims(part, which)]
    lines += _targets(Results(Path(), ()), found)
    which = (
        f"{len(drives)} of them, on which no parameter was chosen (`--quick`)" if quick else f"all {len(drives)}"
    )
    tables = "\n".join(lines)
    return filled(
        Path(__file__).with_name("page.template"),
        drives=which,
        congestion=congestion,
        picture=picture,
        tables=tables,
    )


def _table(frame: pl.DataFrame) -> Iterator[str]:
    head = [
        "strategy",
        "missed %",
        "expensive share − optimum, points (p10–p90)",
        "cost / optimum (median)",
        "switches",
    ]
    return table(head, map(_cells, pooled(frame).iter_rows(named=True)), compact=True)


def _cells(row: dict[str, Any]) -> list[str]:
    above = f"{row['above'] * 100:.1f} ({row['above_low'] * 100:.1f}–{row['above_high'] * 100:.1f})"
    switches = "–" if row["switches"] is None else f"{row['switches']:.0f}"
    cost = f"{row['cost']:.2f} ({row['cost_median']:.2f})"
    return [f"`{row['strategy']}`", f"{row['missed'] * 100:.1f}", above, cost, switches]


def claims(frame: pl.DataFrame, which: str) -> list[Claim]:
    """The targets of `deadline` on these drives."""
    pool = {row["strategy"]: row for row in pooled(frame).iter_rows(named=True)}
    ours = pool[OURS]
    most = min(pool[name]["missed"] for name in BASELINES if name in pool) - MISSED_POINTS / 100
    of = frame.filter((pl.col("strategy") == OURS) & (pl.col("share_optimum") <= SUFFICES))
    share = of["share"].median()
    found = [
        _target(
            f"{which} ({frame['drive'].n_unique()})",
            f"missed ≤ {most * 100:.1f} % (kernel − {MISSED_POINTS:.0f})",
            most,
            ours["missed"],
            f"{ours['missed'] * 100:.1f} %",
        ),
        _target(which, f"cost ≤ {COST} × optimum", COST, ours["cost"], f"{ours['cost']:.2f}"),
    ]
    if isinstance(share, float):
        what = f"expensive share where the preferred path suffices ({of.height} runs) ≤ {SHARE * 100:.0f} %, median"
        found.append(_target(which, what, SHARE, share, f"{share * 100:.1f} %"))
    what = f"completion predicted within 10 % for ≥ {RIGHT * 100:.0f} % of objects"
    right = ours["right"]
    return [*found, _target(which, what, RIGHT, right, f"{right * 100:.0f} %", "at least")]


def _target(place: str, what: str, limit: float, value: float, text: str, bound: Bound = "at most") -> Claim:
    found = Spread(value, value, value, 1)
    return Claim(place, "", OURS, what, limit, bound, words=what, read=lambda _: found, show=lambda _: text)


def _targets(results: Results, found: Iterable[Claim]) -> Iterator[str]:
    words = {"met": "yes", "not met": "**no**"}
    rows = ([each.place, *each.texts(results), words[each.verdict(results)]] for each in found)
    return table(["drives", "target", "result", "met"], rows, "llrl", compact=True)
