"""The page docs/szilagyi.md and the pictures of `crosslane-lab reproduce szilagyi`."""

from pathlib import Path
from string import Template

from crosslane_lab.papers.szilagyi import figures
from crosslane_lab.papers.szilagyi.measure import (
    BARS,
    FIRST,
    REDUNDANCY_STRATEGIES,
    SECOND,
    TRAFFIC_START_S,
    VXLAN_FIRST,
    VXLAN_SECOND,
    Case,
)
from crosslane_lab.render.markdown import number, spread_text, table
from crosslane_lab.render.svg import png
from crosslane_lab.runs.catalog import GAP
from crosslane_lab.runs.frame import Spread

PUBLISHED_SHARE = {"equal": 107 / (60 + 60), "unequal": 247 / (246 + 469)}
"""Goodput of MPT-GRE relative to the sum of both paths."""
MAX_PAUSE_MS = 1000.0
"""A shorter pause is not visible in the seconds of figure 9."""
ONE_PATH = {
    FIRST: "one connection over path 1",
    SECOND: "one over path 2",
    VXLAN_FIRST: "VXLAN over path 1",
    VXLAN_SECOND: "VXLAN over path 2",
}
"""Names of the strategies that use a single path."""
RECOVERED_SHARE = 0.9
"""From this share of the goodput with both paths, both count as used."""
DASH = "–"


def write(cases: dict[str, Case], out: Path) -> list[Path]:
    """Write the page, and next to it its three pictures; returns the files written."""
    pictures = {
        "goodput": figures.goodput(cases),
        "cpu": figures.cpu(cases),
        "redundancy": figures.timeline(cases["redundancy"]),
    }
    files: list[Path] = []
    for name, figure in pictures.items():
        files.append(out.parent / f"szilagyi-{name}.png")
        files[-1].write_bytes(png(figure, 72))
    out.write_text(page(cases), encoding="utf-8")
    return [*files, out]


def page(cases: dict[str, Case]) -> str:
    """The page as Markdown, a function of the runs only."""
    template = Template((Path(__file__).parent / "page.template").read_text(encoding="utf-8"))
    equal, unequal, redundancy = (cases[name] for name in ("equal", "unequal", "redundancy"))
    return template.substitute(
        verdicts="\n".join(_verdicts(equal, unequal, redundancy)),
        equal=_table(equal),
        unequal=_table(unequal),
        phases=_phases(redundancy),
        runs="; ".join(_run_counts(name, case) for name, case in cases.items()),
        machine=_machine(equal),
    )


def _verdicts(equal: Case, unequal: Case, redundancy: Case) -> list[str]:
    return [
        "| figure | published | ours (`tunnel`) | verdict |",
        "|---|---|---|---|",
        _aggregation("5: goodput, 60 + 60", "107 Mbit/s, 89 % of the sum of both paths", equal, "equal"),
        _cpu("6: CPU, 60 + 60", "under 10 % for one path, about 23 %", equal),
        _aggregation("7: goodput, 246 + 469", "247 Mbit/s, 35 % of the sum", unequal, "unequal"),
        _cpu("8: CPU, 246 + 469", "13 and 20 % for one path, 40 %", unequal),
        _redundancy(redundancy),
    ]


def _aggregation(figure: str, published: str, case: Case, name: str) -> str:
    share = case.share_of_sum("tunnel")
    if share is None:
        return f"| {figure} | {published} | not measured | {DASH} |"
    verdict = "met" if share >= PUBLISHED_SHARE[name] else "not met"
    return f"| {figure} | {published} | {_text(case.goodput('tunnel'))} Mbit/s, {100 * share:.0f} % | {verdict} |"


def _cpu(figure: str, published: str, case: Case) -> str:
    core = case.core("tunnel")
    ours = f"{100 * core.median:.0f} % of a core, both endpoints together" if core else "not measured"
    return f"| {figure} | {published}, of a machine | {ours} | not comparable, see below |"


def _redundancy(case: Case) -> str:
    pause, rates = _pause(case, "tunnel"), case.per_second("tunnel")
    if pause is None or not rates:
        return f"| 9: redundancy | continues | not measured | {DASH} |"
    verdict = "met" if pause < MAX_PAUSE_MS else "not met"
    ours = f"lowest second {min(rates[:-1]):.0f} Mbit/s, longest pause {number(pause, 'ms')}"
    return f"| 9: redundancy | continues on the other interface; no numbers | {ours} | {verdict} |"


def _pause(case: Case, strategy: str) -> float | None:
    runs = case.folder.valid_runs(strategy)
    return runs[0].metrics.get(GAP) if runs else None


def _table(case: Case) -> str:
    rows: list[list[str]] = []
    for strategy in BARS:
        share, core = case.share_of_sum(strategy), case.core(strategy)
        cells = [
            ONE_PATH.get(strategy, f"`{strategy}`"),
            _text(case.goodput(strategy)),
            DASH if share is None or strategy in ONE_PATH else f"{100 * share:.1f} %",
            _text(case.cpu_s_per_gb(strategy)),
            DASH if core is None else f"{100 * core.median:.0f} %",
        ]
        rows.append(cells)
    return "\n".join(table(["strategy", "Mbit/s", "of the sum", "CPU-s/GB", "of a core"], rows, compact=True))


def _phases(case: Case) -> str:
    """Mean goodput between the changes of an interface (down or up), and the longest pause."""
    spans = case.folder.scenario.outages.values()
    changes = sorted(round(t_s - TRAFFIC_START_S) for path in spans for span in path for t_s in span)
    edges = list(zip([0, *changes], [*changes, case.seconds], strict=True))
    head = ["strategy", *(f"{a}–{b} s" for a, b in edges), "lowest second", "longest pause", "both used after"]
    rows: list[list[str]] = []
    for strategy in REDUNDANCY_STRATEGIES:
        rates, pause = case.per_second(strategy), _pause(case, strategy)
        if not rates:
            rows.append([f"`{strategy}`", *[DASH] * (len(edges) + 3)])
            continue
        means = [f"{sum(rates[a:b]) / (b - a):.0f}" for a, b in edges]
        back = " and ".join(_seconds(recovery_seconds(rates, changes[0], up)) for up in changes[1::2])
        rows.append([f"`{strategy}`", *means, f"{min(rates[:-1]):.0f}", number(pause or 0.0, "ms"), back])
    return "\n".join(table(head, rows, compact=True))


def recovery_seconds(rates: list[float], undisturbed: int, up: int) -> int | None:
    """Seconds from the return of an interface until the goodput is as before the first outage."""
    before = sum(rates[:undisturbed]) / undisturbed
    recovered = (second for second in range(up, len(rates)) if rates[second] >= RECOVERED_SHARE * before)
    first = next(recovered, None)
    return None if first is None else first - up


def _seconds(count: int | None) -> str:
    return "never" if count is None else f"{count} s"


def _run_counts(name: str, case: Case) -> str:
    valid = [len(case.folder.valid_runs(strategy)) for strategy in case.folder.strategies]
    each = str(max(valid)) if min(valid) == max(valid) else f"{min(valid)} to {max(valid)}"
    return f"`{name}` {each} × {case.seconds} s"


def _machine(case: Case) -> str:
    versions = case.folder.versions
    values = [versions.get(key, "not known") for key in ("cores", "processor", "kernel")]
    return "{} cores, {}, Linux {}".format(*values)


def _text(stats: Spread | None) -> str:
    return spread_text(stats) if stats else DASH
