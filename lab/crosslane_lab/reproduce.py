"""`crosslane-lab reproduce`: a published figure, made from run folders of ours."""

import argparse
from pathlib import Path

from crosslane_lab.errors import unreadable
from crosslane_lab.figures import fig11_bytes
from crosslane_lab.figures.render import png
from crosslane_lab.run import RunFolder


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Enter the command into the parser."""
    paper = commands.add_parser("reproduce", help="make a published figure from run folders", description=__doc__)
    figures = paper.add_subparsers(required=True, metavar="FIGURE")
    eleven = figures.add_parser(
        "hapanchak-fig11", help="total bytes per interface", description=fig11_bytes.__doc__
    )
    eleven.add_argument("runs", type=Path, nargs="+", metavar="DIR", help="run folders, one per density of units")
    eleven.add_argument(
        "--out", type=Path, required=True, metavar="FILE", help="the page (.md), its picture beside"
    )
    eleven.set_defaults(act=_figure_11)


def _figure_11(options: argparse.Namespace) -> None:
    folders = [RunFolder.open(path, records=False) for path in options.runs]
    for folder in folders:
        because = fig11_bytes.why_not(folder)
        if because:
            raise unreadable(folder.path, because, "simulate scenarios/manhattan.toml and its variants")
    picture = options.out.with_suffix(".png")
    picture.write_bytes(png(fig11_bytes.draw_all(folders)))
    page = f"![{fig11_bytes.TITLE}]({picture.name})\n\n{fig11_bytes.table(folders)}"
    options.out.write_text(page, encoding="utf-8")
    print(options.out)
