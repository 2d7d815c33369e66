"""Which order was better, and the rows that a tree learns from.

An order is better in a window if its goodput over the next second is higher by more than the margin, or else if
its delay is lower by more than that. If neither is, the window has no label.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from crosslane_lab.learn import collect, tree
from crosslane_lab.learn.collect import PATHS

HORIZON = 4
"""Windows over which the orders are compared: an order stands for a second."""
MARGIN = 0.05

KEYS = ("drive", "traffic", "buffer_kb", "t_ns")
SMARTPS_QUANTITIES = ("signal_dbm", "sinr_db", "rtt_ms", "cwnd", "loss", "delivery_mbit_s")
"""Without RSRQ and link rates, as in the paper. The signal of a cellular path is its RSRP here, not its RSSI."""


@dataclass(frozen=True)
class Rows:
    """What a tree learns from: a column per feature, whether `a` is to be first, a weight and the drive of each."""

    features: list[str]
    x: Any
    y: Any
    weight: Any
    drive: Any
    unlabelled: float
    """Share of the windows in which neither order was better."""


def pairs(frame: pl.DataFrame) -> pl.DataFrame:
    """A row per window with the outcome of both orders over the horizon, and the label `wifi_first` (or null)."""
    both = ahead(frame)
    better = _better("goodput_WF", "goodput_LF")
    sooner = _better("delay_LF", "delay_WF")
    return both.with_columns(wifi_first=pl.coalesce(better, sooner))


def ahead(frame: pl.DataFrame) -> pl.DataFrame:
    """A row per window: goodput and delay of both orders over the horizon, and of the other choices (or null)."""
    own = (*KEYS[:-1], "prio")
    ahead = frame.sort(*KEYS).with_columns(
        goodput=_ahead("goodput_mbit_s").over(own), delay=_ahead("delay_ms").over(own)
    )
    both, *others = [
        ahead.filter(pl.col("prio") == prio).select(*KEYS, pl.col("goodput", "delay").name.suffix(f"_{prio}"))
        for prio in (*collect.FIRST, *collect.ALONE, "NO")
    ]
    for other in others:
        both = both.join(other, on=KEYS, how="left", maintain_order="left")
    return both.drop_nulls(["goodput_WF", "goodput_LF"])


def _ahead(name: str) -> pl.Expr:
    """The mean over the horizon from this window on; null at the end of a run."""
    return pl.col(name).reverse().rolling_mean(HORIZON, min_samples=HORIZON).reverse()


def _better(ours: str, others: str) -> pl.Expr:
    """Whether one value is greater than the other by more than the margin of the greater; null if neither is."""
    least = MARGIN * pl.max_horizontal(ours, others)
    difference = pl.col(ours) - pl.col(others)
    return pl.when(difference > least).then(True).when(-difference > least).then(False)


def smartps(frame: pl.DataFrame, without: Sequence[str] = ()) -> Rows:
    """As published: Wi-Fi is `a`, and the values under both orders are merged by their median."""
    labelled = pairs(frame)
    names = [f"{path}_{name}" for path in PATHS for name in tree.QUANTITIES]
    merged = collect.orders(frame).group_by(KEYS).agg(pl.col(names).median().cast(pl.Float32))
    rows = labelled.drop_nulls("wifi_first").join(merged, on=KEYS, maintain_order="left")
    features = [f"{of}.{name}" for of in "ab" for name in _quantities(without)]
    return _rows(features, [(rows, PATHS)], np.ones, 1 - rows.height / max(labelled.height, 1))


def learned(frame: pl.DataFrame, without: Sequence[str] = ()) -> Rows:
    """Ours: one path relative to the other, each as `a`, under the order in use, weighted by what is at stake."""
    labelled = pairs(frame)
    rows = labelled.drop_nulls("wifi_first").join(collect.orders(frame), on=KEYS, maintain_order="left")
    swapped = rows.with_columns(wifi_first=~pl.col("wifi_first"))
    features = [f"a-b.{name}" for name in _quantities(without)]
    both = [(rows, PATHS), (swapped, (PATHS[1], PATHS[0]))]
    kept = labelled["wifi_first"].drop_nulls().len()
    return _rows(features, both, None, 1 - kept / max(labelled.height, 1))


def _quantities(without: Sequence[str]) -> list[str]:
    return [name for name in SMARTPS_QUANTITIES if name not in without]


def _rows(
    features: list[str],
    oriented: list[tuple[pl.DataFrame, tuple[str, str]]],
    weights: Any,  # noqa: ANN401
    unlabelled: float,
) -> Rows:
    x, y, weight, drive = [], [], [], []
    for frame, (a, b) in oriented:
        first, second = (values(frame, path) for path in (a, b))
        x.append(tree.columns(features, first, second))
        y.append(frame["wifi_first"].to_numpy().astype(np.int8))
        drive.append(frame["drive"].to_numpy())
        weight.append(weights(frame.height) if weights else _stake(frame))
    whole, known = np.concatenate(x), np.isfinite(np.concatenate(x)).all(axis=1)
    y, weight, drive = (np.concatenate(each)[known] for each in (y, weight, drive))
    return Rows(features, whole[known], y, weight, drive, unlabelled)


def values(frame: pl.DataFrame, path: str) -> tree.Values:
    """The quantities of a path, a column each."""
    return frame.select(pl.col(f"{path}_{name}").cast(pl.Float32) for name in tree.QUANTITIES).to_numpy()


def _stake(frame: pl.DataFrame) -> Any:  # noqa: ANN401
    """By how much the better order is better, as a share of its goodput, but at least the margin."""
    best = pl.max_horizontal("goodput_WF", "goodput_LF")
    lost = (pl.col("goodput_WF") - pl.col("goodput_LF")).abs() / best
    return frame.select(lost.fill_nan(0.0).clip(MARGIN, 1.0)).to_series().to_numpy()
