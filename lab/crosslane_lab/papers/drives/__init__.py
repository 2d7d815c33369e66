"""Messages over recorded drives with two or three operators (docs/results/drives.md)."""

import os
from pathlib import Path

from crosslane_lab.papers import frame
from crosslane_lab.papers.drives import campaign, page, pam2025, sample
from crosslane_lab.runs.runner import Comparison


def _plan(options: frame.Options) -> list[Comparison]:
    if options.engine == "kernel":
        return sample.plan(options)
    return pam2025.plan(options) if pam2025.is_in(options.figures) else campaign.plan(options)


def _write(results: frame.Results, options: frame.Options) -> list[Path]:
    if options.engine == "kernel":
        return sample.write(results, options)
    return (pam2025 if pam2025.is_in(options.figures) else page).write(results, options)


PAPER = frame.Paper(
    name="drives",
    what="messages over recorded drives with two or three operators, in mode backup or aggregate, or of pam2025, "
    "up or down",
    claims=(),
    plan=_plan,
    write=_write,
    figures=(*campaign.MODES, *pam2025.FOLDERS),
    parallel=os.cpu_count() or 1,
)
