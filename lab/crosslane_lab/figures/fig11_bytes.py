"""Figure 11: total bytes that each interface carried in a long drive, with and without a path manager.

`crosslane-lab reproduce hapanchak 11` shows several run folders (densities of roadside units) next to each
other. The paper describes losses, retransmissions and duplicates in the text only; here they are a table.
"""

from dataclasses import dataclass

from matplotlib.figure import Figure

from crosslane_lab.render.markdown import number, table
from crosslane_lab.render.style import INK, MUTED, WIDTH_IN, house_style, path_colour
from crosslane_lab.runs.folder import RunFolder
from crosslane_lab.runs.frame import Spread, spread

TITLE = "Total transferred bytes"

COLUMNS = {
    "packets.lost": "packets lost",
    "retransmitted_bytes": "retransmitted MB",
    "reinjected_bytes": "duplicates MB",
    "handover.count": "handovers",
}
"""Further columns of the table: metric and heading."""

ORACLE = "oracle"
"""The strategy that knows the future; the others are shown as a share of its bytes."""


@dataclass(frozen=True)
class Row:
    """A strategy in one drive: bytes per path (median over the seeds) and the other columns."""

    strategy: str
    bytes: dict[str, float]
    others: dict[str, Spread | None]

    @property
    def total(self) -> float:
        """Sum over all paths."""
        return sum(self.bytes.values())


def skip_reason(folder: RunFolder) -> str | None:
    """Short messages send the same bytes with every strategy."""
    if folder.scenario.traffic != "uploads":
        return "this drive uploads no files"
    return None if any(row.bytes for row in rows(folder)) else "no run has the bytes of its paths"


def rows(folder: RunFolder) -> list[Row]:
    """A row per strategy that was run."""
    return [_row(folder, strategy) for strategy in folder.measured]


def draw(folder: RunFolder) -> Figure:
    """One panel: a bar per strategy, a segment per path."""
    return draw_all([folder])


def draw_all(folders: list[RunFolder]) -> Figure:
    """A panel per drive, on a common scale."""
    with house_style():
        figure = Figure(figsize=(WIDTH_IN, 3.4))
        panels = figure.subplots(1, len(folders), sharey=True, squeeze=False)[0]
        for axes, folder in zip(panels, folders, strict=True):
            found = rows(folder)
            below = [0.0] * len(found)
            for path in folder.scenario.paths:
                heights = [row.bytes.get(path, 0.0) / 1e6 for row in found]
                colour = path_colour(folder, path)
                axes.bar(range(len(found)), heights, 0.62, bottom=below, color=colour, label=path)
                for index, height in enumerate(heights):
                    if height > 0:
                        middle = below[index] + height / 2
                        axes.text(
                            index, middle, number(height), ha="center", va="center", color="white", fontsize=8
                        )
                below = [low + height for low, height in zip(below, heights, strict=True)]
            for index, total in enumerate(below):
                axes.text(index, total, number(total), ha="center", va="bottom", color=INK, fontweight="bold")
            axes.set_xticks(range(len(found)), [row.strategy for row in found], rotation=20, ha="right", color=INK)
            axes.set_title(_density(folder))
        panels[0].set_ylabel("payload delivered over the path (MB)")
        panels[0].legend(loc="lower left", bbox_to_anchor=(0, 1.1), ncols=4, frameon=False, labelcolor=MUTED)
        figure.subplots_adjust(left=0.06, right=0.99, top=0.8, bottom=0.2, wspace=0.08)
    return figure


def caption(folder: RunFolder) -> str:
    """Total bytes per strategy, also as a share of the oracle's."""
    found = rows(folder)
    oracle_total = next((row.total for row in found if row.strategy == ORACLE), None)
    parts = [f"{row.strategy} {number(row.total / 1e6, 'MB')}{_of(row, oracle_total)}" for row in found]
    return f"Payload delivered over each path, medians over the seeds: {'; '.join(parts)}."


def markdown(folders: list[RunFolder]) -> str:
    """Bytes, losses, retransmissions and duplicates of all drives, in Markdown."""
    paths = folders[0].scenario.paths
    head = [
        "drive",
        "strategy",
        *(f"{path} MB" for path in paths),
        "total MB",
        "of the oracle's",
        *COLUMNS.values(),
    ]
    lines: list[list[str]] = []
    for folder in folders:
        found = rows(folder)
        oracle_total = next((row.total for row in found if row.strategy == ORACLE), None)
        lines += [_cells(_density(folder), row, paths, oracle_total) for row in found]
    return "".join(f"{line}\n" for line in table(head, lines, "ll"))


def _row(folder: RunFolder, strategy: str) -> Row:
    runs = folder.shown_runs(strategy)
    path_bytes = {path: spread(runs, f"path.{path}.bytes") for path in folder.scenario.paths}
    return Row(
        strategy,
        {path: stats.median for path, stats in path_bytes.items() if stats},
        {metric: spread(runs, metric) for metric in COLUMNS},
    )


def _cells(drive: str, row: Row, paths: tuple[str, ...], oracle_total: float | None) -> list[str]:
    def shown(metric: str) -> str:
        stats = row.others[metric]
        scale = 1e6 if metric.endswith("_bytes") else 1
        return number(stats.median / scale) if stats else "–"

    share = number(row.total / oracle_total, "%") if oracle_total else "–"
    path_bytes = [number(row.bytes.get(path, 0.0) / 1e6) for path in paths]
    return [drive, row.strategy, *path_bytes, number(row.total / 1e6), share, *map(shown, COLUMNS)]


def _density(folder: RunFolder) -> str:
    count = folder.scenario.roadside_units
    return f"{count} roadside unit{'s' if count != 1 else ''}"


def _of(row: Row, oracle_total: float | None) -> str:
    return (
        f" ({number(row.total / oracle_total, '%')} of the oracle's)"
        if oracle_total and row.strategy != ORACLE
        else ""
    )
