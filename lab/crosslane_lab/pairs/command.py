"""`crosslane-lab tunnel-pairs`: the tunnel over paths drawn at random; only missing or stale runs are made."""

import argparse
from pathlib import Path

from crosslane_lab.errors import unreadable
from crosslane_lab.output import write_file
from crosslane_lab.pages.made_by import made_by
from crosslane_lab.pairs import page
from crosslane_lab.pairs.draw import Lot
from crosslane_lab.papers.frame import Results
from crosslane_lab.runs.runner import Runner, add_jobs, add_program


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "tunnel-pairs",
        help="compare the tunnel with its better path, over paths drawn at random",
        description=__doc__,
    )
    parser.add_argument("--count", type=int, default=200, help="number of pairs (default: %(default)s)")
    parser.add_argument("--triples", type=int, default=0, metavar="COUNT", help="number of triples (default: 0)")
    parser.add_argument("--seed", type=int, default=1, help="of the draws (default: %(default)s)")
    parser.add_argument("--duration-s", type=int, default=20, metavar="S", help="of a run (default: %(default)s)")
    drives = "pairs that are also driven on the kernel, one after another (default: 0)"
    parser.add_argument("--drive", type=int, default=0, metavar="COUNT", help=drives)
    shown = {"metavar": "DIR", "type": Path}
    parser.add_argument(
        "--runs", default=Path("runs/tunnel-pairs"), help="run folders (default: %(default)s)", **shown
    )
    add_program(parser)
    add_jobs(parser)
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="the page (default: tunnel-pairs.md below the runs)"
    )
    parser.set_defaults(act=_act)


def _act(given: argparse.Namespace) -> None:
    drawn = [(given.count, 2), (given.triples, 3)]
    lots = [Lot(given.seed, count, paths, given.duration_s) for count, paths in drawn if count > 0]
    if not lots or given.duration_s < 1 or given.jobs < 1 or given.drive < 0:
        remedy = "give --count or --triples, --duration-s and --jobs of at least 1, and --drive of at least 0"
        raise unreadable("the draws", "there is nothing to run", remedy)
    simulated = [comparison for lot in lots for comparison in lot.plan()]
    driven = [comparison for lot in lots if lot.paths == 2 for comparison in lot.drives(given.drive)]
    Runner(given.program, given.runs, parallel=given.jobs).run(simulated + driven)
    results = Results(given.runs, tuple(each.name for each in simulated + driven))
    frame = page.rows(results)
    out = given.out or given.runs / "tunnel-pairs.md"
    out.parent.mkdir(parents=True, exist_ok=True)
    write_file(out, "\n".join([*page.page(frame, lots), "", made_by(results.folders.values())]) + "\n")
    write_file(out.with_suffix(".csv"), frame.write_csv())
    print(out, out.with_suffix(".csv"), sep="\n")
