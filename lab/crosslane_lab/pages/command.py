"""A command that makes one page from several run folders."""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

from crosslane_lab.output import write_file
from crosslane_lab.runs.folder import RunFolder


def add_page(
    parser: argparse.ArgumentParser, runs: str, example: str, page: Callable[[Sequence[RunFolder]], str]
) -> None:
    """Add the run folders, with this help, and the file of the page, as the example."""
    parser.add_argument("runs", type=Path, nargs="+", metavar="DIR", help=runs)
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help=f"the page, as {example}")

    def act(options: argparse.Namespace) -> None:
        write_file(options.out, page([RunFolder.open(path) for path in options.runs]))
        print(options.out)

    parser.set_defaults(act=act)
