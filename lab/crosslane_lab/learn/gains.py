"""The tree of `learned`: when an order of two paths brings more than the packet scheduler's own choice.

The windows of drives that were run with either path first and without an order say what each order brings in the
next second. A regression tree of that is grown on one half of the drives, and each leaf is decided on the other
half (an *honest* tree, Athey and Imbens 2016): an order applies where its mean gain there is greater than twice its
standard error between drives. Elsewhere there is none, so that a window without a cause is not an order.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from crosslane_lab.errors import unreadable
from crosslane_lab.learn import label, need, tree
from crosslane_lab.learn.collect import PATHS

LEAST_IN_LEAF = 0.01
"""Share of the rows."""
MAX_GAIN = 2.0
"""A gain is at most this, as a multiple of the case's goodput."""
SEED = 1
ERRORS = 2
"""Standard errors by which a gain must exceed 0."""


@dataclass(frozen=True)
class Rows:
    """A row per window, run and orientation: features, the gains of `a` and of `b` first, and the drive."""

    features: list[str]
    x: Any
    gains: Any
    drive: Any


def rows(frame: pl.DataFrame, without: Sequence[str] = ()) -> Rows:
    """The rows of all runs; a gain is relative to the mean goodput of the case without an order."""
    outcomes = label.ahead(frame)
    if outcomes["goodput_NO"].null_count() == outcomes.height:
        raise unreadable("the windows", "none is without an order", "make them with `crosslane-lab learn collect`")
    usual = pl.col("goodput_NO").mean().over(label.KEYS[:-1])
    gains = [
        ((pl.col(f"goodput_{order}") - pl.col("goodput_NO")) / usual).clip(-MAX_GAIN, MAX_GAIN).alias(order)
        for order in ("WF", "LF")
    ]
    known = outcomes.drop_nulls("goodput_NO").select(*label.KEYS, *gains).drop_nans(("WF", "LF"))
    of_runs = known.join(frame, on=label.KEYS, maintain_order="left")
    features = [f"{of}.{name}" for of in ("a", "b") for name in _ABSOLUTE if name not in without]
    features += [f"a-b.{name}" for name in label.SMARTPS_QUANTITIES if name not in without]
    values = [label.values(of_runs, path) for path in PATHS]
    x = np.concatenate([tree.columns(features, *values), tree.columns(features, *values[::-1])])
    both = of_runs.select("WF", "LF").to_numpy()
    kept = np.isfinite(x).all(axis=1)
    gained, drive = np.concatenate([both, both[:, ::-1]]), np.tile(of_runs["drive"].to_numpy(), 2)
    return Rows(features, x[kept], gained[kept], drive[kept])


_ABSOLUTE = ("rtt_ms", "cwnd", "delivery_mbit_s")
"""Quantities of one path that mean the same of any path."""


def nodes(found: Rows, depth: int) -> list[tree.Node]:
    """The tree: grown on one half of the drives, decided on the other."""
    of_first = np.isin(found.drive, np.unique(found.drive)[::2])
    least = max(round(LEAST_IN_LEAF * of_first.sum()), 1)
    model = need("sklearn.tree").DecisionTreeRegressor(max_depth=depth, min_samples_leaf=least, random_state=SEED)
    model.fit(found.x[of_first], found.gains[of_first])
    leaves, gains, drives = (each[~of_first] for each in (model.apply(found.x), found.gains, found.drive))
    decided = {leaf: _first(gains[leaves == leaf], drives[leaves == leaf]) for leaf in np.unique(leaves)}
    return tree.merged(model.tree_, found.features, lambda leaf: decided.get(leaf, 0.5))


def _first(gains: Any, drives: Any) -> float:  # noqa: ANN401
    """1: `a` is to be first, 0: `b`, 0.5: neither."""
    means = gains.mean(axis=0)
    best = int(np.argmax(means))
    off = gains[:, best] - means[best]
    error = np.sqrt(sum(off[drives == drive].sum() ** 2 for drive in np.unique(drives))) / len(off)
    return float(1 - best) if means[best] > ERRORS * error else 0.5
