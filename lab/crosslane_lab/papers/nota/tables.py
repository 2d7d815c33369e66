"""The tables of the page: published values, ours, and whether they are the same."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from crosslane_lab.papers.nota import published
from crosslane_lab.papers.nota.cases import (
    BULK_S,
    CONGESTIONS,
    EXTRA_CASES,
    IMPAIRMENTS,
    NAMES,
    ROADS,
    STREAM_S,
    Case,
)
from crosslane_lab.papers.nota.published import Published
from crosslane_lab.papers.nota.results import (
    DELIVERED_S,
    EXPENSIVE,
    MINIMUM,
    MISSED,
    MU1,
    MU2,
    OVERHEAD,
    UNWRITTEN,
    WRITTEN_S,
    Results,
)
from crosslane_lab.render.markdown import number, table
from crosslane_lab.runs.frame import Spread


def shown(stats: Spread | None, metric: str, spread: bool = True) -> str:
    """Median and, if the seeds differ visibly, the range."""
    if stats is None:
        return "–"
    unit = "" if metric.endswith(("_s.p50", "_s.max")) else "%"
    middle, low, high = (_figure(value, unit) for value in (stats.median, stats.low, stats.high))
    return middle if low == high or not spread else f"{middle} ({low}–{high})"


def score(results: Results, parts: Mapping[str, Sequence[Published]]) -> str:
    """The number of published values that are the same or better, by part and by strategy."""
    of = {"plain TCP": ("single",), "MPTCP": ("kernel",), "MP-DPA": ("mp-dpa", "mp-dpa-08")}
    rows = []
    for part, claims in parts.items():
        row = [part]
        for strategies in of.values():
            verdicts = [entry.verdict(results.all) for entry in claims if entry.strategy in strategies]
            same, better = verdicts.count("same"), verdicts.count("better")
            row.append(f"{same} of {len(verdicts)}" + (f", {better} better" if better else "") if verdicts else "–")
        rows.append(row)
    return _table(f"same as published | {' | '.join(of)}", rows)


def worse_on_roads(results: Results, strategy: str) -> str:
    """The number of cases in which a strategy misses more than the kernel's MPTCP on the roads."""
    parts = []
    for kind, deadlines in (("bulk", BULK_S), ("stream", STREAM_S)):
        cases = [Case(f"{road}-{kind}", deadline_s) for road in ROADS for deadline_s in deadlines]
        more = sum((_missed(results, case, strategy) > _missed(results, case, "kernel")) for case in cases)
        parts.append(f"{more} of {len(cases)} cases of {kind}")
    return " and ".join(parts)


def published_comparison(results: Results, entries: Sequence[Published]) -> str:
    """A row per published value, with both congestion controls if both were simulated."""
    both = any(not entry.case.is_road for entry in entries)
    head = f"figure | case | strategy | metric | published | BBR{' | cubic' * both} | verdict (BBR)"
    names = {EXPENSIVE: "expensive path", MISSED: "missed", DELIVERED_S: "s per object"}
    rows = []
    for entry in entries:
        ours = results.spread(entry.case, entry.strategy, entry.metric)
        low, high = entry.range
        theirs = shown(Spread(low, low, high, 2), entry.metric) if low == high else _range(low, high)
        row = [entry.place, _case(entry.case), f"`{entry.strategy}`", names[entry.metric], theirs]
        row.append(shown(ours, entry.metric))
        if both:
            other = results.spread(replace(entry.case, congestion="cubic"), entry.strategy, entry.metric)
            row.append(shown(other, entry.metric))
        rows.append([*row, entry.verdict(results.all)])
    return _table(head, rows, "llll")


def strategy_comparison(results: Results, cases: Sequence[Case]) -> str:
    """The kernel's MPTCP, MP-DPA and our strategies, and the minimum."""
    strategies = ("kernel", "mp-dpa", "mp-dpa-08", "deadline-mptcp", "deadline")
    head = " | ".join(["case", "minimum", *(f"`{s}`" for s in strategies)])
    rows = []
    for case in cases:
        row = [_case(case), shown(results.spread(case, "kernel", MINIMUM), MINIMUM, spread=False)]
        rows.append([*row, *(_pair(results, case, strategy) for strategy in strategies)])
    return _table(head, rows)


def alphas(results: Results) -> str:
    """The highest α without a miss and the best by both utility factors, published and here."""
    head = "case | congestion | all read in time | all written in time | best by µ₁ | best by µ₂"
    rows = []
    for (base, deadline_s), safe in published.SAFE_ALPHA.items():
        saving = f"{published.SAVING_ALPHA[base, deadline_s]:g}"
        rows.append([_case(Case(base, deadline_s)), "published (BBR)", f"{safe:g}", "–", f"{safe:g}", saving])
        for congestion in CONGESTIONS:
            case = Case(base, deadline_s, congestion)
            safes = (results.safe_alpha(case, metric) for metric in (MISSED, UNWRITTEN))
            row = ["none" if alpha is None else f"up to {alpha:g}" for alpha in safes]
            row += [f"{results.best_alpha(case, weights):g}" for weights in (MU1, MU2)]
            rows.append([_case(case), congestion, *row])
    return _table(head, rows, "ll")


def overheads(results: Results) -> str:
    """Figure 6.21: bytes sent in excess of the payload, with all data delivered."""
    rows = []
    for strategy in ("single", "kernel", "mp-dpa", "mp-dpa-08", "deadline-mptcp", "deadline"):
        values = published.OVERHEAD.get(strategy)
        theirs = "–" if values is None else _range(*values)
        case = Case("symmetric", 10.0)
        ours = [results.spread(replace(case, congestion=c), strategy, OVERHEAD) for c in CONGESTIONS]
        rows.append([f"`{strategy}`", theirs, *(shown(stats, OVERHEAD) for stats in ours)])
    return _table(f"strategy | published | {' | '.join(CONGESTIONS)}", rows)


def times(results: Results, cases: Sequence[Case]) -> str:
    """Figure 6.29: write and delivery times."""
    head = (
        "case | strategy | written after (s) | read by the peer after (s) | not written in time | not read in time"
    )
    rows = []
    for case in cases:
        for strategy in ("single", "kernel", "mp-dpa", "mp-dpa-08", "deadline-mptcp", "deadline"):
            figures = (WRITTEN_S, DELIVERED_S, UNWRITTEN, MISSED)
            row = [shown(results.spread(case, strategy, metric), metric) for metric in figures]
            rows.append([_case(case), f"`{strategy}`", *row])
    return _table(head, rows, "ll")


def roads(results: Results, kind: str) -> str:
    """Tables 6.1 and 6.2: expensive path / missed, published and here, with both send buffers."""
    kernel = published.BULK_KERNEL if kind == "bulk" else published.STREAM_KERNEL
    head = "road, deadline | MPTCP published | 64 MB | autotuned | MP-DPA published | 64 MB | autotuned"
    head += " | `single` | `deadline-mptcp` | `deadline` | minimum"
    rows = []
    for case, road, name, (share, missed, _) in _on_roads(kind):
        of_kernel, of_mp_dpa = (f"{_figure(s, '%')} / {_figure(missed, '%')}" for s in (kernel[road], share))
        ours = [_pair(results, of, strategy) for strategy in ("kernel", "mp-dpa-08") for of in _buffers(case)]
        row = [name, of_kernel, *ours[:2], of_mp_dpa, *ours[2:]]
        row += [_pair(results, case, strategy) for strategy in ("single", "deadline-mptcp", "deadline")]
        rows.append([*row, shown(results.spread(case, "kernel", MINIMUM), MINIMUM, spread=False)])
    return _table(head, rows)


def unwritten(results: Results) -> str:
    """Misses as counted by a sender that knows only its send buffer, in the streams on the roads."""
    head = "road, deadline | missed, published | `kernel`, 64 MB | autotuned | `mp-dpa-08`, 64 MB | autotuned"
    rows = []
    for case, _, name, (_, missed, _) in _on_roads("stream"):
        found = [results.spread(of, s, UNWRITTEN) for s in ("kernel", "mp-dpa-08") for of in _buffers(case)]
        rows.append([name, _figure(missed, "%"), *(shown(stats, UNWRITTEN, spread=False) for stats in found)])
    return _table(head, rows)


def utilities(results: Results, kind: str) -> str:
    """µ₁ and µ₂ by road and deadline (6.43, 6.44, 6.54, 6.55), and the overhead relative to MPTCP."""
    strategies = ("mp-dpa-08", "deadline-mptcp", "deadline")
    head = " | ".join(["road, deadline | excess bytes: published | here", *(f"`{s}` µ₁ | µ₂" for s in strategies)])
    rows = []
    for case, _, name, (_, _, excess) in _on_roads(kind):
        mu = [results.mu(case, strategy, w) for strategy in strategies for w in (MU1, MU2)]
        shares = (_figure(share, "%") for share in (excess, results.excess(case, "mp-dpa-08")))
        rows.append([name, *shares, *(f"{value:.2f}" for value in mu)])
    return _table(head, rows)


def extra_cases(results: Results) -> str:
    """Cases that the thesis omits: share on the expensive path / missed deadlines."""
    strategies = ("kernel", "kernel-tuned", "single", "mp-dpa", "mp-dpa-08", "deadline-mptcp", "deadline")
    head = " | ".join(["case", "impairment", "congestion", *(f"`{s}`" for s in strategies)])
    rows = []
    for base, deadline_s in EXTRA_CASES:
        for variant in ("", *IMPAIRMENTS):
            for congestion in CONGESTIONS:
                case = Case(base, deadline_s, congestion, variant)
                pairs = [_pair(results, case, strategy) for strategy in strategies]
                rows.append([_case(case), _IMPAIRMENTS[variant], congestion, *pairs])
    return _table(head, rows, "lll")


def _on_roads(kind: str) -> Iterator[tuple[Case, str, str, tuple[float, float, float]]]:
    """The cases of table 6.1 (`bulk`) or 6.2: the case, its road, its name in the page, the published values."""
    values = published.TABLE_6_1 if kind == "bulk" else published.TABLE_6_2
    for road in ROADS:
        for deadline_s, row in zip(BULK_S if kind == "bulk" else STREAM_S, values[road], strict=True):
            yield Case(f"{road}-{kind}", deadline_s), road, f"{road}, {deadline_s:g} s", row


def _buffers(case: Case) -> tuple[Case, Case]:
    """With the send buffer of the thesis, and with the kernel's."""
    return case, replace(case, variant="autotuned")


_IMPAIRMENTS = {"": "none", "loss": "1 % loss", "jitter": "20 ms of jitter"}


def _table(head: str, rows: Sequence[Sequence[str]], align: str = "l") -> str:
    return "".join(f"{line}\n" for line in table(head.split(" | "), rows, align))


def _missed(results: Results, case: Case, strategy: str) -> float:
    """Our strategies limit the buffer themselves, so MPTCP has the autotuned one."""
    of = replace(case, variant="autotuned") if strategy == "kernel" else case
    return results.median(of, strategy, MISSED) or 0.0


def _pair(results: Results, case: Case, strategy: str) -> str:
    return " / ".join(
        shown(results.spread(case, strategy, metric), metric, spread=False) for metric in (EXPENSIVE, MISSED)
    )


def _case(case: Case) -> str:
    return f"{NAMES.get(case.base, case.base.replace('-', ', '))}, {case.deadline_s:g} s"


def _figure(value: float, unit: str) -> str:
    if unit == "%":
        return f"{value * 100:.1f}"
    return number(value) if value >= 0.005 else "0.00"


def _range(low: float, high: float) -> str:
    return f"{_figure(low, '%')}" + (f" to {_figure(high, '%')}" if low != high else "")
