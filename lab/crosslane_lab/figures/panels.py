"""Comparison of strategies: one column each, common axes, signal and decisions in the lower panels."""

from collections.abc import Callable
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from crosslane_lab.figures import context_panels
from crosslane_lab.render.style import INK, WIDTH_IN, house_style
from crosslane_lab.runs.folder import Run, RunFolder
from crosslane_lab.runs.frame import representative

Draw = Callable[["Column"], None]
Window = tuple[float, float]

_MAX_COLUMNS = 4
"""More strategies continue in further rows."""
_LEFT_IN, _RIGHT_IN, _TOP_IN, _BOTTOM_IN, _COLUMN_GAP_IN = 0.95, 0.2, 0.42, 0.48, 0.22


@dataclass(frozen=True)
class Column:
    """The panels of one strategy, drawn from its median run; `first` is the column with the labels."""

    folder: RunFolder
    strategy: str
    run: Run
    window: Window
    axes: dict[str, Axes]
    first: bool


def compare(
    folder: RunFolder,
    heights_in: dict[str, float],
    draw: Draw,
    windows: dict[str, Window] | None = None,
    strategies: list[str] | None = None,
) -> Figure:
    """Draw panels of the given heights for each strategy, over the whole drive or over its window (s).

    `draw` fills them; signal and events follow below, and the strategies get common y axes.
    """
    shown = folder.measured if strategies is None else strategies
    with house_style():
        all_heights = heights_in | context_panels.heights_in(folder)
        figure, places = _grid(all_heights, len(shown))
        columns = [
            Column(
                folder=folder,
                strategy=strategy,
                run=representative(folder, strategy),
                window=(windows or {}).get(strategy, (0.0, folder.duration_s)),
                axes=_axes(figure, place, all_heights),
                first=place.first,
            )
            for strategy, place in zip(shown, places, strict=True)
        ]
        for column in columns:
            draw(column)
            context_panels.draw(folder, column.run, column.axes, column.window, column.first)
            _finish(column)
        for row in heights_in.keys() | {"signal"}:
            _same_y([column.axes[row] for column in columns])
    return figure


@dataclass(frozen=True)
class _Place:
    left_in: float
    top_in: float
    width_in: float
    height_in: float
    first: bool


def _grid(heights_in: dict[str, float], count: int) -> tuple[Figure, list[_Place]]:
    columns_per_row = count if count <= _MAX_COLUMNS else 3
    rows = -(-count // columns_per_row)
    gaps = 0.13 * (len(heights_in) - 1)
    row_in = _TOP_IN + sum(heights_in.values()) + gaps + _BOTTOM_IN
    width_in = (WIDTH_IN - _LEFT_IN - _RIGHT_IN - _COLUMN_GAP_IN * (columns_per_row - 1)) / columns_per_row
    figure = Figure(figsize=(WIDTH_IN, row_in * rows))
    places = [
        _Place(
            left_in=_LEFT_IN + (i % columns_per_row) * (width_in + _COLUMN_GAP_IN),
            top_in=row_in * (i // columns_per_row) + _TOP_IN,
            width_in=width_in,
            height_in=row_in * rows,
            first=i % columns_per_row == 0,
        )
        for i in range(count)
    ]
    return figure, places


def _axes(figure: Figure, place: _Place, heights_in: dict[str, float]) -> dict[str, Axes]:
    axes: dict[str, Axes] = {}
    top = place.top_in
    for row, height in heights_in.items():
        bottom = place.height_in - top - height
        box = (
            place.left_in / WIDTH_IN,
            bottom / place.height_in,
            place.width_in / WIDTH_IN,
            height / place.height_in,
        )
        axes[row] = figure.add_axes(box)
        top += height + 0.13
    return axes


def _finish(column: Column) -> None:
    rows = list(column.axes.values())
    for axes in rows:
        axes.set_xlim(*column.window)
        axes.tick_params(labelbottom=axes is rows[-1], bottom=axes is rows[-1])
        if not column.first:
            axes.set_ylabel("")
            axes.tick_params(labelleft=False)
    rows[0].set_title(column.strategy, color=INK, pad=9)
    rows[0].set_title(f"seed {column.run.seed}", loc="right", fontsize=8, fontweight="normal", pad=9)
    rows[-1].set_xlabel("time since the start of the run (s)")


def _same_y(axes: list[Axes]) -> None:
    limits = [axis.get_ylim() for axis in axes if axis.has_data()]
    if limits:
        low, high = min(lo for lo, _ in limits), max(hi for _, hi in limits)
        for axis in axes:
            axis.set_ylim(low, high)
