"""Messages over recorded drives with two or three operators (docs/results/drives.md)."""

import os

from crosslane_lab.papers import frame
from crosslane_lab.papers.drives import page
from crosslane_lab.papers.drives.campaign import MODES, plan

PAPER = frame.Paper(
    name="drives",
    what="messages over recorded drives with two or three operators, in mode backup or aggregate",
    claims=(),
    plan=plan,
    write=page.write,
    figures=MODES,
    parallel=os.cpu_count() or 1,
)
