"""What happened in a drive, and by how much better, in sentences."""

from collections.abc import Callable
from statistics import median

from crosslane_lab.coverage import Change, changes
from crosslane_lab.metrics import (
    COST,
    GAP,
    GOODPUT,
    HANDOVER_DELAY,
    LEAST_COST,
    LOST,
    MISSED,
    RECOVERY,
    WORST_DELAY,
    as_long,
    number,
    representative,
    spread,
)
from crosslane_lab.run import Run, RunFolder

_Teller = Callable[[int, str, str, str], str]
"""Told of a strategy's place in the sentence, its name, its median and its ratio to the first's (or nothing)."""

_CALLED = {
    "kernel": "the kernel alone",
    "kernel-tuned": "the tuned kernel",
    "single": "plain TCP over one path",
}


def subject(folder: RunFolder) -> str | None:
    """The strategy the report is about: that made for the traffic, else the best that is no baseline."""
    ours = [s for s in folder.measured if not folder.scenario.is_baseline(s)]
    made_for_it = "threshold" if folder.scenario.deadline_s is None else "deadline"
    if made_for_it in ours:
        return made_for_it

    def median_delay(strategy: str) -> float:
        over = spread(folder.shown_runs(strategy), WORST_DELAY) or spread(folder.shown_runs(strategy), GAP)
        return over.median if over else float("inf")

    return min(ours, key=median_delay, default=None)


def in_words(folder: RunFolder) -> list[str]:
    """The report's opening: one paragraph on the drive, one on each thing that was measured."""
    if not folder.measured:
        return ["No run of this drive was valid, so there is nothing to compare.", _left_out(folder)]
    if folder.scenario.deadline_s is not None:
        paragraphs = [_doubtful(folder), _deadlines(folder), _spared(folder), _cost(folder), _left_out(folder)]
        return [paragraph for paragraph in paragraphs if paragraph]
    paragraphs = [
        _doubtful(folder),
        _the_drive(folder),
        _worst_delay(folder),
        _around_the_handover(folder),
        _gap(folder),
        _recovery(folder),
        _goodput(folder),
        _lost(folder),
        _left_out(folder),
    ]
    return [paragraph for paragraph in paragraphs if paragraph]


def called(strategy: str) -> str:
    """A strategy's name within a sentence."""
    return _CALLED.get(strategy, f"`{strategy}`")


def _the_drive(folder: RunFolder) -> str:
    run = representative(folder, subject(folder) or folder.measured[0])
    happened = changes(folder, run)
    if not happened:
        paths = " and ".join(folder.scenario.paths) or "every path"
        return f"Through all {number(folder.duration_s, 's')} of the drive {paths} stayed within reach."
    told = [
        _change_in_words(change, before) for change, before in zip(happened[:4], [None, *happened], strict=False)
    ]
    more = f", and so on, {len(happened)} times in all" if len(happened) > 4 else ""
    sentence = " and ".join([", ".join(told[:-1]), told[-1]] if len(told) > 1 and not more else [", ".join(told)])
    return sentence[0].upper() + sentence[1:] + more + "."


def _deadlines(folder: RunFolder) -> str:
    found = [(s, over) for s in _in_order(folder) if (over := spread(folder.shown_runs(s), MISSED))]
    parts = [f"{number(over.median, '%') if over.median else 'none'} with {called(s)}" for s, over in found]
    within = number(folder.scenario.deadline_s or 0.0, "s")
    told = f"Of the objects, each due within {within}, the share that came late was {'; '.join(parts)}."
    return told if parts else ""


def _spared(folder: RunFolder) -> str:
    """How much went over the dearest path, beside the least that would have done."""
    dear = folder.scenario.dearest
    if dear is None:
        return ""
    found = [(s, over) for s in _in_order(folder) if (over := spread(folder.shown_runs(s), f"path.{dear}.share"))]
    parts = [f"{number(over.median, '%')} with {called(s)}" for s, over in found]
    runs = [run for s in folder.measured for run in folder.shown_runs(s)]
    least = spread(runs, f"path.{dear}.share_optimum")
    known = f"; {number(least.median, '%')} would have been enough" if least else ""
    return f"Over {dear}, which is to be spared, went {'; '.join(parts)}{known}." if parts else ""


def _cost(folder: RunFolder) -> str:
    """What each strategy cost, as a multiple of the least possible."""

    def times(strategy: str) -> float | None:
        runs = [run for run in folder.shown_runs(strategy) if run.metrics.get(LEAST_COST)]
        return median([run.metrics[COST] / run.metrics[LEAST_COST] for run in runs]) if runs else None

    found = [(s, over) for s in _in_order(folder) if (over := times(s)) is not None]
    parts = [f"{number(over)} times with {called(s)}" for s, over in found]
    return f"The bytes cost, of the least that was possible, {'; '.join(parts)}." if parts else ""


def _in_order(folder: RunFolder) -> list[str]:
    """The strategies measured, the report's subject first."""
    first = subject(folder)
    return [s for s in folder.measured if s == first] + [s for s in folder.measured if s != first]


def _change_in_words(change: Change, before: Change | None) -> str:
    at = f"after {change.t_s:.1f}\u00a0s"
    if change.why == "silence":
        same = before is not None and before.path == change.path
        who = "" if same else f"the link {change.path} "
        return f"{who}fell silent {at}" if change.gone else f"{who}was heard again {at}"
    because = f" ({change.why})" if change.why != "no rate" and before is None else ""
    if before and before.path == change.path and change.gone != before.gone:
        return f"{'left it again' if change.gone else 'came back into it'} {at}"
    what = "left the coverage of" if change.gone else "came into the coverage of"
    return f"the vehicle {what} {change.path} {at}{because}"


def _worst_delay(folder: RunFolder) -> str:
    def tell(place: int, name: str, value: str, ratio: str) -> str:
        if place == 0:
            return f"With {name} the worst message took {value}"
        verb = " kept the application waiting" if place == 1 else ""
        return f"{name}{verb} {value}{ratio and f', {ratio}'}"

    return _compare(folder, WORST_DELAY, tell)


def _around_the_handover(folder: RunFolder) -> str:
    """Told where the worst message was not one of those around the handover."""
    pairs = [
        (spread(folder.shown_runs(s), HANDOVER_DELAY), spread(folder.shown_runs(s), WORST_DELAY))
        for s in folder.measured
    ]
    if not any(around and over and around.median < 0.95 * over.median for around, over in pairs):
        return ""

    def tell(place: int, name: str, value: str, ratio: str) -> str:
        begin = "Within a second of the handover the worst message took " if place == 0 else ""
        return f"{begin}{value} with {name}{ratio and f' ({ratio})'}"

    return _compare(folder, HANDOVER_DELAY, tell)


def _gap(folder: RunFolder) -> str:
    def tell(place: int, name: str, value: str, ratio: str) -> str:
        if place == 0:
            return f"The longest pause in delivery, beyond the period, was {value} with {name}"
        return f"{value} with {name}{ratio and f' ({ratio})'}"

    return _compare(folder, GAP, tell)


def _compare(folder: RunFolder, metric: str, tell: _Teller) -> str:
    """A sentence on a metric: the subject first, then the others with their ratio to it."""
    first = subject(folder)
    found = [(s, over.median) for s in _in_order(folder) if (over := spread(folder.shown_runs(s), metric))]
    if not found:
        return ""
    compared = found[0][0] == first and found[0][1] > 0
    parts = [
        tell(place, called(s), number(value, "ms"), as_long(value / found[0][1]) if compared and place else "")
        for place, (s, value) in enumerate(found)
    ]
    return "; ".join(parts) + "."


def _recovery(folder: RunFolder) -> str:
    if not folder.scenario.comes_back:
        return ""
    found = [(s, over) for s in folder.measured if (over := spread(folder.shown_runs(s), RECOVERY))]
    if not found:
        return ""
    parts = [f"{number(over.median, 'ms')} with {called(s)}" for s, over in found]
    without = [called(s) for s in folder.measured if s not in dict(found)]
    never = f"; with {' and '.join(without)} it carried none" if without else ""
    return f"The recovered path carried its first data after {', '.join(parts)}{never}."


def _goodput(folder: RunFolder) -> str:
    if folder.scenario.traffic != "bulk":
        return ""
    found = [(s, over) for s in folder.measured if (over := spread(folder.shown_runs(s), GOODPUT))]
    parts = [f"{number(over.median, 'Mbit/s')} with {called(s)}" for s, over in found]
    return f"The application received {', '.join(parts)}." if parts else ""


def _lost(folder: RunFolder) -> str:
    lost = [(s, sum(int(r.metrics.get(LOST, 0)) for r in folder.shown_runs(s))) for s in folder.measured]
    some = [f"{count} with {called(s)}" for s, count in lost if count]
    return f"Messages never delivered, over all seeds: {', '.join(some)}." if some else ""


def _left_out(folder: RunFolder) -> str:
    total, bad = len(folder.runs), folder.invalid
    again = sum(run.attempts > 1 for run in folder.runs if run.valid)
    parts: list[str] = []
    if bad and not folder.doubtful:
        parts.append(f"{len(bad)} of {total} runs {_were(bad)} invalid and left out of all medians")
    if again:
        parts.append(f"{again} valid {'run' if again == 1 else 'runs'} had to be repeated")
    return "; ".join(parts) + "." if parts else ""


def _doubtful(folder: RunFolder) -> str:
    if not folder.doubtful:
        return ""
    names = ", ".join(called(s) for s in folder.doubtful)
    return (
        f"Beware: the machine was too busy to keep the emulator's time, and no run with {names} was valid. "
        "What is shown of them comes from invalid runs; drive again on a quiet machine."
    )


def _were(runs: list[Run]) -> str:
    return "was" if len(runs) == 1 else "were"
