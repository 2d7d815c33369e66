"""The results page: medians and worst cases of several drives, compared with baselines and targets."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from crosslane_lab.figures import distribution
from crosslane_lab.output import write_file
from crosslane_lab.render.markdown import number, spread_text, table, were
from crosslane_lab.render.svg import png
from crosslane_lab.report.page import flat
from crosslane_lab.runs.catalog import GAP, GOODPUT, HANDOVER_DELAY, RECOVERY, WORST_DELAY, describe, in_order
from crosslane_lab.runs.folder import RunFolder, by_scenario
from crosslane_lab.runs.frame import spread, worst

MIN_SEEDS_FOR_QUANTILES = 50
"""With at least this number of seeds, quantiles are shown."""

QUANTILES = (("p5", 0.05), ("p25", 0.25), ("median", 0.5), ("p75", 0.75), ("p95", 0.95), ("max", 1.0))

_ALWAYS = (WORST_DELAY, HANDOVER_DELAY, GAP, RECOVERY)
_BASELINES = ("kernel", "kernel-tuned")


def write(folders: list[RunFolder], out: Path) -> list[Path]:
    """Write the page, and next to it the pictures of distributions; returns the files written.

    Raises `LabError` if a scenario is given twice.
    """
    by_scenario(folders)
    pictures = [(out.parent / picture(folder), folder) for folder in folders if is_distribution(folder)]
    for file, folder in pictures:
        write_file(file, png(distribution.draw(folder)))
    write_file(out, page(folders))
    return [*(file for file, _ in pictures), out]


def page(folders: list[RunFolder]) -> str:
    """The page as Markdown, a function of the folders only."""
    lines = ["# Results", "", *_preface(folders)]
    for folder in folders:
        lines += ["", f"## {_heading(folder)}", "", *_scenario(folder)]
    lines += ["", "## Machine and versions", "", *_versions(folders)]
    return "\n".join(lines) + "\n"


def is_distribution(folder: RunFolder) -> bool:
    """Whether there are enough seeds for quantiles instead of a range."""
    return len(folder.seeds) >= MIN_SEEDS_FOR_QUANTILES and distribution.skip_reason(folder) is None


def picture(folder: RunFolder) -> str:
    """File name of the picture of a distribution, next to the page."""
    return f"results-{folder.name}.png"


def _heading(folder: RunFolder) -> str:
    return folder.name if folder.engine == "kernel" else f"{folder.name}, simulated"


def _preface(folders: list[RunFolder]) -> Iterator[str]:
    runs = [run for folder in folders for run in folder.runs]
    bad = sum(not run.valid for run in runs)
    repeated = sum(run.attempts > 1 for run in runs)
    yield (
        "Each value is the median over the seeds, with minimum and maximum in brackets. "
        f"Of {_count(len(runs), 'run')}, {bad} {were(bad)} invalid (excluded from all values) "
        f"and {repeated} {were(repeated)} repeated."
    )
    verdicts = [expectation.ok for folder in folders for expectation in folder.expectations]
    if verdicts:
        not_run = verdicts.count(None)
        remark = f" ({not_run} not run)" if not_run else ""
        yield ""
        yield f"Targets met: {verdicts.count(True)} of {len(verdicts)}{remark}."


def _scenario(folder: RunFolder) -> Iterator[str]:
    if folder.title:
        yield f"{folder.title.rstrip('.')}."
        yield ""
    invalid = len(folder.invalid)
    yield (
        f"{_count(len(folder.seeds), 'seed')}, {number(folder.duration_s, 's')} each, engine `{folder.engine}`; "
        f"{_count(invalid, 'run')} invalid, {_count(sum(r.attempts > 1 for r in folder.runs), 'run')} repeated."
    )
    if is_distribution(folder):
        yield ""
        yield f"![{distribution.TITLE}]({picture(folder)})"
        yield ""
        yield distribution.caption(folder)
    for metric in key_metrics(folder):
        yield ""
        yield from _quantiles(folder, metric) if is_distribution(folder) else _table(folder, metric)
    if folder.expectations:
        yield ""
        yield from _targets(folder)


def key_metrics(folder: RunFolder) -> list[str]:
    """The main metrics: those with targets; delay, pause, recovery, share of the preferred path, if measured."""
    measured = {name for run in folder.runs if run.valid for name in run.metrics}
    share = [f"path.{path}.share" for path in folder.scenario.prefer[:1]]
    shown_metrics = {*folder.scenario.expected_metrics, *_ALWAYS, *share}
    if folder.scenario.traffic == "bulk":
        shown_metrics.add(GOODPUT)
    if not folder.scenario.expects_recovery:
        shown_metrics.discard(RECOVERY)
    return in_order(shown_metrics & measured)


def _table(folder: RunFolder, name: str) -> Iterator[str]:
    baselines = [s for s in _BASELINES if spread(folder.valid_runs(s), name)]
    yield _title(name)
    yield ""
    heads = ["strategy", "median (min–max)", "worst", "runs", *(f"vs. `{s}`" for s in baselines)]
    yield from table(heads, (_cells(folder, strategy, name, baselines) for strategy in folder.strategies))


def _title(name: str) -> str:
    metric = describe(name)
    unit = f" ({metric.unit})" if metric.unit else ""
    return f"**{metric.label}{unit}**, `{name}`"


def _quantiles(folder: RunFolder, name: str) -> Iterator[str]:
    unit = "%" if describe(name).unit == "%" else ""
    yield _title(name)
    yield ""
    rows: list[list[str]] = []
    for strategy in folder.strategies:
        values = [run.metrics[name] for run in folder.valid_runs(strategy) if name in run.metrics]
        shown = [number(float(np.quantile(values, share)), unit) if values else "–" for _, share in QUANTILES]
        rows.append([f"`{strategy}`", *shown, f"{len(values)}"])
    yield from table(["strategy", *(head for head, _ in QUANTILES), "runs"], rows)


def _cells(folder: RunFolder, strategy: str, name: str, baselines: list[str]) -> list[str]:
    metric, runs = describe(name), folder.valid_runs(strategy)
    stats, last = spread(runs, name), worst(runs, name)
    if stats is None:
        return [f"`{strategy}`", "–", "–", f"{len(runs)}", *("–" for _ in baselines)]
    ratios = ["" if s == strategy else _ratio(folder, name, s, stats.median) for s in baselines]
    texts = [spread_text(stats, metric.unit), "–" if last is None else number(last, metric.unit)]
    if metric.unit and metric.unit != "%":
        texts = [text.replace(f"\u00a0{metric.unit}", "") for text in texts]
    return [f"`{strategy}`", *texts, f"{stats.count}", *ratios]


def _ratio(folder: RunFolder, name: str, baseline: str, median: float) -> str:
    """How the median compares with that of a baseline, as a factor above 1."""
    base = spread(folder.valid_runs(baseline), name)
    if base is None or base.median <= 0 or median <= 0:
        return "–"
    ratio = median / base.median
    if 0.95 <= ratio <= 1.05:
        return "the same"
    return f"{number(1 / ratio)} times lower" if ratio < 1 else f"{number(ratio)} times higher"


def _targets(folder: RunFolder) -> Iterator[str]:
    rows: list[list[str]] = []
    for target in folder.expectations:
        result = "–" if target.value is None else number(target.value)
        verdict = target.verdict if target.ok is not False else f"**{target.verdict}**"
        rows.append([target.text.replace("|", "\\|"), result, verdict])
    yield from table(["target", "result", "verdict"], rows, "lrl")


def _versions(folders: list[RunFolder]) -> Iterator[str]:
    """One value per name if all folders agree; else one per folder."""
    each = [dict(flat(folder.versions)) for folder in folders]
    names = list(dict.fromkeys(name for versions in each for name in versions))
    if not names:
        yield "Not recorded."
        return
    rows: list[list[str]] = []
    for name in names:
        pairs = zip(folders, each, strict=True)
        values = {_heading(folder): versions[name] for folder, versions in pairs if name in versions}
        same = len(set(values.values())) == 1
        text = next(iter(values.values())) if same else "; ".join(f"{k}: {v}" for k, v in values.items())
        rows.append([name, text.replace("|", "\\|")])
    yield from table(["what", "version"], rows, "ll")


def _count(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
