"""`crosslane-lab reproduce`: published figures, from our runs."""

import argparse
from pathlib import Path

from crosslane_lab.errors import unreadable
from crosslane_lab.figures import fig11_bytes
from crosslane_lab.papers.nota import page
from crosslane_lab.papers.nota import results as nota_results
from crosslane_lab.papers.roads import campaign as roads
from crosslane_lab.papers.roads import page as roads_page
from crosslane_lab.papers.szilagyi import measure as szilagyi
from crosslane_lab.papers.szilagyi import page as szilagyi_page
from crosslane_lab.progress import Progress
from crosslane_lab.render.svg import png
from crosslane_lab.runs.folder import RunFolder


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    paper = commands.add_parser("reproduce", help="make published figures from our runs", description=__doc__)
    figures = paper.add_subparsers(required=True, metavar="FIGURE")
    eleven = figures.add_parser(
        "hapanchak-fig11", help="total bytes per interface", description=fig11_bytes.__doc__
    )
    eleven.add_argument(
        "runs", type=Path, nargs="+", metavar="DIR", help="run folders, one per density of roadside units"
    )
    eleven.add_argument(
        "--out", type=Path, required=True, metavar="FILE", help="the page (.md), with a picture next to it"
    )
    eleven.set_defaults(act=_figure_11)
    nota = figures.add_parser(
        "nota", help="the thesis on MP-DPA: simulates all its measurements, some minutes", description=page.__doc__
    )
    nota.add_argument(
        "--out", type=Path, required=True, metavar="FILE", help="the page (.md), with three pictures next to it"
    )
    shown = {"metavar": "DIR", "type": Path}
    nota.add_argument(
        "--runs",
        default=Path("runs/nota"),
        help="run folders and all pictures (default: %(default)s)",
        **shown,
    )
    nota.add_argument("--scenarios", default=Path("scenarios"), help="(default: %(default)s)", **shown)
    nota.add_argument("--data", default=Path("data"), help="the traces (default: %(default)s)", **shown)
    nota.add_argument(
        "--program",
        type=Path,
        default=Path("target/release/crosslane"),
        metavar="FILE",
        help="(default: %(default)s)",
    )
    nota.add_argument(
        "--simulate", choices=("yes", "no"), default="yes", help="no: draw from the existing runs (default: yes)"
    )
    nota.set_defaults(act=_nota)
    _add_szilagyi(figures)
    drives = figures.add_parser(
        "roads", help="uploads with deadlines over recorded drives", description=roads.__doc__
    )
    drives.add_argument("--data", type=Path, required=True, metavar="DIR", help="the folder that holds pam2025")
    drives.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help="folder for scenarios, table and picture"
    )
    drives.add_argument("--program", default="crosslane", metavar="FILE", help="(default: crosslane)")
    drives.add_argument("--congestion", choices=("cubic", "bbr"), default="cubic", help="(default: cubic)")
    drives.add_argument("--every", type=int, default=1, metavar="N", help="only every N-th drive, for a quick run")
    drives.add_argument("--jobs", type=int, default=0, metavar="N", help="in parallel (default: one per core)")
    drives.set_defaults(act=_roads)


def _add_szilagyi(figures: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    tunnel = figures.add_parser(
        "szilagyi",
        help="the paper on MPT-GRE: drives all its measurements, an hour and a half",
        description=szilagyi.__doc__,
    )
    shown = {"metavar": "DIR", "type": Path}
    tunnel.add_argument(
        "--out", type=Path, required=True, metavar="FILE", help="the page (.md), with pictures next to it"
    )
    tunnel.add_argument("--runs", default=Path("runs/szilagyi"), help="run folders (default: %(default)s)", **shown)
    tunnel.add_argument("--scenarios", default=Path("scenarios"), help="(default: %(default)s)", **shown)
    program = Path("target/release/crosslane")
    tunnel.add_argument("--program", type=Path, default=program, metavar="FILE", help="(default: %(default)s)")
    tunnel.add_argument(
        "--runs-of",
        type=szilagyi.Repetitions.read,
        default=szilagyi.Repetitions(),
        metavar="NxS",
        help="N runs of S seconds (default: 10x30, as in the paper); figure 9 is one run of 100 s",
    )
    cases = [*szilagyi.CASES]
    tunnel.add_argument(
        "--drive", nargs="*", choices=cases, default=cases, help="only these; none: draw from the existing runs"
    )
    tunnel.set_defaults(act=_szilagyi)


def _szilagyi(options: argparse.Namespace) -> None:
    szilagyi.drive(options.program, options.scenarios, options.runs, options.drive, options.runs_of)
    for file in szilagyi_page.write(szilagyi.load(options.runs), options.out):
        print(file)


def _roads(options: argparse.Namespace) -> None:
    campaign = roads.Campaign(
        program=options.program,
        data=options.data,
        out=options.out,
        congestion=options.congestion,
        every=max(options.every, 1),
        jobs=max(options.jobs, 0),
    )
    progress = Progress()
    try:
        variants = roads.mp_dpa_variants()
        strategies = [*roads.BASELINES, *(each.name for each in variants), roads.OURS]
        frame = roads.simulate(campaign, strategies, variants, progress)
    finally:
        progress.done()
    for file in roads_page.write(frame, options.out):
        print(file)


def _figure_11(options: argparse.Namespace) -> None:
    folders = [RunFolder.open(path, records=False) for path in options.runs]
    for folder in folders:
        reason = fig11_bytes.skip_reason(folder)
        if reason:
            raise unreadable(folder.path, reason, "simulate scenarios/manhattan.toml and its variants")
    picture = options.out.with_suffix(".png")
    picture.write_bytes(png(fig11_bytes.draw_all(folders)))
    page = f"![{fig11_bytes.TITLE}]({picture.name})\n\n{fig11_bytes.markdown(folders)}"
    options.out.write_text(page, encoding="utf-8")
    print(options.out)


def _nota(options: argparse.Namespace) -> None:
    runs = nota_results.Results(options.runs)
    if options.simulate == "yes":
        runs = nota_results.simulate(options.program, options.scenarios, options.data, options.runs)
    for file in page.write(runs, options.out):
        print(file)
