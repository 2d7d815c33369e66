"""`crosslane-lab reproduce`: published results from our runs; only missing or stale runs are made."""

import argparse
from pathlib import Path

from crosslane_lab.papers import adaptive, camera, drives, hapanchak, liao, nota, roads, szilagyi, torrinhas
from crosslane_lab.papers.frame import Options, reproduce
from crosslane_lab.runs.runner import Runner, add_program

PAPERS = {
    paper.name: paper
    for paper in (
        hapanchak.PAPER,
        nota.PAPER,
        szilagyi.PAPER,
        torrinhas.PAPER,
        liao.PAPER,
        roads.PAPER,
        camera.PAPER,
        drives.PAPER,
        adaptive.PAPER,
    )
}


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    papers = "; ".join(f"{paper.name}: {paper.what}" for paper in PAPERS.values())
    parser = commands.add_parser(
        "reproduce", help="make published figures from our runs", description=f"{__doc__} {papers}."
    )
    shown = {"metavar": "DIR", "type": Path}
    parser.add_argument("paper", choices=PAPERS, metavar="PAPER", help=", ".join(PAPERS))
    parser.add_argument("figures", nargs="*", metavar="FIGURE", help="as the paper numbers them (default: all)")
    parser.add_argument("--engine", choices=("kernel", "simulator"), default="", help="(default: the paper's)")
    parser.add_argument("--quick", action="store_true", help="fewer seeds, shorter runs, a part of the drives")
    parser.add_argument("--draw-only", action="store_true", help="run nothing, even if runs are stale")
    parser.add_argument("--runs", help="run folders (default: runs/PAPER, with --quick runs/PAPER-quick)", **shown)
    parser.add_argument("--scenarios", default=Path("scenarios"), help="(default: %(default)s)", **shown)
    parser.add_argument("--data", help="the folder of public data that the scenarios refer to", **shown)
    add_program(parser)
    parser.add_argument("--out", type=Path, metavar="FILE", help="the page (default: PAPER.md below the runs)")
    parser.set_defaults(act=_act)


def _act(given: argparse.Namespace) -> None:
    paper = PAPERS[given.paper]
    runs = given.runs or Path("runs") / (f"{paper.name}-quick" if given.quick else paper.name)
    runner = Runner(given.program, runs, given.data, paper.parallel)
    out = given.out or runs / f"{paper.name}.md"
    options = Options(runner, given.scenarios, out, tuple(given.figures), given.engine, given.quick)
    for file in reproduce(paper, options, given.draw_only):
        print(file)
