"""The pictures of docs/results/liao.md."""

from collections.abc import Sequence

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from crosslane_lab.learn.analyse import ATTRIBUTES, BINS, LEAST, Attribute
from crosslane_lab.learn.tree import Node
from crosslane_lab.papers.liao.results import Walk
from crosslane_lab.render.style import (
    BLUE,
    FAINT,
    GREEN,
    GREY,
    INK,
    MUTED,
    OCHRE,
    ORANGE,
    PINK,
    PURPLE,
    SKY,
    WIDTH_IN,
    house_style,
)

COLOURS = {
    "minrtt": GREY,
    "roundrobin": OCHRE,
    "default": PURPLE,
    "smartps": BLUE,
    "learned": ORANGE,
    "bound": GREEN,
    "kernel": GREY,
    "kernel-tuned": PURPLE,
    "tunnel": GREEN,
    "tunnel-fixed": PINK,
    "tunnel-smartps": BLUE,
    "tunnel-learned": ORANGE,
}
PATHS = {"wifi": BLUE, "cellular": ORANGE}
NOT_DRAWN = ("RTT", "CWND")
"""Figure 4 leaves them out, as in the paper."""
DRAWN_DEPTH = 4
"""Questions that figure 5 shows; what is below a branch is counted."""


def walk(walks: dict[str, Walk]) -> Figure:
    """Figures 2 and 3: by strategy a column with the signal, Wi-Fi's share of the bytes, packets in flight."""
    with house_style():
        figure = Figure(figsize=(WIDTH_IN, 5.4))
        panels = figure.subplots(3, len(walks), sharex=True, sharey="row", squeeze=False)
        for (above, middle, below), (name, of) in zip(panels.T, walks.items(), strict=True):
            seconds = of.seconds
            above.plot(seconds["second"], seconds["rssi_dbm"], color=INK, lw=1.2)
            middle.plot(seconds["second"], seconds["share"] * 100, color=BLUE, lw=1.2)
            for path, colour in PATHS.items():
                if f"{path}_packets" in seconds.columns:
                    below.plot(
                        seconds["second"], seconds[f"{path}_packets"].fill_null(0), color=colour, lw=1.2, label=path
                    )
            for axes in (above, middle, below):
                axes.axvline(of.switching_s, color=MUTED, lw=1, ls=":")
            above.set_title(f"{name}: Wi-Fi is slower from {of.switching_s} s on, left at {of.left_s} s")
            below.set_xlabel("seconds; dotted: Wi-Fi is the slower path from here on")
        labels = ("RSSI of Wi-Fi, dBm", "% of the bytes by Wi-Fi", "packets in flight")
        for axes, label in zip(panels[:, 0], labels, strict=True):
            axes.set_ylabel(label)
        panels[2, 0].legend(frameon=False)
        figure.subplots_adjust(left=0.06, right=0.99, top=0.94, bottom=0.09, hspace=0.15, wspace=0.05)
    return figure


def attributes(frame: pl.DataFrame) -> Figure:
    """Figure 4: the 90th percentiles of goodput and delay in the bins of each attribute of the first path."""
    drawn = [each for each in ATTRIBUTES if each.name not in NOT_DRAWN]
    shown = [(each, path) for each in drawn for path in each.paths if frame[f"{path}_{each.quantity}"].count()]
    with house_style():
        figure = Figure(figsize=(WIDTH_IN, 4.6))
        panels = figure.subplots(2, len(shown), sharey="row", squeeze=False)
        for (above, below), (attribute, path) in zip(panels.T, shown, strict=True):
            _of_attribute(above, frame, attribute, path, "goodput_mbit_s")
            _of_attribute(below, frame, attribute, path, "delay_ms")
            above.set_title(f"{attribute.name}, {'Wi-Fi' if path == 'wifi' else 'cell.'}", fontsize=8)
        panels[0, 0].set_ylabel("goodput, Mbit/s, 90th percentile")
        panels[1, 0].set_ylabel("delay, ms, 90th percentile")
        panels[1, 0].set_yscale("log")
        figure.legend(*panels[0, 0].get_legend_handles_labels(), loc="lower left", ncols=2, frameon=False)
        figure.legend(*panels[0, -1].get_legend_handles_labels(), loc="lower right", ncols=2, frameon=False)
        figure.subplots_adjust(left=0.05, right=0.995, top=0.93, bottom=0.14, hspace=0.2, wspace=0.1)
    return figure


def _of_attribute(axes: Axes, frame: pl.DataFrame, attribute: Attribute, path: str, outcome: str) -> None:
    width, technology = BINS[attribute.quantity], "wifi" if path == "wifi" else "cellular"
    rows = frame.filter(pl.col("prio") == ("WF" if path == "wifi" else "LF"))
    colours = (BLUE, SKY) if path == "wifi" else (ORANGE, OCHRE)
    for colour, (name, of) in zip(colours, sorted(_by(rows, technology)), strict=False):
        value = (pl.col(f"{path}_{attribute.quantity}").cast(pl.Float64) / width).floor() * width
        bins = of.select(value.alias("bin"), outcome).drop_nulls().group_by("bin")
        points = bins.agg(pl.len(), pl.col(outcome).quantile(0.9)).filter(pl.col("len") >= LEAST).sort("bin")
        axes.plot(points["bin"], points[outcome], ".-", ms=3, lw=0.9, color=colour, label=f"{name} first")


def _by(rows: pl.DataFrame, column: str) -> list[tuple[str, pl.DataFrame]]:
    return [(str(key[0]), part) for key, part in rows.partition_by(column, as_dict=True).items()]


def tree(nodes: Sequence[Node]) -> Figure:
    """Figure 5: the first questions of the pruned tree; leaves have the share in which Wi-Fi is better."""
    with house_style():
        figure = Figure(figsize=(WIDTH_IN, 4.6))
        axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
        axes.set_axis_off()
        axes.set_xlim(0, 1)
        axes.set_ylim(-DRAWN_DEPTH - 0.5, 0.4)
        _branch(axes, nodes, 0, 0, (0.0, 1.0))
    return figure


def _branch(axes: Axes, nodes: Sequence[Node], place: int, depth: int, span: tuple[float, float]) -> None:
    node, middle = nodes[place], sum(span) / 2
    is_leaf = "a_first" in node
    if is_leaf or depth == DRAWN_DEPTH:
        share = leaf_share(nodes, place)
        text = (
            f"{'Wi-Fi' if share > 0.5 else 'cell.'}\n{share * 100:.0f} %"
            if is_leaf
            else f"{count(nodes, place)}\nmore"
        )
        colour = BLUE if share > 0.5 else ORANGE
        axes.text(middle, -depth, text, ha="center", va="center", fontsize=7, color=colour if is_leaf else MUTED)
        return
    for child, half in ((node["yes"], (span[0], middle)), (node["no"], (middle, span[1]))):
        x = sum(half) / 2
        axes.plot((middle, x), (-depth - 0.12, -depth - 0.85), color=FAINT, lw=1)
        word = "≤" if child == node["yes"] else ">"
        axes.text((middle + x) / 2, -depth - 0.5, word, ha="center", va="center", fontsize=7, color=MUTED)
        _branch(axes, nodes, child, depth + 1, half)
    axes.text(
        middle, -depth, question(node), ha="center", va="center", fontsize=7.5 if depth < 3 else 6.5, color=INK
    )


def question(node: Node) -> str:
    """A question in the words of the paper: the quantity, the path and the threshold."""
    of, quantity = node["feature"].split(".")
    path = {"a": "Wi-Fi", "b": "cell.", "a-b": "a − b"}[of]
    return f"{quantity}\n{path} ≤ {node['at_most']:.3g}"


def count(nodes: Sequence[Node], place: int) -> int:
    """The nodes from one on."""
    node = nodes[place]
    return 1 if "a_first" in node else 1 + count(nodes, node["yes"]) + count(nodes, node["no"])


def leaf_share(nodes: Sequence[Node], place: int) -> float:
    """The share of a leaf; of a branch that of its first leaf."""
    while "a_first" not in nodes[place]:
        place = nodes[place]["yes"]
    return nodes[place]["a_first"]


def distributions(panels: dict[str, dict[str, Sequence[float]]]) -> Figure:
    """Figures 7 to 12: a panel per title with the cumulative distribution of each strategy."""
    with house_style():
        figure = Figure(figsize=(WIDTH_IN, 3.4))
        for axes, (title, lines) in zip(figure.subplots(1, len(panels)), panels.items(), strict=True):
            for name, values in lines.items():
                ordered = np.sort(np.asarray(values, dtype=float))
                shares = np.arange(1, len(ordered) + 1) / len(ordered) * 100
                axes.step(ordered, shares, where="post", color=COLOURS.get(name, INK), lw=1.2, label=name)
            axes.set_title(title)
            axes.set_ylim(0, 100)
            if title.endswith("(log)"):
                axes.set_xscale("log")
        figure.axes[0].set_ylabel("% of the values at most")
        figure.axes[0].legend(frameon=False, fontsize=7)
        figure.subplots_adjust(left=0.05, right=0.99, top=0.9, bottom=0.1, wspace=0.12)
    return figure
