"""The command `crosslane-lab conformance`."""

import argparse
import sys
from pathlib import Path

from crosslane_lab.conformance import compare as conformance
from crosslane_lab.conformance.compare import INSIDE, REPORTED
from crosslane_lab.conformance.page import page
from crosslane_lab.errors import unreadable
from crosslane_lab.output import write_file
from crosslane_lab.pages.made_by import made_by
from crosslane_lab.runs.folder import RunFolder


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "conformance", help="compare the simulator with the kernel", description=conformance.__doc__
    )
    parser.add_argument(
        "runs", type=Path, nargs="+", metavar="DIR", help="run folders of drives and of simulations"
    )
    parser.add_argument(
        "--golden", type=Path, required=True, metavar="FILE", help="as lab/tests/golden/conformance.csv"
    )
    parser.add_argument("--exceptions", type=Path, metavar="FILE", help="(default: as the golden file, but .toml)")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "--out", type=Path, metavar="FILE", help="write golden file and page, as docs/results/conformance.md"
    )
    what.add_argument("--check", action="store_true", help="fail if a value left its tolerance; write nothing")
    parser.set_defaults(act=_act)


def _act(options: argparse.Namespace) -> int:
    if options.check and not options.golden.exists():
        remedy = "name the file to compare with, as lab/tests/golden/conformance.csv"
        raise unreadable(options.golden, "the file is missing", remedy)
    golden = conformance.read_golden(options.golden)
    exemptions = conformance.read_exemptions(options.exceptions or options.golden.with_suffix(".toml"))
    folders = [RunFolder.open(path) for path in options.runs]
    figures = conformance.compare(golden, folders)
    errors = conformance.stale_exemptions(figures, exemptions)
    if options.check:
        errors += conformance.regressions(figures, golden)
    else:
        write_file(options.golden, conformance.golden_text(conformance.updated(golden, figures)))
        write_file(options.out, page(figures, exemptions, made_by(folders)))
        print(options.out)
    for error in errors:
        print(f"crosslane-lab: {error}", file=sys.stderr)
    evaluated = [figure for figure in figures if figure.verdict != REPORTED]
    inside = sum(figure.verdict == INSIDE for figure in evaluated)
    print(f"{inside} of {len(evaluated)} values are within their tolerance")
    return 1 if errors else 0
