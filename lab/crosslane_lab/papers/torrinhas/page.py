"""The claims of `crosslane-lab reproduce torrinhas`, its page docs/results/torrinhas.md and its pictures."""

from collections.abc import Sequence
from pathlib import Path

from crosslane_lab.output import write_file
from crosslane_lab.papers.frame import DASH, Bound, Claim, Results, filled
from crosslane_lab.papers.torrinhas import figures
from crosslane_lab.papers.torrinhas.results import (
    BOTH,
    DRIVEN,
    FIRST,
    LAST,
    LOADED,
    ONE,
    OURS,
    PHASES,
    SECOND,
    STRATEGIES,
    TWO,
    UNLOADED,
    Phase,
    Read,
    bitrate,
    change_s,
    lower_carries_more,
    rtt,
    rtt_ratio,
    share,
    spread,
    subflows,
)
from crosslane_lab.render.markdown import spread_text, table
from crosslane_lab.render.svg import png
from crosslane_lab.runs.catalog import GOODPUT, READ_GAP
from crosslane_lab.runs.folder import Run
from crosslane_lab.runs.frame import Spread

TITLES = {
    ONE: "Scenario 1",
    TWO: "Scenario 2",
    UNLOADED: "Scenario 2 with upstream's congestion control (`cubic`) and scheduler, no other stations",
    LOADED: "The same with other stations",
}
DRIVEN_TITLES = {name: f"{TITLES[each.scenario]}, `{each.congestion}`" for name, each in DRIVEN.items()}
SUMS_MBIT_S = dict(zip(PHASES, (6.2, 6.0, 7.0, 8.0), strict=True))
"""Published for scenario 2 (section IV)."""
MAX_DELAY_S = 1.0
"""A longer delay is visible in figures 4a and 5a."""
MAX_BITRATE = 0.1
"""A subflow with less, in Mbit/s, carries nothing."""
QUEUE = "both subflows wait in the same queue, their mean RTTs differ by less than 1 %"
NO_STATIONS = "there are no other stations"


def _claim(
    place: str,
    run: str,
    read: Read,
    published: float | tuple[float, float],
    words: str = "",
    bound: Bound = "about",
    tolerance: float = 0.1,
    unit: str = "",
    reason: str = "",
    strategy: str = OURS,
) -> Claim:
    """A claim whose value `read` finds in each run; the tolerance is relative to a published bitrate."""

    def of(results: Results) -> Spread | None:
        return spread(results, run, strategy, read) if run in results.names else None

    def show(results: Results) -> str:
        found = of(results)
        return spread_text(found, unit) if found else DASH

    words = words or f"{published}\u00a0{unit}"
    mbit = unit == "Mbit/s"
    return Claim(
        place,
        run,
        strategy,
        GOODPUT,
        published,
        bound,
        tolerance,
        mbit,
        read=of,
        words=words,
        show=show,
        reason=reason,
    )


def _sum(place: str, run: str, phase: Phase, published: float, reason: str = "") -> Claim:
    place = f"{place}: {_units(phase)}, sum"
    return _claim(place, run, lambda each: bitrate(each, phase), published, unit="Mbit/s", reason=reason)


def _half(phase: Phase, place: str = "4a", run: str = ONE) -> Claim:
    unit, place = phase.units[1], f"{place}: share of {phase.units[1].upper()} beside {phase.units[0].upper()}"
    return _claim(place, run, lambda each: share(each, phase, unit), 0.5, "about half", unit="%")


def _ratio(place: str, run: str, phase: Phase, published: float, words: str, bound: Bound, slack: float) -> Claim:
    place = f"{place}: RTT, higher / lower, {_units(phase)}"
    return _claim(place, run, lambda each: rtt_ratio(each, phase), published, words, bound, slack)


def _change(what: str, unit: str, event: str, since_s: float, words: str) -> Claim:
    def read(run: Run) -> float | None:
        return change_s(run, unit, event, since_s)

    return _claim(f"IV: {what}", ONE, read, MAX_DELAY_S, words, "at most", unit="s")


def _by_itself(unit: str, phase: Phase, reason: str) -> Claim:
    place = f"III: subflow to {unit.upper()}, all endpoints set at the start"
    words = "none by itself"

    def read(run: Run) -> float:
        return bitrate(run, phase, unit)

    return _claim(place, ONE, read, MAX_BITRATE, words, "at most", unit="Mbit/s", reason=reason, strategy="kernel")


def _units(phase: Phase) -> str:
    return " and ".join(unit.upper() for unit in phase.units)


RAMP = "its window grows by at most one packet per RTT of 208 ms"
CLAIMS = (
    _sum("4a", ONE, FIRST, 8.5),
    _half(BOTH),
    _sum("4a", ONE, SECOND, 8.5),
    _half(LAST),
    *(
        claim
        for name, each in DRIVEN.items()
        if each.scenario == ONE
        for place in (f"4a, kernel, {each.congestion}",)
        for claim in (
            _sum(place, name, FIRST, 8.5),
            _half(BOTH, place, name),
            _sum(place, name, SECOND, 8.5),
            _half(LAST, place, name),
        )
    ),
    *(_ratio("4b", ONE, phase, 1.1, "very close", "at most", 0) for phase in (BOTH, LAST)),
    _claim(
        "4b: lower RTT has more", ONE, lower_carries_more, 1, "in both phases", "at least", unit="%", reason=QUEUE
    ),
    *(_sum("5a", TWO, phase, SUMS_MBIT_S[phase], RAMP if phase is SECOND else NO_STATIONS) for phase in PHASES),
    *(_sum("5a, cubic", UNLOADED, phase, SUMS_MBIT_S[phase], NO_STATIONS) for phase in PHASES),
    *(_sum("5a, other stations", LOADED, phase, SUMS_MBIT_S[phase]) for phase in PHASES),
    *(_ratio("5b", TWO, phase, 10, "about 10", "about", 2.5) for phase in (BOTH, LAST)),
    *(
        _claim(
            f"5b: share of {near.upper()}, {_units(phase)}",
            TWO,
            lambda each, phase=phase, near=near: share(each, phase, near),
            0.5,
            "more than half",
            "at least",
            unit="%",
        )
        for phase, near in ((BOTH, "rsu1"), (LAST, "rsu3"))
    ),
    _change("RSU2 appears, its subflow comes", "rsu2", "subflow_established", BOTH.from_s, "created"),
    _change("RSU1 is gone, its subflow goes", "rsu1", "subflow_closed", SECOND.from_s, "removed"),
    _change("RSU3 appears, its subflow comes", "rsu3", "subflow_established", LAST.from_s, "created"),
    Claim("V: longest pause", ONE, OURS, READ_GAP, 1000.0, "at most", words="seamless; no number"),
    _by_itself("rsu2", BOTH, "its SYN was sent again at 20.0 s, when RSU2 had just appeared"),
    _by_itself("rsu3", LAST, ""),
)


def write(results: Results, out: Path) -> list[Path]:
    """Write the page, and next to it its two pictures; returns the files written."""
    files: list[Path] = []
    for name, runs in {"4": (ONE,), "5": (TWO, LOADED)}.items():
        files.append(out.parent / f"torrinhas-{name}.png")
        write_file(files[-1], png(figures.draw(results, {run: TITLES[run] for run in runs}), 72))
    write_file(out, page(results))
    return [*files, out]


def page(results: Results) -> str:
    """The page as Markdown, a function of the runs only."""
    head = ["figure or section", "published", "ours", "verdict"]
    verdicts = ([each.place, *each.texts(results), _verdict(each, results)] for each in CLAIMS)
    tables = (f"{title}:\n\n{_table(results, run, STRATEGIES)}" for run, title in TITLES.items())
    driven = (
        f"{title}:\n\n{_table(results, run, DRIVEN[run].strategies)}"
        for run, title in DRIVEN_TITLES.items()
        if run in results.names
    )
    folder = results.folders[ONE]
    return filled(
        Path(__file__).with_name("page.template"),
        unloaded=UNLOADED,
        loaded=LOADED,
        ours=OURS,
        verdicts="\n".join(table(head, verdicts, "lrrl", compact=True)),
        tables="\n\n".join(tables),
        driven="\n\n".join(driven) or "Not measured.",
        runs=f"{len(folder.seeds)} seeds, engine: {folder.engine}",
    )


def _verdict(claim: Claim, results: Results) -> str:
    found = claim.verdict(results)
    return f"{found}: {claim.reason}" if found == "not met" and claim.reason else found


def _table(results: Results, run: str, strategies: Sequence[str]) -> str:
    """Bitrate of each subflow, and its RTT, a row per strategy."""
    head = ["strategy", *(f"{each.from_s}–{each.to_s} s" for each in PHASES), "longest pause"]
    rows: list[list[str]] = []
    for strategy in strategies:
        cells = [_phase(results, run, strategy, phase) for phase in PHASES]
        pause = results.spread(run, strategy, READ_GAP)
        rows.append([f"`{strategy}`", *cells, spread_text(pause, "ms") if pause else DASH])
    return "\n".join(table(head, rows, compact=True))


def _phase(results: Results, run: str, strategy: str, phase: Phase) -> str:
    """Median bitrate, in brackets median RTT, of the subflow to each unit in reach; their number if several."""
    cells: list[str] = []
    for unit in phase.units:
        rate = spread(results, run, strategy, lambda each, unit=unit: bitrate(each, phase, unit))
        wait = spread(results, run, strategy, lambda each, unit=unit: rtt(each, phase, unit))
        count = spread(results, run, strategy, lambda each, unit=unit: subflows(each, phase, unit))
        more = f", {count.median:.0f} subflows" if count and count.median > 1 else ""
        cells.append(f"{rate.median:.2f} ({wait.median:.0f} ms{more})" if rate and wait else DASH)
    return " + ".join(cells)
