"""The trees of the campaign, and what their training shows (table V, figure 5)."""

import hashlib
import io
import json
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from crosslane_lab.errors import first_line, unreadable
from crosslane_lab.learn import collect, train, tree, write
from crosslane_lab.progress import Progress

DEPTH = 8
TUNNEL = ("cwnd", "loss")
"""What the tunnel does not measure of its paths."""


@dataclass(frozen=True)
class Kind:
    """A tree: its strategy, the quantities that it may not ask for, and whether models are compared on its rows.

    Those for the tunnel are trained on what its own choices brought. That of `smartps`, which always has an order,
    is trained where an order matters: with the short send buffer.
    """

    strategy: str
    without: tuple[str, ...] = ()
    compared: bool = False

    @property
    def in_tunnel(self) -> bool:
        """Whether it is for the tunnel."""
        return self.without == TUNNEL


KINDS = {
    "smartps": Kind("smartps", compared=True),
    "learned": Kind("learned", compared=True),
    "smartps-tunnel": Kind("smartps", TUNNEL),
    "learned-tunnel": Kind("learned", TUNNEL),
    "learned-transport": Kind("learned", ("signal_dbm", "sinr_db")),
}


def make(folder: Path, frame: pl.DataFrame, of_tunnel: pl.DataFrame, progress: Progress) -> None:
    """Train the trees into a folder; those that were trained on the same rows stay."""
    frames = {False: frame, True: of_tunnel}
    digests = {in_tunnel: _digest(rows) for in_tunnel, rows in frames.items()}
    for place, (name, kind) in enumerate(KINDS.items(), 1):
        made_from = json.dumps({"rows": digests[kind.in_tunnel], "depth": DEPTH, "kind": vars(kind)})
        scores = folder / f"{name}-scores.json"
        if (folder / f"{name}.json").is_file() and _is_made(scores, made_from):
            continue
        progress(f"training {name} ({place} of {len(KINDS)})")
        found, text = _train(frames[kind.in_tunnel], folder, kind)
        write(folder / f"{name}.json", text)
        write(scores, json.dumps(found | {"made_from": made_from}))
    progress.done()


def _is_made(scores: Path, made_from: str) -> bool:
    """Whether a tree was trained on the same; not if the file of its scores was cut."""
    try:
        return json.loads(scores.read_text(encoding="utf-8"))["made_from"] == made_from
    except (OSError, ValueError, LookupError, TypeError):
        return False


def _digest(frame: pl.DataFrame) -> str:
    content = io.BytesIO()
    frame.write_ipc(content)
    return hashlib.sha256(content.getvalue()).hexdigest()


def _train(frame: pl.DataFrame, folder: Path, kind: Kind) -> tuple[dict[str, Any], str]:
    if kind.strategy == "smartps":
        frame = frame.filter(pl.col("buffer_kb") > 0)
    if kind.compared:
        made = train.make(frame, folder, kind.strategy, DEPTH)
        return {
            "lines": [*train.page(made.rows, made.scores), "", train.fits(made)],
            "scores": made.scores,
        }, made.text
    rows = train.ROWS[kind.strategy](frame, kind.without)
    train.check(rows, folder)
    nodes, fallback = train.decided(frame, rows, kind.strategy, DEPTH, kind.without)
    return {}, tree.text(kind.strategy, nodes, collect.provenance(frame), fallback)


def copy(source: Path, folder: Path, names: Iterable[str]) -> None:
    """Put trees beside the scenarios that name them."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        file = source / f"{name}.json"
        if not file.is_file():
            raise unreadable(file, "there is none", "run the command without --draw-only")
        shutil.copyfile(file, folder / file.name)


def scores(folder: Path, name: str) -> dict[str, Any]:
    """What `make` found of a tree whose models were compared."""
    return _object(folder / f"{name}-scores.json")


def nodes(folder: Path, name: str) -> list[tree.Node]:
    """The nodes of a tree."""
    file = folder / f"{name}.json"
    tree.read(file)
    return _object(file)["nodes"]


def _object(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise unreadable(file, first_line(error), "remove it and run the command without --draw-only") from error
    if not isinstance(found, dict):
        raise unreadable(file, "not a JSON object", "remove it and run the command without --draw-only")
    return found
