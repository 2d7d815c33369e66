"""The page docs/results/szilagyi.md and the pictures of `crosslane-lab reproduce szilagyi`."""

from pathlib import Path

from crosslane_lab.output import write_file
from crosslane_lab.papers.frame import DASH, Claim, Results, filled
from crosslane_lab.papers.szilagyi import figures
from crosslane_lab.papers.szilagyi.results import (
    BARS,
    CASES,
    CPU,
    FIRST,
    REDUNDANCY_STRATEGIES,
    SECOND,
    VXLAN_FIRST,
    VXLAN_SECOND,
    Case,
)
from crosslane_lab.render.markdown import number, spread_text, table
from crosslane_lab.render.svg import png
from crosslane_lab.runs.catalog import GAP, GOODPUT
from crosslane_lab.runs.folder import RunFolder
from crosslane_lab.runs.frame import Spread

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


def _goodput(place: str, run: str, published: float, words: str) -> Claim:
    """A goodput, compared by its share of the sum of both paths."""

    def share(results: Results) -> Spread | None:
        found = Case(results, run).share_of_sum("tunnel")
        return None if found is None else Spread(found, found, found, 1)

    def show(results: Results) -> str:
        case = Case(results, run)
        return f"{_text(case.goodput('tunnel'))} Mbit/s, {100 * (case.share_of_sum('tunnel') or 0):.0f} %"

    return Claim(place, run, "tunnel", GOODPUT, published, "at least", words=words, read=share, show=show)


def _cpu(place: str, run: str, words: str) -> Claim:
    def core(results: Results) -> Spread | None:
        return Case(results, run).core("tunnel")

    def show(results: Results) -> str:
        found = core(results)
        return f"{100 * found.median:.0f} % of a core, both endpoints together" if found else DASH

    words = f"{words}, of a machine"
    return Claim(place, run, "tunnel", CPU, bound="none", words=words, read=core, show=show, reason="see below")


def _lowest(results: Results) -> str:
    case = Case(results, "redundancy")
    pause = number(case.pause("tunnel") or 0.0, "ms")
    return f"lowest second {min(case.per_second('tunnel')[:-1]):.0f} Mbit/s, longest pause {pause}"


CLAIMS = (
    _goodput("5: goodput, 60 + 60", "equal", 107 / (60 + 60), "107 Mbit/s, 89 % of the sum of both paths"),
    _cpu("6: CPU, 60 + 60", "equal", "under 10 % for one path, about 23 %"),
    _goodput("7: goodput, 246 + 469", "unequal", 247 / (246 + 469), "247 Mbit/s, 35 % of the sum"),
    _cpu("8: CPU, 246 + 469", "unequal", "13 and 20 % for one path, 40 %"),
    Claim(
        place="9: redundancy",
        run="redundancy",
        strategy="tunnel",
        metric=GAP,
        published=MAX_PAUSE_MS,
        bound="at most",
        words="continues on the other interface; no numbers",
        show=_lowest,
    ),
)


def write(results: Results, out: Path) -> list[Path]:
    """Write the page, and next to it its three pictures; returns the files written."""
    cases = {name: Case(results, name) for name in CASES}
    pictures = {
        "goodput": figures.goodput(cases),
        "cpu": figures.cpu(cases),
        "redundancy": figures.timeline(cases["redundancy"]),
    }
    files: list[Path] = []
    for name, figure in pictures.items():
        files.append(out.parent / f"szilagyi-{name}.png")
        write_file(files[-1], png(figure, 72))
    write_file(out, page(results))
    return [*files, out]


def page(results: Results) -> str:
    """The page as Markdown, a function of the runs only."""
    equal, unequal, redundancy = (Case(results, name) for name in CASES)
    verdicts = ([each.place, *each.texts(results), each.verdict(results)] for each in CLAIMS)
    return filled(
        Path(__file__).with_name("page.template"),
        verdicts="\n".join(
            table(["figure", "published", "ours (`tunnel`)", "verdict"], verdicts, "llll", compact=True)
        ),
        equal=_table(equal),
        unequal=_table(unequal),
        phases=_phases(redundancy),
        runs="; ".join(map(_run_counts, (equal, unequal, redundancy))),
        machine=_machine(results.folders["equal"]),
    )


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
    changes = sorted(round(t_s) for span in case.outages_s for t_s in span)
    edges = list(zip([0, *changes], [*changes, case.seconds], strict=True))
    head = ["strategy", *(f"{a}–{b} s" for a, b in edges), "lowest second", "longest pause", "both used after"]
    rows: list[list[str]] = []
    for strategy in REDUNDANCY_STRATEGIES:
        rates, pause = case.per_second(strategy), case.pause(strategy)
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


def _run_counts(case: Case) -> str:
    strategies = case.all.folders[case.name].strategies
    valid = [len(case.all.runs(case.name, strategy)) for strategy in strategies]
    each = str(max(valid)) if min(valid) == max(valid) else f"{min(valid)} to {max(valid)}"
    return f"`{case.name}` {each} × {case.seconds} s"


def _machine(folder: RunFolder) -> str:
    values = [folder.versions.get(key, "not known") for key in ("cores", "processor", "kernel")]
    return "{} cores, {}, Linux {}".format(*values)


def _text(stats: Spread | None) -> str:
    return spread_text(stats) if stats else DASH
