"""Strategy `adaptive` by `late_ms`: share of the preferred network against lateness (docs/results/late-ms.md)."""

import os

from crosslane_lab.papers import frame
from crosslane_lab.papers.adaptive import page
from crosslane_lab.papers.adaptive.campaign import plan

PAPER = frame.Paper(
    name="adaptive",
    what="the share of the roadside network against lateness, by late_ms of strategy adaptive",
    claims=(),
    plan=plan,
    write=page.write,
    parallel=os.cpu_count() or 1,
)
