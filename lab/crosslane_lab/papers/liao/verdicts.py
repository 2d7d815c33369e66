"""What Liao et al. 2020 state, and what our runs show: a row per figure, table or number."""

from collections.abc import Iterator
from typing import Any

import polars as pl

from crosslane_lab.learn import analyse
from crosslane_lab.papers.liao import trees
from crosslane_lab.papers.liao.campaign import OVER_MPTCP
from crosslane_lab.papers.liao.results import Found, Walk

Row = tuple[str, str, str, str]
"""Place in the paper, published, ours, verdict."""
TABLE_V = {"linear regression": 0.427, "naive Bayes": 0.648, "tree": 0.828, "forest of 200": 0.862}
"""Accuracies; the forest's is in the text."""
SLACK = 0.01
"""An accuracy counts as the same within this."""
GOODPUT_GAIN = {"7": 0.29, "10": 0.235}
DELAY_GAIN = (0.057, 0.093)
SAME_PACKETS = 0.02
"""Numbers of packets count as the same within this."""


def rows(found: Found) -> Iterator[Row]:
    """All rows."""
    yield from _walk(found.walk("minrtt"), found.walk("smartps"))
    yield from _data(found.windows)
    yield from _models(found)
    yield from _kernel(found)
    yield from _simulated(found)


def _walk(minrtt: Walk, smartps: Walk) -> Iterator[Row]:
    def gap(walk: Walk) -> int:
        return walk.left_s - walk.switching_s

    ours = f"MinRTT leaves Wi-Fi {_when(gap(minrtt))}, `smartps` {_when(gap(smartps))}"
    verdict = "same" if gap(minrtt) > 0 else "not seen"
    yield "2: MinRTT misses the switching point", "always", ours, verdict
    wifi, cellular = minrtt.packets("wifi"), minrtt.packets("cellular")
    ours = f"MinRTT {wifi:.0f} on Wi-Fi, {cellular:.0f} on the cell; `smartps` {smartps.packets('wifi'):.0f}"
    ours += f" and {smartps.packets('cellular'):.0f}"
    yield (
        "3: packets on the broken path",
        "more than on the good one",
        ours,
        "same" if wifi > cellular else "not seen",
    )


def _when(gap: int) -> str:
    return f"{abs(gap)} s {'after' if gap >= 0 else 'before'} it"


def _data(windows: pl.DataFrame) -> Iterator[Row]:
    yield (
        "III: rows",
        "5,564,365",
        f"{windows.height:,}",
        "not comparable: 1,246,742 + 4,314,623 are 5,561,365",
    )
    same, compared, ranking = signs(windows)
    yield (
        "IV: signs of τ",
        f"{compared} values",
        f"{same} agree",
        "same" if same == compared else "differs, see below",
    )
    ours = ", ".join(ranking[:4])
    agree = len({*ranking[:4]} & {"PDR", "RTT", "RSSI", "SINR"})
    yield "II: strongest τ of goodput", "PDR, RTT, RSSI, SINR", ours, "same" if agree == 4 else f"{agree} of 4"


def signs(windows: pl.DataFrame) -> tuple[int, int, list[str]]:
    """How many τ of table IV have the published sign, of how many; attributes by |τ| of goodput of both orders."""
    same, compared = 0, 0
    strength: dict[str, float] = {}
    for attribute in analyse.ATTRIBUTES:
        own = analyse.measured(windows, attribute, own=True)[:2]
        for ours, theirs in zip(own, attribute.own, strict=False):
            if ours is not None:
                compared += 1
                same += ours * theirs > 0
        of_both = analyse.measured(windows, attribute, own=False)[0]
        if of_both is not None:
            strength[attribute.name] = abs(of_both)
    return same, compared, sorted(strength, key=lambda name: -strength[name])


def _models(found: Found) -> Iterator[Row]:
    scores = trees.scores(found.trees, "smartps")["scores"]
    for model, published in TABLE_V.items():
        random, by_drive = (scores[model][split][0] for split in ("random", "by drive"))
        verdict = "same" if abs(random - published) <= SLACK else "more" if random > published else "less"
        if published < 0.5:
            verdict += ": published is below chance for two classes"
        yield f"V: accuracy, {model}", f"{published}", f"{random:.3f}; split by drive {by_drive:.3f}", verdict
    root = trees.nodes(found.trees, "smartps")[0]
    feature = root.get("feature", "none")
    verdict = "same" if feature == "a.signal_dbm" else "differs"
    yield "5: the root of the tree", "RSSI of Wi-Fi", f"`{feature}` (`a` is Wi-Fi)", verdict


def _kernel(found: Found) -> Iterator[Row]:
    frame = found.driven
    if frame.is_empty():
        return
    of = frame.filter(pl.col("buffer_kb") > 0)
    medians = dict(of.group_by("by").agg(pl.median("goodput_mbit_s")).iter_rows())
    gain = medians[OVER_MPTCP] / medians["kernel"] - 1
    yield _gain("7: goodput, learned / the kernel's MPTCP", GOODPUT_GAIN["7"], gain)
    gain = medians["tunnel-smartps"] / medians["tunnel"] - 1
    yield _gain("7: goodput, smartps / MinRTT (ours: the tunnel's `aggregate`)", GOODPUT_GAIN["7"], gain)
    delays = dict(of.group_by("by").agg(pl.median("delay_ms")).iter_rows())
    more = delays["tunnel-smartps"] / delays["tunnel"] - 1
    low, high = DELAY_GAIN
    verdict = "less" if more < low else "more" if more > high else "same"
    yield "8: delay, the same", f"{_signed(low)} to {_signed(high)}", _signed(more), verdict
    yield _packets("9", found.driven_packets, "tunnel-smartps", "tunnel")


def _simulated(found: Found) -> Iterator[Row]:
    of = mobile(found.held_out)
    medians = dict(of.group_by("by").agg(pl.median("goodput_mbit_s")).iter_rows())
    for name in ("smartps", "learned"):
        gain = medians[name] / medians["minrtt"] - 1
        yield _gain(f"10: goodput, {name} / MinRTT", GOODPUT_GAIN["10"], gain)
    for name, of_what in (("bound", "the bound of orders"), ("bound-alone", "the bound with a path alone")):
        yield _gain(f"10: goodput, {of_what} / MinRTT", GOODPUT_GAIN["10"], medians[name] / medians["minrtt"] - 1)
    delays = dict(of.drop_nulls("delay_ms").group_by("by").agg(pl.median("delay_ms")).iter_rows())
    ours = f"{delays['minrtt']:.0f} to {delays['smartps']:.0f} ms"
    less = delays["smartps"] < delays["minrtt"]
    yield "11: delay, MinRTT to smartps", "102 to 97 ms", ours, "same direction" if less else "not lower"
    yield _packets("12", found.packets, "smartps", "minrtt")


def mobile(frame: pl.DataFrame) -> pl.DataFrame:
    """The conditions that stand for the paper's: bulk uploads on the move with a short buffer."""
    return frame.filter(pl.col("traffic") == "bulk-up", pl.col("buffer_kb") > 0, pl.col("kind") != "static")


def _gain(place: str, published: float, ours: float) -> Row:
    verdict = "less" if ours < published - 0.05 else "more" if ours > published + 0.05 else "same"
    return place, _signed(published), _signed(ours), verdict


def _signed(share: float) -> str:
    """A relative difference, as `+23.5 %`."""
    return f"{share * 100:+.1f}\u00a0%".replace("-", "−")


def _packets(figure: str, frame: pl.DataFrame, ours: str, reference: str) -> Row:
    means: dict[str, Any] = dict(frame.group_by("by").agg(pl.col("packets").mean()).iter_rows())
    text = f"{means[ours]:.0f} in the mean, `{reference}` {means[reference]:.0f}"
    verdict = "same direction" if means[ours] < (1 - SAME_PACKETS) * means[reference] else "not fewer"
    return f"{figure}: packets in flight", "fewer", text, verdict
