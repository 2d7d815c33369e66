"""The frame of a reproduced paper: claims, the runs that show them, and verdicts.

A paper is a `Paper`: its claims, the comparisons to run, and optionally its page.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from string import Template
from typing import Any, Literal

import polars as pl

from crosslane_lab.errors import unreadable
from crosslane_lab.output import write_file
from crosslane_lab.pages.made_by import made_by
from crosslane_lab.render.markdown import number, spread_text, table
from crosslane_lab.runs.catalog import describe
from crosslane_lab.runs.folder import Run, RunFolder
from crosslane_lab.runs.frame import Spread, frame, stats
from crosslane_lab.runs.runner import Comparison, Runner

DASH = "–"


@dataclass(frozen=True)
class Options:
    """What `crosslane-lab reproduce` was asked for. No `figures`: all; no `engine`: the paper's."""

    runner: Runner
    scenarios: Path
    out: Path
    figures: tuple[str, ...] = ()
    engine: str = ""
    quick: bool = False


@dataclass(frozen=True)
class Results:
    """The run folders below `root` of the comparisons with these names."""

    root: Path
    names: tuple[str, ...]

    @cached_property
    def folders(self) -> dict[str, RunFolder]:
        """The run folders; raises `LabError` if one is missing."""
        return {name: RunFolder.open(self.root / name) for name in self.names}

    @cached_property
    def frame(self) -> pl.DataFrame:
        """All valid runs: `run`, `strategy`, `seed`, and a column per metric."""
        return frame(self.folders)

    @cached_property
    def _parts(self) -> dict[Any, pl.DataFrame]:
        return self.frame.partition_by("run", "strategy", as_dict=True)

    def of(self, run: str, strategy: str) -> pl.DataFrame:
        """The valid runs of a strategy in a comparison, a row each."""
        return self._parts.get((run, strategy), self.frame.clear())

    def runs(self, run: str, strategy: str) -> list[Run]:
        """The same with their records."""
        return self.folders[run].valid_runs(strategy)

    def spread(self, run: str, strategy: str, metric: str) -> Spread | None:
        """Median and range of a metric over the seeds; None if no run has it."""
        of = self.of(run, strategy)
        return stats(of[metric].drop_nulls().to_list()) if metric in of.columns else None

    def median(self, run: str, strategy: str, metric: str) -> float | None:
        """The median over the seeds."""
        found = self.spread(run, strategy, metric)
        return found.median if found else None


def write_page(page: str, rows: pl.DataFrame, options: Options) -> list[Path]:
    """Write a page and the underlying rows; returns the files written."""
    files = [options.out, options.out.with_suffix(".csv")]
    write_file(files[0], page)
    write_file(files[1], rows.write_csv())
    return files


def filled(template: Path, **parts: object) -> str:
    """The text of a template with these parts."""
    return Template(template.read_text(encoding="utf-8")).substitute(**parts)


Bound = Literal["about", "at most", "at least", "none"]


@dataclass(frozen=True)
class Claim:
    """A figure, table or sentence of a paper, with its published value, and how our runs show it."""

    place: str
    """Where it is in the paper, as `6.2` or `6: CPU time`."""
    run: str
    """Name of the comparison that shows it."""
    strategy: str
    metric: str
    published: float | tuple[float, float] = 0.0
    """In the metric's unit: a number or a range."""
    bound: Bound = "about"
    """`none`: ours cannot be compared with it."""
    tolerance: float = 0.05
    relative: bool = False
    """Whether `tolerance` is a share of the published value."""
    relative_to: str = ""
    """Ours is divided by the median of this strategy."""
    read: Callable[[Results], Spread | None] | None = None
    """How ours is read; default: the metric over the seeds."""
    better: Callable[[Results], bool] = field(default=lambda _: False)
    """Whether a value below the published one is better."""
    words: str = ""
    """The published value in words."""
    show: Callable[[Results], str] | None = None
    """Ours in words."""
    reason: str = ""
    """Why ours may differ."""

    @property
    def figure(self) -> str:
        """The place without its title."""
        return self.place.partition(":")[0]

    @property
    def range(self) -> tuple[float, float]:
        """Minimum and maximum of the published value."""
        return self.published if isinstance(self.published, tuple) else (self.published, self.published)

    def ours(self, results: Results) -> Spread | None:
        """Our value; None if it was not measured."""
        if self.read:
            return self.read(results)
        found = results.spread(self.run, self.strategy, self.metric)
        base = results.median(self.run, self.relative_to, self.metric) if self.relative_to else 1.0
        if found is None or not base:
            return None
        return Spread(found.median / base, found.low / base, found.high / base, found.count)

    def verdict(self, results: Results) -> str:
        """`same`, `better`, `less` or `more`; for bounds `met` or `not met`."""
        ours = self.ours(results)
        if ours is None:
            return "not measured"
        low, high = self.range
        if self.bound == "none":
            return f"not comparable{', ' * bool(self.reason)}{self.reason}"
        if self.bound != "about":
            return "met" if (ours.median <= high if self.bound == "at most" else ours.median >= low) else "not met"
        slack = self.tolerance * (high if self.relative else 1)
        if low - slack <= ours.median <= high + slack:
            return "same"
        if ours.median < low and self.better(results):
            return "better"
        word = "less" if ours.median < low else "more"
        return f"{word}: {self.reason}" if self.reason else word

    def texts(self, results: Results) -> tuple[str, str]:
        """The published value and ours."""
        unit = "" if self.relative_to else describe(self.metric).unit
        low, high = self.range
        sign = {"at most": "≤ ", "at least": "≥ "}.get(self.bound, "")
        of = f" × `{self.relative_to}`" if self.relative_to else ""
        span = number(low, unit) if low == high else f"{number(low, unit)} to {number(high, unit)}"
        published = self.words or sign + span + of
        ours = self.ours(results)
        return published, DASH if ours is None else self.show(results) if self.show else spread_text(
            ours, unit
        ) + of


@dataclass(frozen=True)
class Paper:
    """A paper, thesis or campaign."""

    name: str
    what: str
    claims: Sequence[Claim]
    plan: Callable[[Options], list[Comparison]]
    write: Callable[[Results, Options], list[Path]] | None = None
    """Writes the page and pictures; default: the table of claims."""
    prepare: Callable[[Options], None] | None = None
    """Makes what the plan needs, as a model that earlier runs train."""
    figures: Sequence[str] = ()
    """What may be named besides the places of claims."""
    parallel: int = 0
    """Simulations that run at once; 0: of one comparison after another, as many as the program chooses."""


def reproduce(paper: Paper, options: Options, draw_only: bool = False) -> list[Path]:
    """Run what is missing or stale, and write the page; raises `LabError`. Of some figures, only their claims.

    The page ends with the line that names the program.
    """
    known = sorted({claim.figure for claim in paper.claims} | {*paper.figures})
    for figure in options.figures:
        if figure not in known:
            remedy = f"choose from {', '.join(known)}"
            raise unreadable(f"figure {figure!r} of {paper.name}", "there is none", remedy)
    asked = [claim for claim in paper.claims if claim.figure in options.figures]
    needed = {claim.run for claim in asked}
    some = bool(options.figures) and not paper.figures
    if paper.prepare and not draw_only:
        paper.prepare(options)
    comparisons = [each for each in paper.plan(options) if not some or each.name in needed]
    if not draw_only:
        options.runner.run(comparisons)
    results = Results(options.runner.root, tuple(each.name for each in comparisons))
    options.out.parent.mkdir(parents=True, exist_ok=True)
    if paper.write and not some:
        files = paper.write(results, options)
    else:
        write_file(options.out, "\n".join(claims_table(results, asked or paper.claims)) + "\n")
        files = [options.out]
    if options.out in files:
        write_file(options.out, f"{options.out.read_text(encoding='utf-8')}\n{made_by(results.folders.values())}\n")
    return files


def claims_table(results: Results, claims: Iterable[Claim]) -> Iterable[str]:
    """A row per claim: published, ours, verdict."""
    head = ["place", "run", "strategy", "metric", "published", "ours", "verdict"]
    rows = (
        [each.place, each.run, f"`{each.strategy}`", each.metric, *each.texts(results), each.verdict(results)]
        for each in claims
    )
    return table(head, rows, "llllrrl")
