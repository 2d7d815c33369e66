"""The tables of the page: what was published, what came out here, and whether that is the same."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from crosslane_lab.metrics import Spread, number
from crosslane_lab.nota.cases import BEYOND, BULK_S, CONGESTIONS, NAMES, OUTSIDE, ROADS, STREAM_S, Case
from crosslane_lab.nota.found import DEAR, DELIVERED_S, LEAST, MISSED, OVERHEAD, UNWRITTEN, WRITTEN_S, Found
from crosslane_lab.nota.published import (
    BULK_KERNEL,
    SAFE_ALPHA,
    SPARING_ALPHA,
    STREAM_KERNEL,
    TABLE_6_1,
    TABLE_6_2,
    Told,
    verdict,
)
from crosslane_lab.nota.published import OVERHEAD as TOLD_OVERHEAD
from crosslane_lab.nota.utility import MU1, MU2


def rows_of(head: Sequence[str], rows: Sequence[Sequence[str]], texts: int = 1) -> str:
    """A Markdown table whose first `texts` columns stand left."""
    rule = ["---"] * texts + ["---:"] * (len(head) - texts)
    return "".join(f"| {' | '.join(row)} |\n" for row in [list(head), rule, *rows])


def shown(over: Spread | None, metric: str, spread: bool = True) -> str:
    """Median and, where the seeds differ visibly, the range."""
    if over is None:
        return "–"
    unit = "" if metric.endswith(("_s.p50", "_s.max")) else "%"
    middle, low, high = (_figure(value, unit) for value in (over.median, over.low, over.high))
    return middle if low == high or not spread else f"{middle} ({low}–{high})"


def score(found: Found, parts: Mapping[str, Sequence[Told]]) -> str:
    """How many of the published numbers came out the same or better, by part and by whom they are of."""
    of = {"plain TCP": ("single",), "MPTCP": ("kernel",), "MP-DPA": ("mp-dpa", "mp-dpa-08")}
    rows = []
    for part, told in parts.items():
        row = [part]
        for strategies in of.values():
            verdicts = [_verdict(found, entry) for entry in told if entry.strategy in strategies]
            same, better = verdicts.count("same"), verdicts.count("better")
            row.append(f"{same} of {len(verdicts)}" + (f", {better} better" if better else "") if verdicts else "–")
        rows.append(row)
    return rows_of(["same as published", *of], rows)


def ours_on_roads(found: Found) -> str:
    """How often `deadline` misses more than the kernel's MPTCP on the roads."""
    words = []
    for kind, deadlines in (("bulk", BULK_S), ("stream", STREAM_S)):
        cases = [Case(f"{road}-{kind}", deadline_s) for road in ROADS for deadline_s in deadlines]
        more = sum((_missed(found, case, "deadline") > _missed(found, case, "kernel")) for case in cases)
        words.append(f"{more} of {len(cases)} cases of {kind}")
    return " and ".join(words)


def compared(found: Found, told: Sequence[Told]) -> str:
    """A row per published number, with both kinds of congestion control where both were simulated."""
    both = any(not entry.case.of_road for entry in told)
    head = ["figure", "case", "strategy", "what", "published", "BBR", *(["cubic"] if both else []), "verdict (BBR)"]
    words = {DEAR: "dear path", MISSED: "missed", DELIVERED_S: "s per object"}
    rows = []
    for entry in told:
        ours = found.spread(entry.case, entry.strategy, entry.metric)
        low, high = entry.published
        published = shown(Spread(low, low, high, 2), entry.metric) if low == high else _range(low, high)
        row = [entry.figure, _case(entry.case), f"`{entry.strategy}`", words[entry.metric], published]
        row.append(shown(ours, entry.metric))
        if both:
            other = found.spread(replace(entry.case, congestion="cubic"), entry.strategy, entry.metric)
            row.append(shown(other, entry.metric))
        rows.append([*row, _verdict(found, entry)])
    return rows_of(head, rows, 4)


def against_ours(found: Found, cases: Sequence[Case]) -> str:
    """The thesis's rule, the kernel's MPTCP and ours, beside the least possible."""
    strategies = ("kernel", "mp-dpa", "mp-dpa-08", "deadline")
    head = ["case", "least possible", *(f"`{s}`" for s in strategies)]
    rows = []
    for case in cases:
        row = [_case(case), shown(found.spread(case, "kernel", LEAST), LEAST, spread=False)]
        rows.append([*row, *(_pair(found, case, strategy) for strategy in strategies)])
    return rows_of(head, rows)


def alphas(found: Found) -> str:
    """The greatest α without a miss and the best by both utility factors, published and here."""
    head = ["case", "congestion", "all read in time", "all handed over in time", "best by µ₁", "best by µ₂"]
    rows = []
    for (base, deadline_s), safe in SAFE_ALPHA.items():
        told = [f"{safe:g}", "–", f"{safe:g}", f"{SPARING_ALPHA[base, deadline_s]:g}"]
        rows.append([_case(Case(base, deadline_s)), "published (BBR)", *told])
        for congestion in CONGESTIONS:
            case = Case(base, deadline_s, congestion)
            safes = (found.safe_alpha(case, metric) for metric in (MISSED, UNWRITTEN))
            row = ["none" if alpha is None else f"up to {alpha:g}" for alpha in safes]
            row += [f"{found.best_alpha(case, weights):g}" for weights in (MU1, MU2)]
            rows.append([_case(case), congestion, *row])
    return rows_of(head, rows, 2)


def overheads(found: Found) -> str:
    """Figure 6.21: bytes sent beyond the payload, where everything was delivered."""
    rows = []
    for strategy in ("single", "kernel", "mp-dpa", "mp-dpa-08", "deadline"):
        told = TOLD_OVERHEAD.get(strategy)
        published = (
            "–"
            if told is None
            else shown(Spread(*told, told[1], 1), OVERHEAD)
            if told[0] == told[1]
            else _range(*told)
        )
        case = Case("symmetric", 10.0)
        ours = [found.spread(replace(case, congestion=c), strategy, OVERHEAD) for c in CONGESTIONS]
        rows.append([f"`{strategy}`", published, *(shown(over, OVERHEAD) for over in ours)])
    return rows_of(["strategy", "published", *CONGESTIONS], rows)


def times(found: Found, cases: Sequence[Case]) -> str:
    """Figure 6.29: hand-over and delivery apart."""
    head = [
        "case",
        "strategy",
        "handed over after (s)",
        "read by the peer after (s)",
        "not handed over in time",
        "not read in time",
    ]
    rows = []
    for case in cases:
        for strategy in ("single", "kernel", "mp-dpa", "mp-dpa-08", "deadline"):
            figures = (WRITTEN_S, DELIVERED_S, UNWRITTEN, MISSED)
            row = [shown(found.spread(case, strategy, metric), metric) for metric in figures]
            rows.append([_case(case), f"`{strategy}`", *row])
    return rows_of(head, rows, 2)


def roads(found: Found, kind: str) -> str:
    """Tables 6.1 and 6.2: dear path / missed, published and here, with both send buffers."""
    table, kernel = (TABLE_6_1, BULK_KERNEL) if kind == "bulk" else (TABLE_6_2, STREAM_KERNEL)
    head = ["road, deadline", "MPTCP published", "64 MB", "autotuned", "MP-DPA published", "64 MB", "autotuned"]
    head += ["`single`", "`deadline`", "least possible"]
    rows = []
    for road in ROADS:
        for deadline_s, (dear, missed, _) in zip(BULK_S if kind == "bulk" else STREAM_S, table[road], strict=True):
            case = Case(f"{road}-{kind}", deadline_s)
            tuned = replace(case, twist="autotuned")
            told = [f"{_figure(share, '%')} / {_figure(missed, '%')}" for share in (kernel[road], dear)]
            found_here = [
                _pair(found, of, strategy) for strategy in ("kernel", "mp-dpa-08") for of in (case, tuned)
            ]
            row = [f"{road}, {deadline_s:g} s", told[0], *found_here[:2], told[1], *found_here[2:]]
            row += [_pair(found, case, "single"), _pair(found, case, "deadline")]
            rows.append([*row, shown(found.spread(case, "kernel", LEAST), LEAST, spread=False)])
    return rows_of(head, rows)


def handed_over(found: Found) -> str:
    """What a sender that sees its send buffer only takes for missed, in the streams of the roads."""
    head = [
        "road, deadline",
        "missed, published",
        "`kernel`, 64 MB",
        "autotuned",
        "`mp-dpa-08`, 64 MB",
        "autotuned",
    ]
    rows = []
    for road in ROADS:
        for deadline_s, (_, missed, _) in zip(STREAM_S, TABLE_6_2[road], strict=True):
            case = Case(f"{road}-stream", deadline_s)
            row = [f"{road}, {deadline_s:g} s", _figure(missed, "%")]
            for strategy in ("kernel", "mp-dpa-08"):
                for of in (case, replace(case, twist="autotuned")):
                    row.append(shown(found.spread(of, strategy, UNWRITTEN), UNWRITTEN, spread=False))
            rows.append(row)
    return rows_of(head, rows)


def utilities(found: Found, kind: str) -> str:
    """µ₁ and µ₂ by road and deadline (6.43, 6.44, 6.54, 6.55), and the overhead against MPTCP."""
    table, deadlines = (TABLE_6_1, BULK_S) if kind == "bulk" else (TABLE_6_2, STREAM_S)
    head = ["road, deadline", "sent beyond MPTCP: published", "here", "`mp-dpa-08` µ₁", "µ₂", "`deadline` µ₁", "µ₂"]
    rows = []
    for road in ROADS:
        for deadline_s, (_, _, surplus) in zip(deadlines, table[road], strict=True):
            case = Case(f"{road}-{kind}", deadline_s)
            row = [
                f"{road}, {deadline_s:g} s",
                _figure(surplus, "%"),
                _figure(found.surplus(case, "mp-dpa-08"), "%"),
            ]
            for strategy in ("mp-dpa-08", "deadline"):
                row += [f"{found.mu(case, strategy, weights):.2f}" for weights in (MU1, MU2)]
            rows.append(row)
    return rows_of(head, rows)


def beyond(found: Found) -> str:
    """What the thesis leaves out: share over the dear path / deadlines missed."""
    strategies = ("kernel", "kernel-tuned", "single", "mp-dpa", "mp-dpa-08", "deadline")
    head = ["case", "with", "congestion", *(f"`{s}`" for s in strategies)]
    rows = []
    for base, deadline_s in BEYOND:
        for twist in ("", *OUTSIDE):
            for congestion in CONGESTIONS:
                case = Case(base, deadline_s, congestion, twist)
                pairs = [_pair(found, case, strategy) for strategy in strategies]
                rows.append([_case(case), _WITH[twist], congestion, *pairs])
    return rows_of(head, rows, 3)


_WITH = {"": "nothing more", "loss": "1 % loss", "jitter": "20 ms of jitter"}


def _verdict(found: Found, told: Told) -> str:
    ours = found.spread(told.case, told.strategy, told.metric)
    return verdict(told, ours, found.median(told.case, told.strategy, MISSED))


def _missed(found: Found, case: Case, strategy: str) -> float:
    """Against `deadline`, whose buffer is its own affair, MPTCP has the autotuned one."""
    of = replace(case, twist="autotuned") if strategy == "kernel" else case
    return found.median(of, strategy, MISSED) or 0.0


def _pair(found: Found, case: Case, strategy: str) -> str:
    return " / ".join(
        shown(found.spread(case, strategy, metric), metric, spread=False) for metric in (DEAR, MISSED)
    )


def _case(case: Case) -> str:
    return f"{NAMES.get(case.base, case.base.replace('-', ', '))}, {case.deadline_s:g} s"


def _figure(value: float, unit: str) -> str:
    if unit == "%":
        return f"{value * 100:.1f}"
    return number(value) if value >= 0.005 else "0.00"


def _range(low: float, high: float) -> str:
    return f"{_figure(low, '%')} to {_figure(high, '%')}"
