"""The file of a tree (docs/reference/tree.md): written from scikit-learn, and asked as the agent does."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from crosslane_lab.errors import first_line, unreadable

VERSION = 1
MAX_DEPTH = 16
QUANTITIES: dict[str, tuple[int, int]] = {
    "signal_dbm": (-120, 0),
    "sinr_db": (-40, 80),
    "rsrq_db": (-60, 20),
    "tx_mbit_s": (0, 100_000),
    "rx_mbit_s": (0, 100_000),
    "rtt_ms": (0, 60_000),
    "cwnd": (0, 1_000_000),
    "loss": (0, 1),
    "delivery_mbit_s": (0, 100_000),
}
"""Quantities of a path in the order of the program, each with its least and its greatest possible value."""
DECIBELS = ("signal_dbm", "sinr_db", "rsrq_db", "loss")
"""Quantities of which `a-b` is a difference; of the others it is (a − b) / (a + b)."""

Node = dict[str, Any]
Values = np.ndarray[Any, np.dtype[np.float32]]


def text(strategy: str, nodes: Sequence[Node], trained: dict[str, object], fallback: str | None = None) -> str:
    """The file's text, a node a line; without a fallback the user's order applies where the tree does not say."""
    otherwise = f' "fallback": {json.dumps(fallback)},\n' if fallback else ""
    lines = ",\n".join(f"  {json.dumps(node)}" for node in nodes)
    return (
        f'{{\n "format": "crosslane-tree",\n "version": {VERSION},\n "strategy": {json.dumps(strategy)},\n'
        f'{otherwise} "trained": {json.dumps(trained)},\n "nodes": [\n{lines}\n ]\n}}\n'
    )


def read(file: Path) -> str:
    """The text of a tree's file; raises `LabError` if it is none. The program checks its nodes."""
    remedy = "name a tree that `crosslane-lab learn train` made"
    try:
        content = file.read_text(encoding="utf-8")
        found = json.loads(content)
    except (OSError, ValueError, RecursionError) as error:
        cause = (isinstance(error, OSError) and error.strerror) or f"not a tree ({first_line(error)})"
        raise unreadable(file, cause, remedy) from error
    if not isinstance(found, dict) or not isinstance(found.get("nodes"), list):
        raise unreadable(file, "not a tree (it has no list of `nodes`)", remedy)
    return content


def unseen(file: Path, seed: int) -> str:
    """The text of a tree's file; raises `LabError` if it is none, or was trained on the drives of this seed."""
    content = read(file)
    trained = json.loads(content).get("trained")
    seeds = trained.get("seeds") if isinstance(trained, dict) else None
    if isinstance(seeds, list) and seed in seeds:
        cause = f"it was trained on the drives of seed {seed}, on which it would seem better than it is"
        raise unreadable(file, cause, "name another seed with --seed")
    return content


def nodes(model: Any, features: Sequence[str]) -> list[Node]:  # noqa: ANN401
    """The nodes of a fitted `DecisionTreeClassifier` whose classes are 0 and 1 (`a` first)."""
    tree, ones = model.tree_, list(model.classes_).index(1)
    found: list[Node] = []
    for place in range(tree.node_count):
        if tree.children_left[place] < 0:
            counts = tree.value[place][0]
            found.append({"a_first": float(counts[ones] / counts.sum())})
        else:
            yes, no = int(tree.children_left[place]), int(tree.children_right[place])
            name = features[tree.feature[place]]
            found.append({"feature": name, "at_most": float(tree.threshold[place]), "yes": yes, "no": no})
    return found


def merged(model: Any, features: Sequence[str], decided: Callable[[int], Node]) -> list[Node]:  # noqa: ANN401
    """The nodes of a scikit-learn tree with each leaf as decided; leaves that say the same are one."""

    def below(place: int) -> list[Node]:
        if model.children_left[place] < 0:
            return [decided(place)]
        yes, no = below(int(model.children_left[place])), below(int(model.children_right[place]))
        if yes == no and len(yes) == 1:
            return yes
        name, at_most = features[model.feature[place]], float(model.threshold[place])
        question = {"feature": name, "at_most": at_most, "yes": 1, "no": 1 + len(yes)}
        return [question, *_moved(yes, 1), *_moved(no, 1 + len(yes))]

    return below(0)


def _moved(nodes: Sequence[Node], by: int) -> list[Node]:
    return [
        node | {"yes": node["yes"] + by, "no": node["no"] + by} if "feature" in node else node for node in nodes
    ]


def value(feature: str, a: Values, b: Values) -> Any:  # noqa: ANN401
    """A feature of two paths; `a` and `b` have a value per quantity in their last axis, in 32 bits."""
    of, quantity = feature.split(".")
    place = list(QUANTITIES).index(quantity)
    first, second = a[..., place], b[..., place]
    if of != "a-b":
        return first if of == "a" else second
    if quantity in DECIBELS:
        return first - second
    total = first + second
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(total == 0, np.float32(0), (first - second) / total).astype(np.float32)


def columns(features: Sequence[str], a: Values, b: Values) -> Values:
    """A column for each feature."""
    return np.stack([value(feature, a, b) for feature in features], axis=-1)
