"""The page that compares the simulator with the kernel: `docs/results/conformance.md`."""

from collections.abc import Iterator

from crosslane_lab.conformance.compare import BY_SEED, OUTSIDE, REPORTED, Exemption, Figure, reason_for
from crosslane_lab.render.markdown import number, table
from crosslane_lab.runs.catalog import GAP, GOODPUT, WORST_DELAY, describe, in_order
from crosslane_lab.runs.frame import Spread

_MARK = "✗"
_HEADS = {
    WORST_DELAY: "worst delay, ms",
    GAP: "pause, ms",
    GOODPUT: "goodput, Mbit/s",
    "handover.count": "handovers",
    "reinjected_bytes": "reinjected, bytes",
}


def page(figures: list[Figure], exemptions: list[Exemption], made: str) -> str:
    """The page as Markdown, a function of the figures only; `made` is the line that names the program."""
    scenarios = list(dict.fromkeys(figure.key[0] for figure in figures))
    used = [
        exemption
        for exemption in exemptions
        if any(exemption.covers(f.key) for f in figures if f.verdict == OUTSIDE)
    ]
    lines = ["# Conformance of the simulator", "", *_preface(figures, used, made)]
    for scenario in scenarios:
        lines += ["", f"## {scenario}", "", *_table([f for f in figures if f.key[0] == scenario], used)]
    if used:
        lines += ["", "## Exceptions", ""]
        lines += [f"{index}. {exemption.reason}" for index, exemption in enumerate(used, 1)]
    return "\n".join(lines) + "\n"


def _preface(figures: list[Figure], exemptions: list[Exemption], made: str) -> Iterator[str]:
    evaluated = [figure for figure in figures if figure.verdict != REPORTED]
    outside = [figure for figure in evaluated if figure.verdict == OUTSIDE]
    unknown = [figure for figure in outside if reason_for(figure, exemptions) is None]
    versions = ", ".join(sorted({figure.kernel_version for figure in figures}))
    yield (
        "Each scenario was driven on the kernel and simulated. A cell has the median over the seeds on the "
        f"kernel and in the simulator. Linux {versions}; {_runs([f.kernel for f in figures])} seeds on the kernel, "
        f"{_runs([f.simulator for f in figures if f.key[2] not in BY_SEED])} simulated (handovers, which the "
        "seed determines: the seeds of the kernel). Written by `make conformance`."
    )
    yield ""
    yield made
    yield ""
    yield (
        "Tolerances: a path's share within 5 points, goodput within 10 %, worst delay and pause within a factor "
        "of 1.5 or 20 ms, handovers within 1 or 10 %. Reinjected bytes are reported but not evaluated. "
        f"{_MARK} marks a value outside its tolerance, with the number of the reason at the end of the page."
    )
    yield ""
    yield (
        f"**{len(evaluated) - len(outside)} of {len(evaluated)} values are within their tolerance**, "
        f"{len(outside) - len(unknown)} are outside for a known reason, {len(unknown)} without one."
    )
    yield ""
    kinds: dict[str, list[Figure]] = {}
    for figure in evaluated:
        kinds.setdefault(_kind(figure.key[2]), []).append(figure)
    rows = ([kind, f"{sum(f.verdict != OUTSIDE for f in of)}", f"{len(of)}"] for kind, of in kinds.items())
    yield from table(["metric", "within", "of"], rows)


def _table(figures: list[Figure], exemptions: list[Exemption]) -> Iterator[str]:
    metrics = in_order({figure.key[2] for figure in figures})
    at = {figure.key[1:]: figure for figure in figures}
    strategies = dict.fromkeys(figure.key[1] for figure in figures)
    rows = ([f"`{s}`", *(_cell(at.get((s, metric)), exemptions) for metric in metrics)] for s in strategies)
    yield from table(["strategy", *map(_head, metrics)], rows)


def _head(metric: str) -> str:
    if metric.startswith("path."):
        return f"{metric[5:-6]}, %"
    return _HEADS.get(metric, metric)


def _cell(figure: Figure | None, exemptions: list[Exemption]) -> str:
    if figure is None:
        return "–"
    text = f"{_shown(figure.kernel, figure.key[2])} / {_shown(figure.simulator, figure.key[2])}"
    if figure.verdict != OUTSIDE:
        return text
    index = next((index for index, exemption in enumerate(exemptions, 1) if exemption.covers(figure.key)), None)
    return f"**{text}** {_MARK}" + (f" {index}" if index else "")


def _shown(stats: Spread | None, metric: str) -> str:
    if stats is None:
        return "–"
    unit = "%" if describe(metric).unit == "%" else ""
    return number(stats.median, unit).removesuffix("\u00a0%")


def _kind(metric: str) -> str:
    return "share of a path" if metric.startswith("path.") else _head(metric).split(",")[0]


def _runs(sides: list[Spread | None]) -> str:
    counts = sorted({side.count for side in sides if side is not None})
    return "no" if not counts else f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
