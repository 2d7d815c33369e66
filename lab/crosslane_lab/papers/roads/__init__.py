"""Uploads with deadlines over recorded drives (docs/results/roads.md)."""

import os

from crosslane_lab.papers import frame
from crosslane_lab.papers.roads import page
from crosslane_lab.papers.roads.campaign import CONGESTIONS, plan

PAPER = frame.Paper(
    name="roads",
    what="uploads with deadlines over recorded drives, with congestion control cubic or bbr",
    claims=(),
    plan=plan,
    write=page.write,
    figures=CONGESTIONS,
    parallel=os.cpu_count() or 1,
)
