"""`crosslane-lab traces nota`: rates and delays that replace the recordings of Nota 2020."""

import argparse
from collections.abc import Iterable
from pathlib import Path

from crosslane_lab.output import write_file
from crosslane_lab.papers.nota import traces as nota

MADE_BY = "crosslane-lab traces nota"


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    traces = commands.add_parser("traces", help="make the rates of links over time", description=__doc__)
    papers = traces.add_subparsers(required=True, metavar="PAPER")
    one = papers.add_parser(
        "nota", help="the roads of Nota 2020, after their description", description=nota.__doc__
    )
    one.add_argument("--out", type=Path, required=True, metavar="DIR", help="the folder (shipped: data)")
    one.set_defaults(act=_nota)


def _nota(options: argparse.Namespace) -> None:
    options.out.mkdir(parents=True, exist_ok=True)
    for road in nota.ROADS:
        for path, profile in (("a", road.a), ("b", road.b)):
            note = f"{road.name}, {profile.operator}, as described: {road.description}"
            rows = enumerate(nota.rates(road, profile))
            print(_write(options.out / f"nota-{road.name}-{path}.csv", note, "rate_mbit_s", rows))
    note = "preferred path of the streaming upload"
    rows = ((second, nota.triangle(second)) for second in range(64))
    print(_write(options.out / "nota-triangle.csv", note, "rate_mbit_s", rows))
    for path in ("a", "b"):
        rows = ((index / 10, delay) for index, delay in enumerate(nota.delays(path)))
        print(_write(options.out / f"nota-jitter-{path}.csv", "50 ms, 20 ms of jitter", "delay_ms", rows))


def _write(out: Path, note: str, column: str, rows: Iterable[tuple[float, float]]) -> Path:
    lines = [f"# {MADE_BY}: {note}", f"t_s,{column}", *(f"{t_s:g},{value:g}" for t_s, value in rows)]
    write_file(out, "\n".join(lines) + "\n")
    return out
