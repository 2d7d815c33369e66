"""The page docs/results/liao.md and the pictures of `crosslane-lab reproduce liao`."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from pathlib import Path

import polars as pl
from matplotlib.figure import Figure

from crosslane_lab.learn import analyse, bound
from crosslane_lab.learn.places import BUFFERS_KB, TRAFFICS
from crosslane_lab.output import write_file
from crosslane_lab.papers.frame import Options, Results, filled
from crosslane_lab.papers.liao import figures, trees, verdicts
from crosslane_lab.papers.liao.campaign import KERNEL, OVER_MPTCP, RECORDED, SCHEDULERS, WALK
from crosslane_lab.papers.liao.results import Found
from crosslane_lab.render.markdown import table
from crosslane_lab.render.svg import png

NOT_MEASURED = "Not measured."
KERNEL_PICTURE = "![Goodput, delay and packets in flight on the kernel](liao-7.png)\n\n"
WAYS = bound.COLUMNS
LEAST_RATIO = 0.97
"""Of MinRTT's goodput: no strategy is to be below it."""
OF_BOUND = 0.8
"""The share of what the bound wins that `learned` is to win."""
OVER_ROUND_ROBIN = 1.29


def write(results: Results, options: Options) -> list[Path]:
    """Write the page, its pictures and the underlying rows; returns the files written."""
    found = Found(results, options.quick)
    files: list[Path] = []
    for name, figure in _pictures(found):
        files.append(options.out.parent / f"liao-{name}.png")
        write_file(files[-1], png(figure, 72))
    write_file(options.out, page(found))
    files.append(options.out)
    return files


def _pictures(found: Found) -> Iterator[tuple[str, Figure]]:
    yield "2", figures.walk({name: found.walk(name) for name in ("minrtt", *WALK)})
    yield "4", figures.attributes(found.windows)
    yield "5", figures.tree(trees.nodes(found.trees, "smartps"))
    if not found.driven.is_empty():
        of = found.driven.filter(pl.col("buffer_kb") > 0)
        yield "7", _distributions(of, found.driven_packets, KERNEL, ("7: goodput, Mbit/s", "8", "9"))
    of = verdicts.mobile(found.held_out)
    ways = [name for name in WAYS if "first" not in name]
    yield "10", _distributions(of, found.packets, ways, ("10: goodput, Mbit/s", "11", "12"))


def _distributions(
    frame: pl.DataFrame, packets: pl.DataFrame, ways: Sequence[str], titles: Sequence[str]
) -> Figure:
    def of(rows: pl.DataFrame, column: str) -> dict[str, Sequence[float]]:
        lines = {name: rows.filter(pl.col("by") == name)[column].drop_nulls().to_list() for name in ways}
        return {name: values for name, values in lines.items() if values}

    goodput, delay, in_flight = titles
    return figures.distributions(
        {
            goodput: of(frame, "goodput_mbit_s"),
            f"{delay}: delay, ms (log)": of(frame, "delay_ms"),
            f"{in_flight}: packets in flight": of(packets, "packets"),
        }
    )


def page(found: Found) -> str:
    """The page as Markdown, a function of the runs only."""
    drives = found.held_out["drive"].n_unique()
    rows = list(verdicts.rows(found))
    agree = sum(row[-1].startswith("same") for row in rows)
    return filled(
        Path(__file__).with_name("page.template"),
        verdicts="\n".join(table(["figure or table", "published", "ours", "verdict"], rows, "llll")),
        agree=f"{agree} of {len(rows)} rows agree, in direction at least.",
        train_drives=found.windows["drive"].n_unique(),
        held_drives=drives,
        mobile_drives=verdicts.mobile(found.held_out)["drive"].n_unique(),
        rows=f"{found.windows.height:,}",
        raw="\n".join(_raw(found.windows)),
        analysis="\n".join(analyse.page(found.windows)).rstrip(),
        smartps="\n".join(trees.scores(found.trees, "smartps")["lines"]),
        learned="\n".join(trees.scores(found.trees, "learned")["lines"]),
        nodes=len(trees.nodes(found.trees, "smartps")),
        learned_nodes=len(trees.nodes(found.trees, "learned")),
        kernel_picture="" if found.driven.is_empty() else KERNEL_PICTURE,
        kernel="\n".join(_kernel(found.driven)),
        simulated="\n".join(_simulated(found.held_out)),
        chance=_chance(found.repeated),
        targets="\n".join(table(["to reach", "measured", ""], _targets(found), "lll")),
        recorded="\n".join(_recorded(found.recorded)),
    )


def _raw(windows: pl.DataFrame) -> Iterable[str]:
    """A window of each pair of technologies and order, with the columns of table III."""
    quantities = [name for each in analyse.ATTRIBUTES for name in [each.quantity] if each.name != "RSRP"]
    shown = [f"{path}_{name}" for name in dict.fromkeys(quantities) for path in ("cellular", "wifi")]
    shown = [name for name in shown if windows[name].count()]
    of = windows.filter(pl.col("traffic") == "bulk-up").drop_nulls(["delay_ms", "wifi_loss", "cellular_loss"])
    rows = of.group_by("cellular", "prio", maintain_order=True).agg(pl.all().get(pl.len() // 2))
    head = [*(name.replace("cellular_", "cell. ").replace("wifi_", "Wi-Fi ") for name in shown), "PRIO", "AG", "AD"]
    cells = (
        [
            *("" if row[name] is None else f"{row[name]:.3g}" for name in shown),
            "WF" if row["prio"] == "WF" else f"LF ({row['cellular'].upper()})",
            f"{row['goodput_mbit_s']:.1f}",
            f"{row['delay_ms']:.0f}",
        ]
        for row in rows.iter_rows(named=True)
    )
    return table(head, cells, "r", compact=True)


def _kernel(frame: pl.DataFrame) -> Iterable[str]:
    if frame.is_empty():
        return [NOT_MEASURED]
    lines: list[str] = []
    for buffer_kb in BUFFERS_KB:
        of = frame.filter(pl.col("buffer_kb") == buffer_kb)
        rows: list[list[str]] = []
        for name in KERNEL:
            mine = of.filter(pl.col("by") == name)
            if mine.is_empty():
                continue
            reference = "tunnel" if name.startswith("tunnel") else "kernel"
            ratios = mine[f"ratio_{reference}"].drop_nulls()
            cells = [
                f"{mine[column].median():.{digits}f}" for column, digits in (("goodput_mbit_s", 1), ("delay_ms", 0))
            ]
            least = f"{ratios.min():.2f}" if len(ratios) else ""
            rows.append([f"`{name}`", str(mine.height), *cells, f"{ratios.median():.2f}", least])
        head = [
            "strategy",
            "valid runs",
            "goodput, Mbit/s",
            "delay, ms",
            "goodput / `kernel` or `tunnel`, median",
            "least",
        ]
        lines += [f"Send buffer {bound.buffer_text(buffer_kb)}, medians:", "", *table(head, rows, compact=True), ""]
    return lines[:-1]


def _simulated(frame: pl.DataFrame) -> Iterator[str]:
    """Ratios to MinRTT by traffic and buffer."""
    head = ["traffic", "buffer", *(f"`{name}`" for name in WAYS[1:]), "worst of `smartps`, `learned`"]
    rows: list[list[str]] = []
    for traffic, buffer_kb in product(TRAFFICS, BUFFERS_KB):
        of = frame.filter(pl.col("traffic") == traffic, pl.col("buffer_kb") == buffer_kb)
        medians = dict(of.group_by("by").agg(pl.median("ratio")).iter_rows())
        worst = [of.filter(pl.col("by") == name)["ratio"].min() for name in bound.TREES]
        buffer = f"{buffer_kb} kB" if buffer_kb else "autotuned"
        cells = [f"{medians[name]:.2f}" for name in WAYS[1:]]
        rows.append([traffic, buffer, *cells, ", ".join(f"{value:.2f}" for value in worst)])
    yield from table(head, rows, "ll", compact=True)


def _targets(found: Found) -> Iterator[list[str]]:
    of = verdicts.mobile(found.held_out)
    median = dict(of.group_by("by").agg(pl.median("goodput_mbit_s")).iter_rows())
    delay = dict(of.group_by("by").agg(pl.median("delay_ms")).iter_rows())
    for name, of_what in (("bound", "the best order"), ("bound-alone", "the best choice, a path alone too,")):
        won = (median["learned"] - median["minrtt"]) / max(median[name] - median["minrtt"], 1e-9)
        goal = f"`learned` wins 80 % of what {of_what} wins, on the move"
        yield [goal, f"{won * 100:.0f} %", _word(won >= OF_BOUND)]
    late = delay["learned"] / delay["minrtt"]
    yield ["its delay is at most MinRTT's", f"{late:.2f} times", _word(late <= 1)]
    robin = median["learned"] / median["roundrobin"]
    where = f"{robin:.2f} times, the best choice {median['bound-alone'] / median['roundrobin']:.2f}"
    yield ["1.29 times round robin, where the bound is above that", where, _word(robin >= OVER_ROUND_ROBIN)]
    for reference in ("minrtt", "default"):
        own = found.held_out.filter(pl.col("by") == reference).select(*_KEYS, base="goodput_mbit_s")
        ratios = found.held_out.filter(pl.col("by") == "learned").join(own, on=_KEYS)
        below = ratios.filter(pl.col("goodput_mbit_s") < LEAST_RATIO * pl.col("base")).height
        text = f"{below} of {ratios.height} cases are below"
        yield [f"never below 0.97 × `{reference}`, any class, traffic and buffer", text, _word(below == 0)]
    if not found.driven.is_empty():
        for by, reference, name in (
            ("tunnel-learned", "ratio_tunnel", "`aggregate`"),
            (OVER_MPTCP, "ratio_kernel", "`kernel` over MPTCP"),
        ):
            ratios = found.driven.filter(pl.col("by") == by)[reference].drop_nulls()
            below = sum(value < LEAST_RATIO for value in ratios)
            yield [f"on the kernel 0.97 × {name} everywhere", f"{below} of {len(ratios)} below", _word(not below)]


def _chance(repeated: pl.DataFrame) -> str:
    """How often MinRTT is below itself."""
    of = repeated["ratio"]
    return f"{sum(of < LEAST_RATIO)} of {len(of)}, the least {of.min():.2f}"


_KEYS = ("drive", "traffic", "buffer_kb")


def _word(is_reached: bool) -> str:
    return "reached" if is_reached else "**not reached**"


def _recorded(frame: pl.DataFrame) -> Iterable[str]:
    if frame.is_empty():
        return [f"{NOT_MEASURED} Name the recordings with `--data DIR`."]
    ways = ("user's order", *RECORDED, *SCHEDULERS[1:])
    rows = []
    for (data_set, buffer_kb), of in sorted(frame.partition_by("data_set", "buffer_kb", as_dict=True).items()):
        medians = dict(of.group_by("by").agg(pl.median("ratio")).iter_rows())
        late = dict(of.group_by("by").agg(pl.median("late")).iter_rows())
        buffer = f"{buffer_kb} kB" if buffer_kb else "autotuned"
        cells = [f"{medians[name]:.2f} ({late[name]:.2f})" for name in ways]
        rows.append([str(data_set), buffer, str(of["drive"].n_unique()), *cells])
    return table(
        ["recordings", "buffer", "drives", ways[0], *(f"`{name}`" for name in ways[1:])], rows, "ll", compact=True
    )
