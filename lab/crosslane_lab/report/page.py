"""`report.html`: one self-contained page on a run folder, readable offline, in light and dark mode and in print."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import polars as pl

from crosslane_lab import __version__
from crosslane_lab.errors import unreadable
from crosslane_lab.figures import ALL
from crosslane_lab.output import write_file
from crosslane_lab.render.markdown import number, spread_text
from crosslane_lab.render.svg import svg
from crosslane_lab.report.summary_text import paragraphs
from crosslane_lab.runs.catalog import describe, in_order
from crosslane_lab.runs.folder import Event, RunFolder
from crosslane_lab.runs.frame import Spread, representative, spread

MAX_DECISIONS = 200
"""Decisions listed per strategy; events.jsonl has the rest."""

Notify = Callable[[str], None]


def write(folder: RunFolder, out: Path, notify: Notify) -> None:
    """Write the report of a run folder; `notify` receives the current step."""
    if folder.runs and not any(run.folder.is_dir() for run in folder.runs):
        raise unreadable(folder.path, "its runs have no records", "simulate again with --records all")
    write_file(out, page(folder, notify))


def page(folder: RunFolder, notify: Notify = lambda _: None) -> str:
    """The report as HTML."""
    loader = jinja2.PackageLoader("crosslane_lab.report", "")
    environment = jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    notify("reading the records")
    figures, omitted = _figures(folder, notify)
    return environment.get_template("report.html.j2").render(
        css=_css(),
        folder=folder,
        summary=[_with_code(paragraph) for paragraph in paragraphs(folder)],
        metrics=metric_rows(folder),
        counts={s: len(folder.valid_runs(s)) for s in folder.strategies},
        figures=figures,
        omitted=omitted,
        decisions=[(s, *decisions(folder, s)) for s in folder.measured],
        drops=drop_rows(folder),
        number=number,
        versions=list(flat(folder.versions)),
        lab_version=__version__,
    )


@dataclass(frozen=True)
class PageFigure:
    """A figure on the page."""

    key: str
    title: str
    caption: str
    svg: str


def _figures(folder: RunFolder, notify: Notify) -> tuple[list[PageFigure], list[str]]:
    """The figures that apply to the drive, and the reason for each omitted one."""
    figures: list[PageFigure] = []
    omitted: list[str] = []
    for index, (key, module) in enumerate(ALL.items(), 1):
        notify(f"figure {index} of {len(ALL)}: {module.TITLE}")
        reason = module.skip_reason(folder) if folder.measured else "no run was valid"
        if reason:
            omitted.append(f"{module.TITLE}: {reason}")
            continue
        caption = module.caption(folder)
        image = svg(module.draw(folder), key, f"{module.TITLE}. {caption}")
        figures.append(PageFigure(key, _numbered(key, module.TITLE), caption, image))
    return figures, omitted


def _numbered(key: str, title: str) -> str:
    return f"{title} (after figure {int(key[3:])} of the paper)" if key.startswith("fig") else title


@dataclass(frozen=True)
class MetricRow:
    """A metric over all strategies; `cells` are (text, whether it is the best); an empty text: not measured."""

    name: str
    label: str
    cells: list[tuple[str, bool]]


def metric_rows(folder: RunFolder) -> list[MetricRow]:
    """The table of metrics: a row per metric in the documented order, a cell per strategy."""
    names = {name for run in folder.runs for name in run.metrics}
    return [_metric_row(folder, name) for name in in_order(names)]


def _metric_row(folder: RunFolder, name: str) -> MetricRow:
    metric = describe(name)
    spreads = [spread(folder.shown_runs(s), name) for s in folder.strategies]
    best = _best([stats for stats in spreads if stats], metric.better)
    cells = [(spread_text(o, metric.unit), o.median == best) if o else ("", False) for o in spreads]
    return MetricRow(name, metric.label, cells)


def _best(spreads: list[Spread], better: str) -> float | None:
    """The best median, if the medians differ and the metric has a direction."""
    medians = {stats.median for stats in spreads}
    if not better or len(medians) < 2:
        return None
    return min(medians) if better == "low" else max(medians)


def decisions(folder: RunFolder, strategy: str) -> tuple[list[Event], int]:
    """The decisions in a strategy's median run, and the number of those not listed."""
    every = representative(folder, strategy).events_of("agent", "decision")
    return every[:MAX_DECISIONS], max(0, len(every) - MAX_DECISIONS)


def drop_rows(folder: RunFolder) -> list[tuple[str, str, list[float]]]:
    """Dropped packets by path and reason: the mean per run for each strategy."""
    lost = pl.col("drop").is_not_null()
    counts: dict[tuple[str, str], dict[str, float]] = {}
    for strategy in folder.measured:
        runs = folder.shown_runs(strategy)
        for run in runs:
            for path, drop, count in run.packets.filter(lost).group_by("path", "drop").len().collect().iter_rows():
                row = counts.setdefault((path, drop), {})
                row[strategy] = row.get(strategy, 0.0) + count / len(runs)
    return [(p, d, [row.get(s, 0.0) for s in folder.measured]) for (p, d), row in sorted(counts.items())]


def flat(value: Any, name: str = "") -> Iterator[tuple[str, str]]:  # noqa: ANN401
    """A JSON value as (dotted name, text) pairs, in its order."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from flat(inner, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list):
        yield name, ", ".join(str(item) for item in value)
    else:
        yield name, "not known" if value is None else " ".join(str(value).split())


def _with_code(text: str) -> list[tuple[bool, str]]:
    """A sentence split at its backticks: every second part is code."""
    return [(index % 2 == 1, part) for index, part in enumerate(text.split("`"))]


def _css() -> str:
    return (Path(__file__).parent / "report.css").read_text(encoding="utf-8")
