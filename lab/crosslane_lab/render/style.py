"""Style of the figures: size, fonts, and fixed colours per path and strategy.

The hues are those of Okabe and Ito (distinguishable for colour-blind readers), of medium lightness.
`render` replaces the exact hexadecimal values of the neutral colours and the darker hues by CSS variables,
so that a figure follows the light or dark theme of the reader.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes

from crosslane_lab.runs.folder import RunFolder

WIDTH_IN = 12.0
"""Width of every figure; at the report's 1200 px one point of type is 1.39 px."""

INK, MUTED, FAINT, PAPER = "#1f2328", "#656d76", "#d0d7de", "#ffffff"
BLUE, ORANGE, SKY, PINK, GREEN, GREY, PURPLE, OCHRE, RED = (
    "#0f72b8",
    "#d9660a",
    "#4da6d9",
    "#c2699a",
    "#0f8a63",
    "#848d97",
    "#7f56c9",
    "#b07d00",
    "#cf3a32",
)
THEMED = {
    INK: "--ink",
    MUTED: "--muted",
    FAINT: "--faint",
    BLUE: "--blue",
    PURPLE: "--purple",
    GREEN: "--green",
    RED: "--red",
}
"""The colours that follow the theme, and their CSS variables."""

_STRATEGIES = {
    "single": MUTED,
    "kernel": GREY,
    "kernel-tuned": PURPLE,
    "threshold": GREEN,
    "adaptive": ORANGE,
    "hapanchak": OCHRE,
    "forecast": SKY,
    "oracle": BLUE,
}
_SPARE = (SKY, PINK, OCHRE, BLUE, ORANGE, PURPLE)

_RC: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 8.5,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 8.5,
    "axes.labelcolor": MUTED,
    "axes.edgecolor": FAINT,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "grid.color": FAINT,
    "grid.linewidth": 0.5,
    "text.color": INK,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "xtick.major.size": 3,
    "ytick.major.size": 0,
    "ytick.minor.size": 0,
    "lines.solid_capstyle": "round",
    "svg.fonttype": "none",
    "svg.hashsalt": "crosslane",
}


@contextmanager
def house_style() -> Iterator[None]:
    """A context in which matplotlib draws and saves in this style."""
    with mpl.rc_context(_RC):
        yield


def path_colour(folder: RunFolder, path: str) -> str:
    """The colour of a path: blue for the first short-range one, orange for the first cellular one."""
    scenario = folder.scenario
    near = [p for p in scenario.paths if p not in scenario.cells]
    ranked = near[:1] + list(scenario.cells[:1]) + near[1:] + list(scenario.cells[1:])
    colours = ([BLUE] if near else []) + ([ORANGE] if scenario.cells else []) + [SKY, PINK, OCHRE, PURPLE]
    return colours[ranked.index(path) % len(colours)] if path in ranked else GREY


def strategy_colour(folder: RunFolder, strategy: str) -> str:
    """The colour of a strategy: its fixed colour, else a spare one by position."""
    if strategy in _STRATEGIES:
        return _STRATEGIES[strategy]
    others = [s for s in folder.strategies if s not in _STRATEGIES]
    taken = {_STRATEGIES[s] for s in folder.strategies if s in _STRATEGIES}
    spare = [colour for colour in _SPARE if colour not in taken]
    return spare[others.index(strategy) % len(spare)] if strategy in others else GREY


def annotate_empty(axes: Axes, text: str) -> None:
    """Write a muted remark into an empty panel, so that it does not look like an error."""
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", color=MUTED, fontsize=8)
