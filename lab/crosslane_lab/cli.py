"""The command `crosslane-lab`: exit code 0 for success, 1 for failure, 2 for input that cannot be used."""

import argparse
import sys
import webbrowser
from collections.abc import Sequence
from pathlib import Path

from crosslane_lab import __version__, conformance_command, report, results
from crosslane_lab.errors import LabError, unreadable
from crosslane_lab.figures import fig11_bytes
from crosslane_lab.figures.render import png
from crosslane_lab.mobility import command as mobility
from crosslane_lab.progress import Progress
from crosslane_lab.run import RunFolder


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with the given arguments (default: the process's) and return its exit code."""
    options = _parser().parse_args(arguments)
    try:
        return options.act(options) or 0
    except LabError as error:
        print(f"crosslane-lab: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        cause = f"{error.filename or ''}: {error.strerror or error}".lstrip(": ")
        print(f"crosslane-lab: while working on {cause}; check the path and its permissions", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("crosslane-lab: stopped", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("crosslane-lab", description="Reports and figures from Crosslane run folders.")
    parser.add_argument("--version", action="version", version=f"crosslane-lab {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    one = commands.add_parser("report", help="make report.html from a run folder", description=report.__doc__)
    one.add_argument("run", type=Path, metavar="RUN", help="a folder that `crosslane drive --out` wrote")
    one.add_argument("--out", type=Path, metavar="FILE", help="where to write it (default: RUN/report.html)")
    one.add_argument("--open", choices=("yes", "no"), default="no", help="open it in a browser (default: no)")
    one.set_defaults(act=_report)

    conformance_command.add(commands)

    many = commands.add_parser(
        "results", help="make the results page from several run folders", description=results.__doc__
    )
    many.add_argument("runs", type=Path, nargs="+", metavar="DIR", help="run folders, one per scenario")
    many.add_argument("--out", type=Path, required=True, metavar="FILE", help="the page, as docs/results.md")
    many.set_defaults(act=_results)
    mobility.add(commands)

    paper = commands.add_parser("reproduce", help="make a published figure from run folders")
    figures = paper.add_subparsers(required=True, metavar="FIGURE")
    eleven = figures.add_parser(
        "hapanchak-fig11", help="total bytes per interface", description=fig11_bytes.__doc__
    )
    eleven.add_argument("runs", type=Path, nargs="+", metavar="DIR", help="run folders, one per density of units")
    eleven.add_argument(
        "--out", type=Path, required=True, metavar="FILE", help="the page (.md), its picture beside"
    )
    eleven.set_defaults(act=_figure_11)
    return parser


def _report(options: argparse.Namespace) -> None:
    folder = RunFolder.open(options.run)
    out = options.out or options.run / "report.html"
    progress = Progress()
    try:
        report.write(folder, out, progress)
    finally:
        progress.done()
    print(out)
    if options.open == "yes":
        webbrowser.open(out.resolve().as_uri())


def _figure_11(options: argparse.Namespace) -> None:
    folders = [RunFolder.open(path) for path in options.runs]
    for folder in folders:
        because = fig11_bytes.why_not(folder)
        if because:
            raise unreadable(folder.path, because, "simulate scenarios/manhattan.toml and its variants")
    picture = options.out.with_suffix(".png")
    picture.write_bytes(png(fig11_bytes.draw_all(folders)))
    options.out.write_text(
        f"![{fig11_bytes.TITLE}]({picture.name})\n\n{fig11_bytes.table(folders)}", encoding="utf-8"
    )
    print(options.out)


def _results(options: argparse.Namespace) -> None:
    folders = [RunFolder.open(path, records=False) for path in options.runs]
    for file in results.write(folders, options.out):
        print(file)
