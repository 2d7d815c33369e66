"""Messages over recorded drives with two or three operators (docs/results/drives.md)."""

import os
from pathlib import Path

from crosslane_lab.papers import frame
from crosslane_lab.papers.drives import campaign, page, pam2025
from crosslane_lab.runs.runner import Comparison


def _plan(options: frame.Options) -> list[Comparison]:
    return pam2025.plan(options) if pam2025.FIGURE in options.figures else campaign.plan(options)


def _write(results: frame.Results, options: frame.Options) -> list[Path]:
    return (pam2025 if pam2025.FIGURE in options.figures else page).write(results, options)


PAPER = frame.Paper(
    name="drives",
    what="messages over recorded drives with two or three operators, in mode backup or aggregate, or of pam2025",
    claims=(),
    plan=_plan,
    write=_write,
    figures=(*campaign.MODES, pam2025.FIGURE),
    parallel=os.cpu_count() or 1,
)
