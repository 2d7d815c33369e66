"""The opening of a report: what happened in a drive, and how the strategies compare, in sentences."""

import numpy as np

from crosslane_lab.coverage import Change, changes
from crosslane_lab.render.markdown import duration_ratio, number, were
from crosslane_lab.runs.catalog import (
    COPIES,
    COST,
    GAP,
    GOODPUT,
    HANDOVER_DELAY,
    LATE,
    LEAST_COST,
    LOST,
    MISSED,
    RECOVERY,
    WORST_DELAY,
)
from crosslane_lab.runs.folder import RunFolder
from crosslane_lab.runs.frame import representative, spread

_DISPLAY_NAMES = {
    "kernel": "the default kernel",
    "kernel-tuned": "the tuned kernel",
    "single": "plain TCP over one path",
}


def subject(folder: RunFolder) -> str | None:
    """The strategy that the report is about: the one for this traffic, else the best that is no baseline."""
    ours = [s for s in folder.measured if s not in folder.scenario.baselines]
    designed_for_it = ("adaptive", "threshold") if folder.scenario.deadline_s is None else ("deadline",)
    if first := next((strategy for strategy in designed_for_it if strategy in ours), None):
        return first

    def median_delay(strategy: str) -> float:
        stats = spread(folder.shown_runs(strategy), WORST_DELAY) or spread(folder.shown_runs(strategy), GAP)
        return stats.median if stats else float("inf")

    return min(ours, key=median_delay, default=None)


def paragraphs(folder: RunFolder) -> list[str]:
    """The report's opening: one paragraph on the drive, one on each metric."""
    if not folder.measured:
        return ["No run of this drive was valid; there is nothing to compare.", _excluded(folder)]
    if folder.scenario.deadline_s is not None:
        found = [_warning(folder), _deadlines(folder), _expensive_share(folder), _cost(folder), _excluded(folder)]
        return [paragraph for paragraph in found if paragraph]
    found = [
        _warning(folder),
        _coverage(folder),
        _durations(folder, WORST_DELAY, "Worst delivery delay"),
        _handover_delay(folder),
        _durations(folder, GAP, "Longest pause in delivery beyond the message period"),
        _recovery(folder),
        _goodput(folder),
        _late(folder),
        _lost(folder),
        _of_each(folder, COPIES, "Bytes that the tunnel sent more than once", "bytes"),
        _of_each(folder, COST, "Price of what was delivered", ""),
        _excluded(folder),
    ]
    return [paragraph for paragraph in found if paragraph]


def display_name(strategy: str) -> str:
    """A strategy's name within a sentence."""
    return _DISPLAY_NAMES.get(strategy, f"`{strategy}`")


def _coverage(folder: RunFolder) -> str:
    run = representative(folder, subject(folder) or folder.measured[0])
    happened = changes(folder, run)
    if not happened:
        paths = " and ".join(folder.scenario.paths) or "every path"
        return f"During the whole drive ({number(folder.duration_s, 's')}), {paths} stayed in coverage."
    parts = [_change(change, before) for change, before in zip(happened[:4], [None, *happened], strict=False)]
    more = f", and so on ({len(happened)} changes)" if len(happened) > 4 else ""
    sentence = " and ".join(
        [", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 and not more else [", ".join(parts)]
    )
    return sentence[0].upper() + sentence[1:] + more + "."


def _change(change: Change, before: Change | None) -> str:
    at = f"at {change.t_s:.1f}\u00a0s"
    if change.cause == "outage":
        same = before is not None and before.path == change.path
        link = "" if same else f"the link {change.path} "
        return f"{link}went down {at}" if change.lost else f"{link}came up again {at}"
    cause = f" ({change.cause})" if change.cause != "no rate" and before is None else ""
    if before and before.path == change.path and change.lost != before.lost:
        return f"{'left it again' if change.lost else 're-entered it'} {at}"
    verb = "left" if change.lost else "entered"
    return f"the vehicle {verb} the coverage of {change.path} {at}{cause}"


def _deadlines(folder: RunFolder) -> str:
    found = [(s, stats) for s in _ranked(folder) if (stats := spread(folder.shown_runs(s), MISSED))]
    parts = [
        f"{number(stats.median, '%') if stats.median else 'none'} with {display_name(s)}" for s, stats in found
    ]
    deadline = number(folder.scenario.deadline_s or 0.0, "s")
    return f"Objects that missed their deadline of {deadline}: {'; '.join(parts)}." if parts else ""


def _expensive_share(folder: RunFolder) -> str:
    """The share on the expensive path, and the minimum that would have sufficed."""
    path = folder.scenario.expensive_path
    if path is None:
        return ""
    found = [(s, stats) for s in _ranked(folder) if (stats := spread(folder.shown_runs(s), f"path.{path}.share"))]
    parts = [f"{number(stats.median, '%')} with {display_name(s)}" for s, stats in found]
    runs = [run for s in folder.measured for run in folder.shown_runs(s)]
    minimum = spread(runs, f"path.{path}.share_optimum")
    sufficient = f"; {number(minimum.median, '%')} would have sufficed" if minimum else ""
    return f"Share on the expensive path {path}: {'; '.join(parts)}{sufficient}." if parts else ""


def _cost(folder: RunFolder) -> str:
    """What each strategy cost, as a multiple of the minimum."""

    def multiple(strategy: str) -> float | None:
        runs = [run for run in folder.shown_runs(strategy) if run.metrics.get(LEAST_COST)]
        return float(np.median([run.metrics[COST] / run.metrics[LEAST_COST] for run in runs])) if runs else None

    found = [(s, cost) for s in _ranked(folder) if (cost := multiple(s)) is not None]
    parts = [f"{number(cost)} with {display_name(s)}" for s, cost in found]
    return f"Cost as a multiple of the minimum: {'; '.join(parts)}." if parts else ""


def _ranked(folder: RunFolder) -> list[str]:
    """The strategies measured, the report's subject first."""
    first = subject(folder)
    return [s for s in folder.measured if s == first] + [s for s in folder.measured if s != first]


def _handover_delay(folder: RunFolder) -> str:
    """Reported if the worst message was not one of those around the handover."""
    pairs = [
        (spread(folder.shown_runs(s), HANDOVER_DELAY), spread(folder.shown_runs(s), WORST_DELAY))
        for s in folder.measured
    ]
    if not any(around and stats and around.median < 0.95 * stats.median for around, stats in pairs):
        return ""
    return _durations(folder, HANDOVER_DELAY, "Worst delivery delay within 1\u00a0s of the handover")


def _durations(folder: RunFolder, metric: str, label: str) -> str:
    """A metric in ms: the report's subject first, then the other strategies with their ratio to it."""
    first = subject(folder)
    found = [(s, stats.median) for s in _ranked(folder) if (stats := spread(folder.shown_runs(s), metric))]
    if not found:
        return ""
    compared = found[0][0] == first and found[0][1] > 0
    parts = [
        f"{number(value, 'ms')} with {display_name(s)}"
        + (f" ({duration_ratio(value / found[0][1])})" if compared and index else "")
        for index, (s, value) in enumerate(found)
    ]
    return f"{label}: {'; '.join(parts)}."


def _recovery(folder: RunFolder) -> str:
    if not folder.scenario.expects_recovery:
        return ""
    found = [(s, stats) for s in folder.measured if (stats := spread(folder.shown_runs(s), RECOVERY))]
    if not found:
        return ""
    parts = [f"{number(stats.median, 'ms')} with {display_name(s)}" for s, stats in found]
    parts += [f"never with {display_name(s)}" for s in folder.measured if s not in dict(found)]
    return f"Time until the recovered path carried data: {'; '.join(parts)}."


def _goodput(folder: RunFolder) -> str:
    return _of_each(folder, GOODPUT, "Goodput", "Mbit/s") if folder.scenario.traffic == "bulk" else ""


def _late(folder: RunFolder) -> str:
    """The share of late messages, where there are messages with a period, and any is late."""
    late = number(folder.scenario.late_ms, "ms")
    some = any(run.metrics.get(LATE) for s in folder.measured for run in folder.shown_runs(s))
    shown = some and folder.scenario.traffic != "bulk"
    return _of_each(folder, LATE, f"Messages later than {late} or lost", "%") if shown else ""


def _of_each(folder: RunFolder, metric: str, label: str, unit: str) -> str:
    """A metric with each strategy that has it."""
    found = [(s, stats) for s in folder.measured if (stats := spread(folder.shown_runs(s), metric))]
    parts = [f"{number(stats.median, unit)} with {display_name(s)}" for s, stats in found]
    return f"{label}: {'; '.join(parts)}." if parts else ""


def _lost(folder: RunFolder) -> str:
    lost = [(s, sum(int(r.metrics.get(LOST, 0)) for r in folder.shown_runs(s))) for s in folder.measured]
    some = [f"{count} with {display_name(s)}" for s, count in lost if count]
    return f"Messages never delivered, over all seeds: {'; '.join(some)}." if some else ""


def _excluded(folder: RunFolder) -> str:
    total, bad = len(folder.runs), folder.invalid
    repeated = sum(run.attempts > 1 for run in folder.runs if run.valid)
    parts: list[str] = []
    if bad and not folder.only_invalid:
        parts.append(f"{len(bad)} of {total} runs {were(len(bad))} invalid and excluded from all medians")
    if repeated:
        parts.append(f"{repeated} valid {'run' if repeated == 1 else 'runs'} {were(repeated)} repeated")
    return "; ".join(parts) + "." if parts else ""


def _warning(folder: RunFolder) -> str:
    if not folder.only_invalid:
        return ""
    names = ", ".join(display_name(s) for s in folder.only_invalid)
    return (
        f"Warning: the machine was too busy to keep the emulator's time, and no run with {names} was valid. "
        "Their values come from invalid runs; run the drive again on an idle machine."
    )
