"""Hapanchak & Costa 2023 (JCOMSS): its figures from our runs, and what its text claims of them.

The figures are of single drives. What they and the text say is compared as a claim: no worse than with the path
manager off (`kernel`).
"""

from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from crosslane_lab.errors import unreadable
from crosslane_lab.figures import (
    fig03_underused,
    fig06_throughput,
    fig07_aggregation,
    fig08_backup,
    fig09_delay,
    fig10_recovered,
    fig11_bytes,
)
from crosslane_lab.output import write_file
from crosslane_lab.papers.frame import Claim, Options, Paper, Results, claims_table
from crosslane_lab.render.svg import png
from crosslane_lab.runs.catalog import GAP, GOODPUT, RECOVERY, WORST_DELAY
from crosslane_lab.runs.folder import RunFolder
from crosslane_lab.runs.runner import Comparison, scenario
from crosslane_lab.runs.tables import TABLES

OURS = "hapanchak"
STRATEGIES = ("kernel", "kernel-tuned", OURS, "threshold")
CITY = ("manhattan-4", "manhattan", "manhattan-16")
"""Densities of roadside units of figure 11."""
SHOWN: dict[str, tuple[ModuleType, str]] = {
    "3": (fig03_underused, "pass-by"),
    "6": (fig06_throughput, "leave-coverage-loaded"),
    "7": (fig07_aggregation, "leave-coverage"),
    "8": (fig08_backup, "backup-mode"),
    "9": (fig09_delay, "leave-coverage"),
    "10": (fig10_recovered, "pass-by"),
}
"""The figures of a single drive, and the scenario that shows each; figure 11 is of the city."""


RECORDS = (*TABLES, "events")


def _less(place: str, run: str, metric: str) -> Claim:
    return Claim(place, run, OURS, metric, 1.0, "at most", relative_to="kernel")


CLAIMS = (
    _less("3", "pass-by", RECOVERY),
    Claim("6", "leave-coverage-loaded", OURS, GOODPUT, 1.0, "at least", relative_to="kernel"),
    _less("7", "leave-coverage", GAP),
    _less("8", "backup-mode", WORST_DELAY),
    _less("9", "leave-coverage", WORST_DELAY),
    _less("10", "pass-by", RECOVERY),
    *(
        _less("11", run, metric)
        for run in CITY
        for metric in ("packets.lost", "retransmitted_bytes", "reinjected_bytes")
    ),
)


def _plan(options: Options) -> list[Comparison]:
    asked = options.figures or ("11", *SHOWN)
    drives = dict.fromkeys(SHOWN[figure][1] for figure in asked if figure in SHOWN)
    engine, seeds = options.engine or "simulator", "1" if options.quick else "1..5"
    found = [
        Comparison(name, scenario(options.scenarios / f"{name}.toml"), STRATEGIES, seeds, engine, RECORDS)
        for name in drives
    ]
    return found + [
        Comparison(name, scenario(options.scenarios / f"{name}.toml"), (*STRATEGIES, "oracle"), seeds)
        for name in CITY[: 1 if options.quick else None]
        if "11" in asked
    ]


def _write(results: Results, options: Options) -> list[Path]:
    """The table of claims, then the figures with their captions."""
    asked = [claim for claim in CLAIMS if claim.run in results.names]
    asked = [claim for claim in asked if claim.place in (options.figures or (claim.place,))]
    lines, files = ["# The cross-layer path manager, reproduced", "", *claims_table(results, asked)], []
    for figure, (module, name) in SHOWN.items():
        if name in results.names and figure in (options.figures or SHOWN):
            picture = options.out.with_name(f"{options.out.stem}-fig{figure}.png")
            write_file(picture, png(module.draw(results.folders[name])))
            caption = module.caption(results.folders[name])
            lines += ["", f"![Figure {figure}: {module.TITLE}]({picture.name})", "", caption]
            files.append(picture)
    city = [results.folders[name] for name in CITY if name in results.names]
    if city:
        picture = options.out.with_name(f"{options.out.stem}-fig11.png")
        lines += ["", *figure_11(city, picture)]
        files.append(picture)
    write_file(options.out, "\n".join(lines) + "\n")
    return [*files, options.out]


def figure_11(folders: Sequence[RunFolder], picture: Path) -> list[str]:
    """Figure 11 over densities of roadside units: writes the picture; the lines of the page."""
    for folder in folders:
        reason = fig11_bytes.skip_reason(folder)
        if reason:
            raise unreadable(folder.path, reason, "simulate scenarios/manhattan.toml and its variants")
    write_file(picture, png(fig11_bytes.draw_all(list(folders))))
    return [f"![{fig11_bytes.TITLE}]({picture.name})", "", *fig11_bytes.markdown(list(folders)).splitlines()]


PAPER = Paper(
    name="hapanchak",
    what="the cross-layer path manager: simulates the drives of its figures, some minutes",
    claims=CLAIMS,
    plan=_plan,
    write=_write,
    figures=("11", *SHOWN),
)
