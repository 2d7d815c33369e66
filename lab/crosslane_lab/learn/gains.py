"""The tree of `learned`: when an order of two paths, or one alone, brings more than the packet scheduler's choice.

The windows of drives that were run with either path first, with either alone and without an order say what each
brings in the next second. A regression tree of that is grown on one half of the drives, and each leaf is decided
on the other half (an *honest* tree, Athey and Imbens 2016). A choice applies where its mean gain there, with the
losses of drives counted twice, is greater than twice its standard error between drives. Elsewhere there is none.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from crosslane_lab.errors import unreadable
from crosslane_lab.learn import collect, label, need, tree
from crosslane_lab.learn.collect import PATHS

LEAST_IN_LEAF = 0.003
"""Share of the rows."""
MAX_GAIN = 2.0
"""A gain is at most this, as a multiple of the case's goodput."""
SEED = 1
ERRORS = 2
"""Standard errors by which a gain must exceed 0."""
LOSS = 2.0
"""Weight of what a drive loses in a leaf, of what it wins 1: no drive is to pay for what others win."""


CHOICES = (*collect.FIRST, *collect.ALONE)
LEAVES: tuple[tree.Node, ...] = (
    {"a_first": 1.0},
    {"a_first": 0.0},
    {"a_first": 1.0, "alone": True},
    {"a_first": 0.0, "alone": True},
)
"""What a leaf says by the choice that is best in it, with Wi-Fi as `a`."""
SWAPPED = (1, 0, 3, 2)
"""The places of the choices with the paths swapped."""


@dataclass(frozen=True)
class Rows:
    """A row per window, run and orientation: features, the gain of each choice, and the drive."""

    features: list[str]
    x: Any
    gains: Any
    drive: Any


def rows(frame: pl.DataFrame, without: Sequence[str] = ()) -> Rows:
    """The rows of all runs; a gain is relative to the mean goodput of the case without an order."""
    outcomes = label.ahead(frame)
    needed = [f"goodput_{choice}" for choice in (*CHOICES, "NO")]
    known = outcomes.drop_nulls(needed)
    if known.is_empty():
        cause = "none has the outcome of every choice"
        raise unreadable("the windows", cause, "make them with `crosslane-lab learn collect`")
    usual = pl.col("goodput_NO").mean().over(label.KEYS[:-1])
    gains = [
        ((pl.col(f"goodput_{choice}") - pl.col("goodput_NO")) / usual).clip(-MAX_GAIN, MAX_GAIN).alias(choice)
        for choice in CHOICES
    ]
    known = known.select(*label.KEYS, *gains).drop_nans(CHOICES)
    of_runs = known.join(frame, on=label.KEYS, maintain_order="left")
    features = [f"{of}.{name}" for of in ("a", "b") for name in _ABSOLUTE if name not in without]
    features += [f"a-b.{name}" for name in label.SMARTPS_QUANTITIES if name not in without]
    values = [label.values(of_runs, path) for path in PATHS]
    x = np.concatenate([tree.columns(features, *values), tree.columns(features, *values[::-1])])
    both = of_runs.select(CHOICES).to_numpy()
    kept = np.isfinite(x).all(axis=1)
    gained, drive = np.concatenate([both, both[:, SWAPPED]]), np.tile(of_runs["drive"].to_numpy(), 2)
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
    decided = {leaf: _best(gains[leaves == leaf], drives[leaves == leaf]) for leaf in np.unique(leaves)}
    return tree.merged(model.tree_, found.features, lambda leaf: decided.get(leaf, NEITHER))


NEITHER: tree.Node = {"a_first": 0.5}


def _best(gains: Any, drives: Any) -> tree.Node:  # noqa: ANN401
    """The leaf that says the best choice, or neither; what a drive loses counts more than what it wins."""
    _, of = np.unique(drives, return_inverse=True)
    rows = np.bincount(of)[:, None]
    sums = np.stack([np.bincount(of, weights=column) for column in gains.T], axis=1)
    scores = (sums * np.where(sums < 0, LOSS, 1.0)).sum(axis=0) / len(gains)
    best = int(np.argmax(scores))
    off = sums - rows * gains.mean(axis=0)
    error = np.sqrt((off[:, best] ** 2).sum()) / len(gains)
    return LEAVES[best] if scores[best] > ERRORS * error else NEITHER
