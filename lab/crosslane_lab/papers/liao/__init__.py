"""Liao et al. 2020 (SmartPS): a learned order of Wi-Fi and a cellular network (docs/results/liao.md)."""

import os

from crosslane_lab.papers import frame
from crosslane_lab.papers.liao import page
from crosslane_lab.papers.liao.campaign import plan, prepare

PAPER = frame.Paper(
    name="liao",
    what="the paper on SmartPS: simulates its data, trains its trees and drives them, an hour",
    claims=(),
    plan=plan,
    write=page.write,
    prepare=prepare,
    parallel=max((os.cpu_count() or 1) - 1, 1),
)
