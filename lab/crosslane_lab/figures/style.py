"""How every figure looks: size, type, and colours that stay with a path or a strategy.

The hues are Okabe and Ito's where two things must be told apart (safe for colour-blind readers) and
of middling lightness. Neutral colours and the darker hues are exact hexadecimal values that `render`
swaps for CSS variables, so that a figure follows the reader's light or dark theme.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes

from crosslane_lab.run import RunFolder

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
"""The colours that follow the theme, and the CSS variables that carry them."""

_STRATEGIES = {
    "single": MUTED,
    "kernel": GREY,
    "kernel-tuned": PURPLE,
    "threshold": GREEN,
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
    """Within this, matplotlib draws and saves in the house style."""
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
    """The colour of a strategy: its own where it has a fixed one, else a spare one by place."""
    if strategy in _STRATEGIES:
        return _STRATEGIES[strategy]
    others = [s for s in folder.strategies if s not in _STRATEGIES]
    taken = {_STRATEGIES[s] for s in folder.strategies if s in _STRATEGIES}
    spare = [colour for colour in _SPARE if colour not in taken]
    return spare[others.index(strategy) % len(spare)] if strategy in others else GREY


def say_nothing_here(axes: Axes, text: str) -> None:
    """A muted remark in an empty panel, so that it does not look like a fault."""
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", color=MUTED, fontsize=8)
