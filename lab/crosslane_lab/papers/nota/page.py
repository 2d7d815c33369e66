"""The page docs/results/nota.md and the pictures of `crosslane-lab reproduce nota`."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from matplotlib.figure import Figure

from crosslane_lab.output import write_file
from crosslane_lab.papers.frame import filled
from crosslane_lab.papers.nota import bars, curves, published, tables
from crosslane_lab.papers.nota.cases import BULK_S, EXTRA_CASES, IMPAIRMENTS, NAMES, ROADS, STATIC_S, STREAM_S, Case
from crosslane_lab.papers.nota.published import Published
from crosslane_lab.papers.nota.results import DELIVERED_S, EXPENSIVE, MISSED, OVERHEAD, WRITTEN_S, Results
from crosslane_lab.progress import Progress
from crosslane_lab.render.svg import png

KEY = ("static", "alpha", "roads-bulk-autotuned")
"""The pictures next to the page."""


def write(results: Results, out: Path) -> list[Path]:
    """Write the page and its key pictures (returned), and all pictures to the folder of the runs."""
    progress = Progress()
    folder = results.all.root / "figures"
    folder.mkdir(exist_ok=True)
    files = []
    try:
        for name, draw in _figures(results).items():
            progress(f"drawing {name}")
            picture = png(draw(), 72 if name in KEY else 100)
            write_file(folder / f"{name}.png", picture)
            if name in KEY:
                files.append(out.parent / f"nota-{name}.png")
                write_file(files[-1], picture)
        progress("writing the page")
        write_file(out, page(results))
    finally:
        progress.done()
    return [*files, out]


def page(results: Results) -> str:
    """The page as Markdown, a function of the runs only."""
    parts = {
        "static rates (6.1 to 6.16)": published.STATIC,
        "streaming (6.30, 6.31)": published.STREAMING,
        "roads, bulk (table 6.1, autotuned)": published.on_roads("bulk", "autotuned"),
        "roads, stream (table 6.2, autotuned)": published.on_roads("stream", "autotuned"),
    }
    static = [Case(base, deadline) for base, deadlines in STATIC_S.items() for deadline in deadlines]
    return filled(
        Path(__file__).with_name("page.template"),
        score=tables.score(results, parts),
        static=tables.published_comparison(results, published.STATIC),
        ours=tables.strategy_comparison(results, static),
        upstream=tables.strategy_comparison(results, [replace(case, variant="upstream") for case in static]),
        alphas=tables.alphas(results),
        overheads=tables.overheads(results),
        streaming=tables.published_comparison(results, published.STREAMING),
        times=tables.times(results, [Case("symmetric", 10), Case("triangular", 1)]),
        bulk=tables.roads(results, "bulk"),
        stream=tables.roads(results, "stream"),
        unwritten=tables.unwritten(results),
        utilities=tables.utilities(results, "bulk"),
        over_mptcp_on_roads=tables.worse_on_roads(results, "deadline-mptcp"),
        ours_on_roads=tables.worse_on_roads(results, "deadline"),
        extra_cases=tables.extra_cases(results),
    )


def _figures(results: Results) -> dict[str, Callable[[], Figure]]:
    """Each picture by name; the page gives the corresponding published figures."""
    figures: dict[str, Callable[[], Figure]] = {
        "static": lambda: _static(results),
        "limits": lambda: curves.limits(results),
        "alpha": lambda: curves.alphas(results),
        "traces": curves.roads,
        "beyond": lambda: _beyond(results),
    }
    for base, deadlines in STATIC_S.items():
        cases = [Case(base, d) for d in deadlines]
        figures[base] = lambda cases=cases: _bars(
            results, cases, (EXPENSIVE, MISSED, DELIVERED_S, OVERHEAD), published.STATIC
        )
    streams = [Case("triangular", d) for d in STREAM_S]
    figures["triangular"] = lambda: _bars(
        results, streams, (EXPENSIVE, MISSED, WRITTEN_S, DELIVERED_S), published.STREAMING
    )
    for kind in ("bulk", "stream"):
        figures[f"roads-{kind}"] = lambda kind=kind: _roads(results, kind, "")
        figures[f"roads-{kind}-autotuned"] = lambda kind=kind: _roads(results, kind, "autotuned")
    pairs = [(Case("symmetric", 10), s) for s in ("single", "kernel", "mp-dpa", "deadline-mptcp", "deadline")]
    pairs += [(Case("symmetric", 7.5), s) for s in ("mp-dpa", "deadline-mptcp", "deadline")]
    over_time = {"symmetric": pairs, "asymmetric": [(Case("asymmetric", 10), s) for _, s in pairs[:5]]}
    over_time["triangular"] = [
        (Case("triangular", 1), s) for s in ("single", "kernel", "mp-dpa-08", "deadline-mptcp", "deadline")
    ]
    over_time["triangular"] += [(Case("triangular", 0.8), s) for s in ("mp-dpa-08", "deadline-mptcp", "deadline")]
    for road in ROADS:
        for kind, deadline_s in (("bulk", 60), ("stream", 1)):
            case = Case(f"{road}-{kind}", deadline_s)
            over_time[case.base] = [(case, s) for s in ("kernel", "mp-dpa-08", "deadline-mptcp", "deadline")]
    for name, shown in over_time.items():
        figures[f"throughput-{name}"] = lambda shown=shown: curves.throughput(results, shown)
    spread = [*pairs[1:3], pairs[5], *over_time["asymmetric"][1:3]]
    figures["densities"] = lambda: curves.densities(results, spread)
    return figures


def _bars(results: Results, cases: Sequence[Case], metrics: Sequence[str], shown: Sequence[Published]) -> Figure:
    labels = [f"{case.deadline_s:g} s" for case in cases]
    return bars.draw(results, cases, labels, bars.panels(results, *metrics), shown)


def _static(results: Results) -> Figure:
    cases = [Case(base, d) for base, deadlines in STATIC_S.items() for d in deadlines]
    labels = [f"{NAMES[case.base].replace(' ', '')}\n{case.deadline_s:g} s" for case in cases]
    return bars.draw(results, cases, labels, bars.panels(results, EXPENSIVE, MISSED), published.STATIC)


def _roads(results: Results, kind: str, variant: str) -> Figure:
    cases = [
        Case(f"{road}-{kind}", d, "bbr", variant)
        for road in ROADS
        for d in (BULK_S if kind == "bulk" else STREAM_S)
    ]
    labels = [f"{case.base.split('-')[0]}\n{case.deadline_s:g} s" for case in cases]
    return bars.draw(
        results, cases, labels, bars.panels(results, EXPENSIVE, MISSED), published.on_roads(kind, variant)
    )


def _beyond(results: Results) -> Figure:
    cases = [Case(base, d, "bbr", variant) for base, d in EXTRA_CASES for variant in ("", *IMPAIRMENTS)]
    labels = [f"{NAMES[case.base].replace(' ', '')}\n{case.variant or 'as is'}" for case in cases]
    return bars.draw(results, cases, labels, bars.panels(results, EXPENSIVE, MISSED))
