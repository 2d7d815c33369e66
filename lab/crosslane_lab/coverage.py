"""When each path was within reach, from the world's truth (`links`) and the scenario's threshold."""

from dataclasses import dataclass

import polars as pl

from crosslane_lab.run import Run, RunFolder

SETTLED_S = 0.5
"""A change of reach counts when it lasts this long: shadowing alone crosses a threshold back and forth."""


HYSTERESIS_DB = 3.0
"""By how much the mean signal must exceed the threshold for a lost path to count as back."""


@dataclass(frozen=True)
class Change:
    """A path that went out of reach (`gone`) or came within reach."""

    t_s: float
    path: str
    gone: bool
    why: str


def threshold_dbm(folder: RunFolder, path: str) -> float | None:
    """The signal below which a path is to be left: the scenario's, or the one the decisions' inputs give."""
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
    """Per instant (`t_s`) whether rate, loss and mean signal let the path carry data well (`usable`).

    A path lost to its threshold is usable again once the mean signal exceeds it by the hysteresis.
    """
    t_s = (pl.col("t_ns") / 1e9).alias("t_s")
    rate = pl.col("up_mbit_s" if folder.scenario.direction == "up" else "down_mbit_s")
    carries = (rate.fill_null(1.0) > 0) & (pl.col("loss").fill_null(0.0) < 1)
    for begin, end in folder.scenario.silent.get(path, ()):
        carries &= ~t_s.is_between(begin, end)
    strong = _strong(threshold_dbm(folder, path))
    frame = run.links.filter(pl.col("path") == path).sort("t_ns")
    return frame.select(t_s, (carries & strong).alias("usable")).collect()


def _strong(limit: float | None) -> pl.Expr:
    if limit is None:
        return pl.lit(True)
    rssi = pl.col("rssi_dbm").fill_null(-200.0)
    decided = pl.when(rssi < limit).then(False).when(rssi >= limit + HYSTERESIS_DB).then(True)
    return decided.otherwise(None).forward_fill().fill_null(True)


def changes(folder: RunFolder, run: Run) -> list[Change]:
    """All lasting changes of reach in a run, in order of time."""
    paths = run.links.select("path").unique().collect()["path"].to_list()
    found = [change for path in sorted(paths) for change in _changes_of(folder, run, path)]
    return sorted(found, key=lambda change: (change.t_s, change.path))


def _changes_of(folder: RunFolder, run: Run, path: str) -> list[Change]:
    spells = _spells(usable(folder, run, path))
    result: list[Change] = []
    state = spells[0][1] if spells else True
    for (t_s, within), length in zip(spells, _lengths(spells, folder.duration_s), strict=True):
        if within == state or length < SETTLED_S:
            continue
        state = within
        result.append(Change(t_s, path, not within, _why(folder, path, t_s, within)))
    return result


def _spells(frame: pl.DataFrame) -> list[tuple[float, bool]]:
    """Where each stretch of equal reach begins, and which it is."""
    begins = frame.filter((pl.col("usable") != pl.col("usable").shift(1)).fill_null(True))
    return [(t_s, within) for t_s, within in begins.iter_rows()]


def _lengths(spells: list[tuple[float, bool]], duration_s: float) -> list[float]:
    ends = [t_s for t_s, _ in spells[1:]] + [max(duration_s, spells[-1][0])] if spells else []
    return [end - begin for (begin, _), end in zip(spells, ends, strict=True)]


def _why(folder: RunFolder, path: str, t_s: float, within: bool) -> str:
    silences = folder.scenario.silent.get(path, ())
    if any(abs(t_s - edge) < SETTLED_S for span in silences for edge in span):
        return "silence"
    limit = threshold_dbm(folder, path)
    if limit is None:
        return "no rate"
    edge = limit + HYSTERESIS_DB if within else limit
    return f"mean signal {'above' if within else 'below'} −{abs(edge):g} dBm"


def recovery(folder: RunFolder, run: Run) -> Change | None:
    """The first path that came back within reach after it had been lost, or that was entered late."""
    return next((change for change in changes(folder, run) if not change.gone), None)
