"""One file per figure; each is a function from a run folder to a matplotlib figure.

A figure module has `TITLE`, `skip_reason(folder)` (why the figure does not apply to the drive, else None),
`draw(folder)` and `caption(folder)` (a sentence with numbers computed from the data).
The file names have the figure numbers of Hapanchak and Costa 2023.
"""

from typing import Protocol, cast

from matplotlib.figure import Figure

from crosslane_lab.figures import (
    fig03_underused,
    fig06_throughput,
    fig07_aggregation,
    fig08_backup,
    fig09_delay,
    fig10_recovered,
    fig11_bytes,
    objects,
    seeds,
    transport,
)
from crosslane_lab.runs.folder import RunFolder


class FigureModule(Protocol):
    """Interface of the modules in this package that draw a figure."""

    TITLE: str

    def skip_reason(self, folder: RunFolder) -> str | None:
        """Why the figure does not apply to the drive; None if it does."""
        ...

    def draw(self, folder: RunFolder) -> Figure:
        """The figure."""
        ...

    def caption(self, folder: RunFolder) -> str:
        """The content of the figure in one sentence."""
        ...


def _module(module: object) -> FigureModule:
    return cast(FigureModule, module)


ALL: dict[str, FigureModule] = {
    "objects": _module(objects),
    "fig09": _module(fig09_delay),
    "seeds": _module(seeds),
    "fig07": _module(fig07_aggregation),
    "fig08": _module(fig08_backup),
    "fig06": _module(fig06_throughput),
    "fig03": _module(fig03_underused),
    "fig10": _module(fig10_recovered),
    "fig11": _module(fig11_bytes),
    "transport": _module(transport),
}
"""The figures of the report, in order."""
