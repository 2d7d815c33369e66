"""`crosslane-lab learn train`: a decision tree from collected windows, as a file that the agent reads.

Linear regression, naive Bayes, a tree by entropy, a random forest of 200 and the tree pruned afterwards are
compared by 10-fold cross-validation, with the windows split at random as in Liao et al. 2020, and split by drive.
Windows of one drive resemble each other, so a random split flatters every model. The file has of `smartps` the
pruned tree, of `learned` one that also says where neither order brings more than none (`learn/gains.py`).
"""

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from crosslane_lab.errors import unreadable
from crosslane_lab.learn import collect, gains, label, need, tree, write
from crosslane_lab.learn.places import BUFFERS_KB
from crosslane_lab.progress import Progress
from crosslane_lab.render.markdown import table

FOLDS = 10
SEED = 1
ROWS = {"smartps": label.smartps, "learned": label.learned}
LEAST_IN_LEAF = 20
MOST_SAMPLES = 10_000
"""Rows that a tree of the forest sees: a tenth of all, at most this number."""
MOST_COMPARED = 200_000
"""Rows by which the models are compared: more are drawn from, since they change no accuracy."""
Score = tuple[float, float, float, float, float]
Scores = dict[str, dict[str, Score]]
PRUNING = 1e-3
"""Minimal cost-complexity pruning: a split stays if it lowers the entropy by more, per row."""


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    parser = commands.add_parser("train", help="make a tree from collected windows", description=__doc__)
    parser.add_argument("data", type=Path, metavar="FILE", help="windows.parquet of `learn collect`")
    parser.add_argument("--strategy", choices=sorted(ROWS), default="learned", help="(default: %(default)s)")
    parser.add_argument(
        "--without",
        nargs="+",
        choices=label.SMARTPS_QUANTITIES,
        default=[],
        metavar="QUANTITY",
        help="that the tree is not to ask for, as `cwnd loss` for a tunnel, which reports neither",
    )
    parser.add_argument(
        "--buffer",
        type=int,
        choices=BUFFERS_KB,
        metavar="KB",
        help=f"of windows with this send buffer only: {' or '.join(map(str, BUFFERS_KB))}, 0: by autotuning",
    )
    parser.add_argument("--depth", type=int, default=8, help="most questions to a leaf (default: %(default)s)")
    parser.add_argument(
        "--out", type=Path, default=Path("tree.json"), metavar="FILE", help="(default: %(default)s)"
    )
    parser.set_defaults(act=_act)


def _act(given: argparse.Namespace) -> None:
    if not 1 <= given.depth <= tree.MAX_DEPTH:
        raise unreadable("the depth", f"{given.depth} is outside 1 to {tree.MAX_DEPTH}", "choose another")
    frame = collect.read(given.data)
    if given.buffer is not None:
        frame = frame.filter(pl.col("buffer_kb") == given.buffer)
    made = make(frame, given.data, given.strategy, given.depth, given.without)
    write(given.out, made.text)
    print("\n".join(page(made.rows, made.scores)))
    print(f"\n{fits(made)}")
    print(given.out)


@dataclass(frozen=True)
class Made:
    """A tree's file, and what it was learned from."""

    rows: label.Rows
    scores: Scores
    nodes: list[tree.Node]
    text: str


def make(frame: pl.DataFrame, source: Path, strategy: str, depth: int, without: Sequence[str] = ()) -> Made:
    """The pruned tree for a strategy, without some quantities; raises `LabError` if nothing can be learned."""
    rows = ROWS[strategy](frame, without)
    check(rows, source)
    scores = compare(rows, depth)
    nodes, fallback = decided(frame, rows, strategy, depth, without)
    pruned = {split: round(scores["pruned tree"][split][0], 4) for split in ("random", "by drive")}
    trained = {**collect.provenance(frame), "unlabelled": round(rows.unlabelled, 4), "accuracy": pruned}
    return Made(rows, scores, nodes, tree.text(strategy, nodes, trained, fallback))


def decided(
    frame: pl.DataFrame, rows: label.Rows, strategy: str, depth: int, without: Sequence[str]
) -> tuple[list[tree.Node], str | None]:
    """The nodes of the strategy's tree, and what applies where it does not say: of `smartps` as published."""
    if strategy == "learned":
        return gains.nodes(gains.rows(frame, without), depth), collect.NO_ORDER
    return tree.nodes(fitted(rows, depth), rows.features), None


def fits(made: Made) -> str:
    """The times and the size, which are not the same on every machine and for every tree."""
    times = ", ".join(f"{name} {by_split['random'][4]:.2g} s" for name, by_split in made.scores.items())
    return f"CPU time of a fit: {times}. {len(made.nodes)} nodes, {len(made.text.encode())} bytes."


def check(rows: label.Rows, source: Path) -> None:
    """Raise `LabError` if nothing can be learned from the rows."""
    if len(np.unique(rows.y)) < 2:
        which = "no order was" if not len(rows.y) else "the same order was always"
        raise unreadable(source, f"{which} better", "collect more drives, in which either path is better at times")
    if len(np.unique(rows.drive)) < FOLDS:
        cause = f"{len(np.unique(rows.drive))} drives have windows with a label, and {FOLDS} are needed"
        raise unreadable(source, cause, "collect more drives")


def fitted(rows: label.Rows, depth: int) -> Any:  # noqa: ANN401
    """The pruned tree from all rows."""
    return models(depth, len(rows.y))["pruned tree"].fit(rows.x, rows.y, sample_weight=rows.weight)


def models(depth: int, rows: int) -> dict[str, Any]:
    """The models by name, not yet fitted, for this number of rows."""
    trees, ensemble = need("sklearn.tree"), need("sklearn.ensemble")
    kept: dict[str, Any] = {"criterion": "entropy", "random_state": SEED, "min_samples_leaf": LEAST_IN_LEAF}
    return {
        "linear regression": need("sklearn.linear_model").LinearRegression(),
        "naive Bayes": need("sklearn.naive_bayes").GaussianNB(),
        "tree": trees.DecisionTreeClassifier(max_depth=depth, **kept),
        "forest of 200": ensemble.RandomForestClassifier(
            200,
            criterion="entropy",
            random_state=SEED,
            max_samples=max(min(round(rows / 10), MOST_SAMPLES), 1),
            n_jobs=1,
        ),
        "pruned tree": trees.DecisionTreeClassifier(max_depth=depth, ccp_alpha=PRUNING, **kept),
    }


def folds(rows: label.Rows, split: str) -> list[tuple[Any, Any]]:
    """Places of the rows to train on and to test on; split by drive, no drive is on both sides."""
    selection = need("sklearn.model_selection")
    if split == "random":
        return list(selection.KFold(FOLDS, shuffle=True, random_state=SEED).split(rows.x))
    made = list(selection.GroupKFold(FOLDS).split(rows.x, groups=rows.drive))
    for train, test in made:
        both = set(rows.drive[train]) & set(rows.drive[test])
        assert not both, f"drives {sorted(both)} are on both sides of a split"
    return made


def compare(rows: label.Rows, depth: int) -> Scores:
    """Accuracy, precision, recall and F1 of `a` first, and seconds of a fit, by model and split."""
    scores: Scores = {}
    rows = _drawn(rows)
    progress = Progress()
    for name in models(depth, len(rows.y)):
        for split in ("random", "by drive"):
            progress(f"comparing models: {name}, split {split}")
            scores.setdefault(name, {})[split] = _score(rows, depth, name, split)
    progress.done()
    return scores


def _drawn(rows: label.Rows) -> label.Rows:
    """The rows, or some of them at random."""
    if len(rows.y) <= MOST_COMPARED:
        return rows
    kept = np.sort(np.random.default_rng(SEED).choice(len(rows.y), MOST_COMPARED, replace=False))
    x, y, weight, drive = (of[kept] for of in (rows.x, rows.y, rows.weight, rows.drive))
    return replace(rows, x=x, y=y, weight=weight, drive=drive)


def _score(rows: label.Rows, depth: int, name: str, split: str) -> Score:
    predicted, seconds = np.zeros(len(rows.y)), 0.0
    for train, test in folds(rows, split):
        model, began = models(depth, len(train))[name], time.process_time()
        model.fit(rows.x[train], rows.y[train], sample_weight=rows.weight[train])
        seconds += time.process_time() - began
        predicted[test] = model.predict(rows.x[test])
    first, actual = predicted > 0.5, rows.y == 1
    right = float(np.mean(first == actual))
    hits = float(np.sum(first & actual))
    precision, recall = hits / max(float(first.sum()), 1), hits / max(float(actual.sum()), 1)
    return right, precision, recall, 2 * precision * recall / max(precision + recall, 1e-9), seconds / FOLDS


def page(rows: label.Rows, scores: Scores) -> list[str]:
    """The comparison as a table, without the times, which differ between machines."""
    share, most = float(np.mean(rows.y)), max(float(np.mean(rows.y)), 1 - float(np.mean(rows.y)))
    lines = [
        f"{len(rows.y)} rows of {len(np.unique(rows.drive))} drives; {rows.unlabelled * 100:.0f} % of the windows "
        f"have no label. In {share * 100:.0f} % of the rows path `a` was better: always the same answer is right "
        f"in {most * 100:.1f} %.",
        "",
    ]
    head = [
        "model",
        "random: accuracy",
        "precision",
        "recall",
        "F1",
        "by drive: accuracy",
        "precision",
        "recall",
        "F1",
    ]
    cells = (
        [name, *(f"{value:.3f}" for split in ("random", "by drive") for value in by_split[split][:4])]
        for name, by_split in scores.items()
    )
    return [*lines, *table(head, cells, compact=True)]
