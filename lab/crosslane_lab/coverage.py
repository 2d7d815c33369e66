"""When each path was in coverage, from the ground truth (`links`) and the threshold of the scenario."""

from dataclasses import dataclass

import polars as pl

from crosslane_lab.runs.folder import Run, RunFolder

MIN_CHANGE_S = 0.5
"""A change of coverage counts if it lasts this long: shadowing crosses a threshold repeatedly."""

HYSTERESIS_DB = 3.0
"""The mean signal must exceed the threshold by this much for a lost path to count as recovered."""


@dataclass(frozen=True)
class Change:
    """A path that left coverage (`lost`) or entered it, and why."""

    t_s: float
    path: str
    lost: bool
    cause: str


def threshold_dbm(folder: RunFolder, path: str) -> float | None:
    """The signal below which a path is abandoned: from the scenario, or from the inputs of the decisions."""
    for crossing in folder.scenario.crossings:
        if crossing.path == path:
            return crossing.threshold_dbm
    for run in folder.runs:
        found = _from_inputs(run, path)
        if found is not None:
            return found
    return None


def _from_inputs(run: Run, path: str) -> float | None:
    for event in run.events_of("agent", "decision"):
        inputs = event.fields.get("inputs")
        left = event.text("path") == path and event.text("was") == "active"
        if not left or not isinstance(inputs, dict):
            continue
        for key, value in sorted(inputs.items()):
            if key.endswith("_dbm") and ("threshold" in key or "leave" in key) and isinstance(value, int | float):
                return float(value)
    return None


def usable(folder: RunFolder, run: Run, path: str) -> pl.DataFrame:
    """Per instant (`t_s`) whether rate, loss and mean signal allow data on the path (`usable`).

    A path below its threshold becomes usable again when the mean signal exceeds it by the hysteresis.
    """
    t_s = (pl.col("t_ns") / 1e9).alias("t_s")
    rate = pl.col("up_mbit_s" if folder.scenario.direction == "up" else "down_mbit_s")
    can_carry = (rate.fill_null(1.0) > 0) & (pl.col("loss").fill_null(0.0) < 1)
    for begin, end in folder.scenario.outages.get(path, ()):
        can_carry &= ~t_s.is_between(begin, end)
    strong = _above_threshold(threshold_dbm(folder, path))
    frame = run.links.filter(pl.col("path") == path).sort("t_ns")
    return frame.select(t_s, (can_carry & strong).alias("usable")).collect()


def _above_threshold(limit: float | None) -> pl.Expr:
    if limit is None:
        return pl.lit(True)
    rssi = pl.col("rssi_dbm").fill_null(-200.0)
    decided = pl.when(rssi < limit).then(False).when(rssi >= limit + HYSTERESIS_DB).then(True)
    return decided.otherwise(None).forward_fill().fill_null(True)


def changes(folder: RunFolder, run: Run) -> list[Change]:
    """All lasting changes of coverage in a run, in order of time."""
    paths = run.links.select("path").unique().collect()["path"].to_list()
    found = [change for path in sorted(paths) for change in _changes_of(folder, run, path)]
    return sorted(found, key=lambda change: (change.t_s, change.path))


def _changes_of(folder: RunFolder, run: Run, path: str) -> list[Change]:
    intervals = _intervals(usable(folder, run, path))
    result: list[Change] = []
    state = intervals[0][1] if intervals else True
    for (t_s, covered), length in zip(intervals, _lengths(intervals, folder.duration_s), strict=True):
        if covered == state or length < MIN_CHANGE_S:
            continue
        state = covered
        result.append(Change(t_s, path, not covered, _cause(folder, path, t_s, covered)))
    return result


def _intervals(frame: pl.DataFrame) -> list[tuple[float, bool]]:
    """Start and state of each interval of constant coverage."""
    begins = frame.filter((pl.col("usable") != pl.col("usable").shift(1)).fill_null(True))
    return [(t_s, covered) for t_s, covered in begins.iter_rows()]


def _lengths(intervals: list[tuple[float, bool]], duration_s: float) -> list[float]:
    ends = [t_s for t_s, _ in intervals[1:]] + [max(duration_s, intervals[-1][0])] if intervals else []
    return [end - begin for (begin, _), end in zip(intervals, ends, strict=True)]


def _cause(folder: RunFolder, path: str, t_s: float, covered: bool) -> str:
    outages = folder.scenario.outages.get(path, ())
    if any(abs(t_s - edge) < MIN_CHANGE_S for span in outages for edge in span):
        return "outage"
    limit = threshold_dbm(folder, path)
    if limit is None:
        return "no rate"
    edge = limit + HYSTERESIS_DB if covered else limit
    return f"mean signal {'above' if covered else 'below'} −{abs(edge):g} dBm"


def recovery(folder: RunFolder, run: Run) -> Change | None:
    """The first path that entered coverage during the drive, for the first time or again."""
    return next((change for change in changes(folder, run) if not change.lost), None)
