"""The page of `crosslane-lab reproduce roads`: a table per load, the targets with verdicts, a figure."""

import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from string import Template
from typing import Any

import polars as pl

from crosslane_lab.papers.frame import Claim, Options, Results
from crosslane_lab.papers.roads import figures
from crosslane_lab.papers.roads.campaign import BASELINES, CONGESTIONS, LOADS, OURS, pooled, rows
from crosslane_lab.render.markdown import table
from crosslane_lab.render.svg import png
from crosslane_lab.runs.frame import Spread

MISSED_POINTS, SHARE_POINTS = 0.5, 8.0
"""Limits: missed deadlines above those of the kernel, and the median expensive share above the optimum."""

TUNED_EVERY = 5
"""The parameters of `deadline-mptcp` were chosen on every fifth drive; the others are held out."""


def write(results: Results, options: Options) -> list[Path]:
    """Write the page, its picture and the underlying rows; returns the files written."""
    frame = rows(results)
    files = [options.out, *(options.out.with_suffix(suffix) for suffix in (".png", ".csv"))]
    congestion = (options.figures or CONGESTIONS)[0]
    files[0].write_text(page(frame, congestion, files[1].name), encoding="utf-8")
    files[1].write_bytes(png(figures.draw(frame)))
    frame.write_csv(files[2])
    return files


def page(frame: pl.DataFrame, congestion: str = CONGESTIONS[0], picture: str = "roads.png") -> str:
    """The page in Markdown, a function of the rows only."""
    drives = frame["drive"].unique(maintain_order=True).to_list()
    tuned = pl.col("drive").is_in(drives[::TUNED_EVERY])
    lines: list[str] = []
    for load in LOADS:
        lines += ["", f"**{load} %**", "", *_table(frame.filter(pl.col("load") == load))]
    lines += ["", "**All loads**", "", *_table(frame), ""]
    found = claims(frame, "all drives")
    if len(drives) > TUNED_EVERY:
        found += [*claims(frame.filter(tuned), "tuned on"), *claims(frame.filter(~tuned), "held out")]
    lines += _targets(Results(Path(), ()), found)
    template = Template((Path(__file__).parent / "page.template").read_text(encoding="utf-8"))
    tables = "\n".join(lines)
    return template.substitute(drives=len(drives), congestion=congestion, picture=picture, tables=tables)


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
    """Targets: misses of the better kernel, the share, and the cost of each α that misses as little."""
    pool = {row["strategy"]: row for row in pooled(frame).iter_rows(named=True)}
    ours = pool[OURS]
    most = min(pool[name]["missed"] for name in BASELINES if name in pool) * 100 + MISSED_POINTS
    as_little = {s: r["cost"] for s, r in pool.items() if s.startswith("mp-dpa") and r["missed"] <= ours["missed"]}
    named = ", ".join(f"`{name}` {cost:.2f}" for name, cost in as_little.items()) or "none misses as little"

    missed, above, cost = ours["missed"] * 100, ours["above"] * 100, ours["cost"]
    below = math.nextafter(min(as_little.values(), default=math.inf), -math.inf)
    drives = f"{which} ({frame['drive'].n_unique()})"
    return [
        _target(drives, f"missed ≤ {most:.1f} % (kernel + {MISSED_POINTS})", most, missed, f"{missed:.1f} %"),
        _target(
            which,
            f"expensive share ≤ optimum + {SHARE_POINTS:.0f} points, median",
            SHARE_POINTS,
            above,
            f"{above:.1f}",
        ),
        _target(which, f"cost below `mp-dpa` at each α that misses as little: {named}", below, cost, f"{cost:.2f}"),
    ]


def _target(place: str, what: str, limit: float, value: float, text: str) -> Claim:
    found = Spread(value, value, value, 1)
    return Claim(place, "", OURS, what, limit, "at most", words=what, read=lambda _: found, show=lambda _: text)


def _targets(results: Results, found: Iterable[Claim]) -> Iterator[str]:
    words = {"met": "yes", "not met": "**no**"}
    rows = ([each.place, *each.texts(results), words[each.verdict(results)]] for each in found)
    return table(["drives", "target", "result", "met"], rows, "llrl", compact=True)
