"""The tunnel over pairs of paths drawn at random (docs/results/pairs.md)."""

import os

from crosslane_lab.papers import frame
from crosslane_lab.papers.pairs import page
from crosslane_lab.papers.pairs.campaign import LOTS, plan

PAPER = frame.Paper(
    name="pairs",
    what="the tunnel over pairs of paths drawn at random, compared with the better path alone, by lot (default: 1)",
    claims=(),
    plan=plan,
    write=page.write,
    figures=LOTS,
    parallel=os.cpu_count() or 1,
)
