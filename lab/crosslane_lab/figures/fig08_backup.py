"""Figure 8: the handover in detail in backup mode, data sequence numbers per path over time."""

from matplotlib.figure import Figure

from crosslane_lab.figures import sequence
from crosslane_lab.runs.folder import RunFolder

TITLE = "The handover in detail (backup mode)"


def skip_reason(folder: RunFolder) -> str | None:
    """Figure 7 shows the same in aggregation mode."""
    return None if folder.scenario.mode == "backup" else "this drive is in aggregation mode, see figure 7"


def draw(folder: RunFolder) -> Figure:
    """See `sequence.draw`."""
    return sequence.draw(folder)


def caption(folder: RunFolder) -> str:
    """See `sequence.caption`."""
    return sequence.caption(folder)
