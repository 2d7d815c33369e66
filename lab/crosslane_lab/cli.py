"""The command `crosslane-lab`: exit code 0 for success, 1 for failure, 2 for unusable input, 130 after Ctrl-C."""

import argparse
import contextlib
import errno
import os
import signal
import sys
import webbrowser
from collections.abc import Iterator, Sequence
from pathlib import Path

import polars as pl

from crosslane_lab import __version__, calibrate
from crosslane_lab.conformance import command as conformance_command
from crosslane_lab.errors import LabError, first_line, unreadable
from crosslane_lab.learn import command as learn
from crosslane_lab.mobility import command as mobility
from crosslane_lab.openflow import command as openflow
from crosslane_lab.output import write_file
from crosslane_lab.pages import deadlines, results, roadside, tunnel
from crosslane_lab.pairs import command as pairs
from crosslane_lab.papers import command as reproduce
from crosslane_lab.papers.nota import traces_command as traces
from crosslane_lab.progress import Progress
from crosslane_lab.report import page as report
from crosslane_lab.runs.folder import RunFolder
from crosslane_lab.runs.tables import damaged


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with the given arguments (default: the process's) and return its exit code."""
    try:
        with _printed():
            return _act(_parser().parse_args(arguments))
    except LabError as error:
        print(f"crosslane-lab: {error}", file=sys.stderr)
        return 2
    except _Unread:
        return 0
    except OSError as error:
        attempt = f"working on {error.filename}" if error.filename else "printing"
        remedy = "free some space there" if error.errno == errno.ENOSPC else "check the path and its permissions"
        print(f"crosslane-lab: while {attempt}: {error.strerror or error}; {remedy}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("crosslane-lab: stopped", file=sys.stderr)
        return 128 + signal.SIGINT


def _act(options: argparse.Namespace) -> int:
    """Run the sub-command; raises `LabError` for unusable input."""
    given = [item for value in vars(options).values() for item in (value if isinstance(value, list) else [value])]
    for path in given:
        if isinstance(path, Path) and not _is_utf8(path):
            shown = str(path).encode(errors="backslashreplace").decode()
            raise unreadable(shown, "the name is not UTF-8", "rename it")
    try:
        return options.act(options) or 0
    except (pl.exceptions.PolarsError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        folders = (vars(options)[name] for name in ("run", "runs") if vars(options).get(name))
        each = (path for of in folders for path in (of if isinstance(of, list) else [of]))
        found = next((damage for path in each if (damage := damaged(path))), None)
        raise found or unreadable("the input", first_line(error), "make it again") from error


def _is_utf8(path: Path) -> bool:
    try:
        return bool(str(path).encode())
    except UnicodeEncodeError:
        return False


class _Unread(Exception):
    """The output is not read any more, as after `| head`: that is no failure."""


@contextlib.contextmanager
def _printed() -> Iterator[None]:
    """Prints all that the command prints: errors of standard output are raised here, not when Python ends."""
    try:
        try:
            yield
        finally:
            if sys.stdout:
                sys.stdout.flush()
    except OSError as error:
        if error.filename is None and sys.stdout and sys.stdout is sys.__stdout__:
            with Path(os.devnull).open("wb") as nothing:
                os.dup2(nothing.fileno(), sys.stdout.fileno())  # Python flushes it again when it ends.
        if isinstance(error, BrokenPipeError) and error.filename is None:
            raise _Unread from error
        raise


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("crosslane-lab", description="Reports and figures from Crosslane run folders.")
    parser.add_argument("--version", action="version", version=f"crosslane-lab {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    one = commands.add_parser("report", help="make report.html from a run folder", description=report.__doc__)
    one.add_argument("run", type=Path, metavar="RUN", help="a folder that `crosslane drive --out` wrote")
    one.add_argument("--out", type=Path, metavar="FILE", help="output file (default: RUN/report.html)")
    one.add_argument("--open", choices=("yes", "no"), default="no", help="open it in a browser (default: no)")
    one.set_defaults(act=_report)

    conformance_command.add(commands)

    many = commands.add_parser(
        "results", help="make the results page from several run folders", description=results.__doc__
    )
    many.add_argument("runs", type=Path, nargs="+", metavar="DIR", help="run folders, one per scenario")
    many.add_argument(
        "--out", type=Path, required=True, metavar="FILE", help="the page, as docs/results/results.md"
    )
    many.set_defaults(act=_results)

    deadlines.add(commands)
    tunnel.add(commands)
    roadside.add(commands)
    pairs.add(commands)

    fit = commands.add_parser(
        "calibrate", help="fit the radio models to a public recording", description=calibrate.__doc__
    )
    fit.add_argument("data_set", choices=sorted(calibrate.DATA_SETS), metavar="SET", help="feup-wifi or uccmisl-5g")
    fit.add_argument("--data", type=Path, required=True, metavar="DIR", help="the folder that holds the data sets")
    fit.add_argument("--out", type=Path, metavar="FILE", help="output file, JSON (default: standard output)")
    fit.set_defaults(act=_calibrate)
    mobility.add(commands)
    traces.add(commands)
    reproduce.add(commands)
    openflow.add(commands)
    learn.add(commands)
    return parser


def _report(options: argparse.Namespace) -> None:
    folder = RunFolder.open(options.run)
    if folder.scenario.is_fleet:
        remedy = "see runs/*/vehicles.csv in it, one row per vehicle"
        raise unreadable(options.run, "a run of a fleet has no records to draw", remedy)
    out = options.out or options.run / "report.html"
    progress = Progress()
    try:
        report.write(folder, out, progress)
    finally:
        progress.done()
    print(out)
    if options.open == "yes":
        webbrowser.open(out.resolve().as_uri())


def _results(options: argparse.Namespace) -> None:
    folders = [RunFolder.open(path) for path in options.runs]
    for file in results.write(folders, options.out):
        print(file)


def _calibrate(options: argparse.Namespace) -> None:
    fitted = calibrate.text(options.data_set, options.data)
    if options.out is None:
        print(fitted, end="")
        return
    write_file(options.out, fitted)
    print(options.out)
