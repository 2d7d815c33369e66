"""Frames of a camera over recorded drives (docs/results/camera.md)."""

import os

from crosslane_lab.papers import frame
from crosslane_lab.papers.camera import page
from crosslane_lab.papers.camera.campaign import plan

PAPER = frame.Paper(
    name="camera",
    what="frames of a camera over recorded drives, over two operators and over each alone",
    claims=(),
    plan=plan,
    write=page.write,
    figures=(),
    parallel=os.cpu_count() or 1,
)
