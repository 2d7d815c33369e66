"""The page docs/nota.md and the pictures of `crosslane-lab reproduce nota`."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from string import Template

from matplotlib.figure import Figure

from crosslane_lab.figures.render import png
from crosslane_lab.nota import bars, curves, published, tables
from crosslane_lab.nota.cases import BEYOND, BULK_S, NAMES, OUTSIDE, ROADS, STATIC_S, STREAM_S, Case
from crosslane_lab.nota.found import DEAR, DELIVERED_S, MISSED, OVERHEAD, WRITTEN_S, Found
from crosslane_lab.nota.published import Told
from crosslane_lab.progress import Progress

KEY = ("static", "alpha", "roads-bulk-autotuned")
"""The pictures that stand beside the page."""


def write(found: Found, out: Path) -> list[Path]:
    """Write the page, its key pictures beside it, and all pictures to the runs; the files beside the page."""
    progress = Progress()
    folder = found.root / "figures"
    folder.mkdir(exist_ok=True)
    files = []
    try:
        for name, draw in _figures(found).items():
            progress(f"drawing {name}")
            picture = png(draw(), 72 if name in KEY else 100)
            (folder / f"{name}.png").write_bytes(picture)
            if name in KEY:
                files.append(out.parent / f"nota-{name}.png")
                files[-1].write_bytes(picture)
        progress("writing the page")
        out.write_text(page(found), encoding="utf-8")
    finally:
        progress.done()
    return [*files, out]


def page(found: Found) -> str:
    """The page as Markdown. The same runs give the same text."""
    template = Template((Path(__file__).parent / "page.template").read_text(encoding="utf-8"))
    parts = {
        "static rates (6.1 to 6.16)": published.STATIC,
        "streaming (6.30, 6.31)": published.STREAMING,
        "roads, bulk (table 6.1, autotuned)": published.on_roads("bulk", "autotuned"),
        "roads, stream (table 6.2, autotuned)": published.on_roads("stream", "autotuned"),
    }
    static = [Case(base, deadline) for base, deadlines in STATIC_S.items() for deadline in deadlines]
    return template.substitute(
        score=tables.score(found, parts),
        static=tables.compared(found, published.STATIC),
        ours=tables.against_ours(found, static),
        upstream=tables.against_ours(found, [replace(case, twist="upstream") for case in static]),
        alphas=tables.alphas(found),
        overheads=tables.overheads(found),
        streaming=tables.compared(found, published.STREAMING),
        times=tables.times(found, [Case("symmetric", 10), Case("triangular", 1)]),
        bulk=tables.roads(found, "bulk"),
        stream=tables.roads(found, "stream"),
        handed_over=tables.handed_over(found),
        utilities=tables.utilities(found, "bulk"),
        ours_on_roads=tables.ours_on_roads(found),
        beyond=tables.beyond(found),
    )


def _figures(found: Found) -> dict[str, Callable[[], Figure]]:
    """Each picture by name; the published figures that it stands for are told in the page."""
    figures: dict[str, Callable[[], Figure]] = {
        "static": lambda: _static(found),
        "limits": lambda: curves.limits(found),
        "alpha": lambda: curves.alphas(found),
        "traces": curves.roads,
        "beyond": lambda: _beyond(found),
    }
    for base, deadlines in STATIC_S.items():
        cases = [Case(base, d) for d in deadlines]
        figures[base] = lambda cases=cases: _bars(
            found, cases, (DEAR, MISSED, DELIVERED_S, OVERHEAD), published.STATIC
        )
    streams = [Case("triangular", d) for d in STREAM_S]
    figures["triangular"] = lambda: _bars(
        found, streams, (DEAR, MISSED, WRITTEN_S, DELIVERED_S), published.STREAMING
    )
    for kind in ("bulk", "stream"):
        figures[f"roads-{kind}"] = lambda kind=kind: _roads(found, kind, "")
        figures[f"roads-{kind}-autotuned"] = lambda kind=kind: _roads(found, kind, "autotuned")
    pairs = [(Case("symmetric", 10), s) for s in ("single", "kernel", "mp-dpa", "deadline")]
    pairs += [(Case("symmetric", 7.5), s) for s in ("mp-dpa", "deadline")]
    over_time = {"symmetric": pairs, "asymmetric": [(Case("asymmetric", 10), s) for _, s in pairs[:4]]}
    over_time["triangular"] = [(Case("triangular", 1), s) for s in ("single", "kernel", "mp-dpa-08", "deadline")]
    over_time["triangular"] += [(Case("triangular", 0.8), s) for s in ("mp-dpa-08", "deadline")]
    for road in ROADS:
        for kind, deadline_s in (("bulk", 60), ("stream", 1)):
            case = Case(f"{road}-{kind}", deadline_s)
            over_time[case.base] = [(case, s) for s in ("kernel", "mp-dpa-08", "deadline")]
    for name, shown in over_time.items():
        figures[f"throughput-{name}"] = lambda shown=shown: curves.throughput(found, shown)
    spread = [*pairs[1:3], pairs[4], *over_time["asymmetric"][1:3]]
    figures["densities"] = lambda: curves.densities(found, spread)
    return figures


def _bars(found: Found, cases: Sequence[Case], metrics: Sequence[str], told: Sequence[Told]) -> Figure:
    labels = [f"{case.deadline_s:g} s" for case in cases]
    return bars.draw(found, cases, labels, bars.panels(found, *metrics), told)


def _static(found: Found) -> Figure:
    cases = [Case(base, d) for base, deadlines in STATIC_S.items() for d in deadlines]
    labels = [f"{NAMES[case.base].replace(' ', '')}\n{case.deadline_s:g} s" for case in cases]
    return bars.draw(found, cases, labels, bars.panels(found, DEAR, MISSED), published.STATIC)


def _roads(found: Found, kind: str, twist: str) -> Figure:
    cases = [
        Case(f"{road}-{kind}", d, "bbr", twist) for road in ROADS for d in (BULK_S if kind == "bulk" else STREAM_S)
    ]
    labels = [f"{case.base.split('-')[0]}\n{case.deadline_s:g} s" for case in cases]
    return bars.draw(found, cases, labels, bars.panels(found, DEAR, MISSED), published.on_roads(kind, twist))


def _beyond(found: Found) -> Figure:
    cases = [Case(base, d, "bbr", twist) for base, d in BEYOND for twist in ("", *OUTSIDE)]
    labels = [f"{NAMES[case.base].replace(' ', '')}\n{case.twist or 'as is'}" for case in cases]
    return bars.draw(found, cases, labels, bars.panels(found, DEAR, MISSED))


def _rates(case: Case) -> str:
    return NAMES[case.base].replace(" ", "")
