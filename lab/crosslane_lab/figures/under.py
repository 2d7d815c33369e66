"""What lies under each comparison: the signal, the subflows and the decisions, on the figure's time axis."""

from dataclasses import dataclass

import polars as pl
from matplotlib.axes import Axes

from crosslane_lab.coverage import threshold_dbm
from crosslane_lab.figures.style import FAINT, INK, MUTED, path_colour, say_nothing_here
from crosslane_lab.run import Event, Run, RunFolder

Window = tuple[float, float]

_LABEL_ROWS = 3
_CHARACTER_IN = 0.068
_FLOOR_DBM = -110.0


def heights_in(folder: RunFolder) -> dict[str, float]:
    """The panels this module draws, and their heights."""
    return {"signal": 1.05, "events": 0.2 * max(2, len(folder.scenario.paths)) + 0.17 * _LABEL_ROWS + 0.12}


def draw(folder: RunFolder, run: Run, axes: dict[str, Axes], window: Window, first: bool) -> None:
    """Draw the signal and the events of a run into their panels, and mark decisions through all panels."""
    _signal(folder, run, axes["signal"], window, first)
    decisions = [e for e in run.events_of("agent", "decision") if window[0] <= e.t_s <= window[1]]
    _events(folder, run, axes["events"], window, first)
    _labels(axes["events"], decisions, window)
    for one in axes.values():
        for decision in decisions:
            one.axvline(decision.t_s, color=INK, linewidth=0.7, linestyle=(0, (4, 3)), alpha=0.55, zorder=1)


def _signal(folder: RunFolder, run: Run, axes: Axes, window: Window, first: bool) -> None:
    begin, end = (int(max(0.0, edge) * 1e9) for edge in window)
    here = pl.col("t_ns").is_between(begin, end) & pl.col("rssi_dbm").is_not_null()
    mean = run.links.filter(here).collect()
    heard = run.samples.filter(here).collect()
    for path in folder.scenario.paths:
        colour = path_colour(folder, path)
        dots = heard.filter(pl.col("path") == path)
        alpha = 0.45 if path not in folder.scenario.cells else 0.18
        axes.plot(dots["t_ns"] / 1e9, dots["rssi_dbm"], ".", color=colour, markersize=2.2, alpha=alpha, mew=0)
        line = mean.filter(pl.col("path") == path).gather_every(5)
        axes.plot(line["t_ns"] / 1e9, line["rssi_dbm"].clip(_FLOOR_DBM, None), color=colour, linewidth=1.2)
        limit = threshold_dbm(folder, path)
        if limit is not None:
            axes.axhline(limit, color=colour, linewidth=0.8, linestyle=(0, (2, 2)))
            if first:
                note = f"threshold −{abs(limit):g} dBm"
                axes.annotate(note, (0.01, limit), xycoords=("axes fraction", "data"), xytext=(0, -2),
                              textcoords="offset points", va="top", fontsize=7, color=colour)  # fmt: skip
    if not mean.height and not heard.height:
        say_nothing_here(axes, "no signal recorded")
    if first:
        axes.set_ylabel("signal (dBm)")
        _names(folder, axes)


def _names(folder: RunFolder, axes: Axes) -> None:
    """The paths' names in their colours, on the top edge of the panel."""
    x = 1.0
    for path in reversed(folder.scenario.paths):
        axes.text(x, 1.0, path, transform=axes.transAxes, ha="right", va="bottom", fontsize=7.5,
                  color=path_colour(folder, path))  # fmt: skip
        x -= (len(path) + 2) * _CHARACTER_IN / _width_in(axes)


@dataclass(frozen=True)
class Life:
    """A stretch of a path's subflow in one role."""

    path: str
    begin_s: float
    end_s: float
    backup: bool


def lives(run: Run, end_s: float) -> list[Life]:
    """When each path had a subflow and in which role, from the kernel's events on the vehicle."""
    own = [e for e in run.events_of("kernel") if e.text("side") in ("", "vehicle")]
    open_at: dict[str, tuple[float, bool]] = {}
    result: list[Life] = []
    for event in own:
        path = event.text("path")
        backup = bool(event.fields.get("backup"))
        if event.event in ("established", "subflow_established"):
            open_at.setdefault(path, (event.t_s, backup))
        elif event.event in ("subflow_priority", "subflow_closed") and path in open_at:
            since, was = open_at.pop(path)
            result.append(Life(path, since, event.t_s, was))
            if event.event == "subflow_priority":
                open_at[path] = (event.t_s, backup)
        elif event.event == "closed":
            result += [Life(p, since, event.t_s, was) for p, (since, was) in open_at.items()]
            open_at.clear()
    return result + [Life(p, since, end_s, was) for p, (since, was) in open_at.items()]


def _events(folder: RunFolder, run: Run, axes: Axes, window: Window, first: bool) -> None:
    paths = folder.scenario.paths
    for life in lives(run, folder.duration_s):
        if life.path not in paths:
            continue
        y = -paths.index(life.path)
        colour = path_colour(folder, life.path)
        width, alpha = (1.6, 0.55) if life.backup else (5.0, 0.9)
        axes.plot([life.begin_s, life.end_s], [y, y], color=colour, linewidth=width, alpha=alpha,
                  solid_capstyle="butt", zorder=2)  # fmt: skip
    for event in run.events_of("kernel", "subflow_closed"):
        if event.text("side") in ("", "vehicle") and event.text("path") in paths:
            axes.plot(event.t_s, -paths.index(event.text("path")), "x", color=INK, markersize=4.5, mew=1.1)
    axes.set_ylim(-len(paths) + 0.3 - _LABEL_ROWS * 0.85, 0.6)
    axes.set_yticks([-i for i in range(len(paths))], list(paths) if first else [])
    axes.grid(False)
    axes.set_xlim(*window)


def _labels(axes: Axes, decisions: list[Event], window: Window) -> None:
    """Each decision as "path → state" beneath its line, in the first row where it has room."""
    lowest = axes.get_ylim()[0]
    per_s = _width_in(axes) / (window[1] - window[0])
    free = [float("-inf")] * _LABEL_ROWS
    left_out = 0
    for decision in decisions:
        text = f"{decision.text('path')} → {decision.text('state')}"
        x_in, width = (decision.t_s - window[0]) * per_s, len(text) * _CHARACTER_IN
        from_right = x_in + width > _width_in(axes)
        start = x_in - width if from_right else x_in
        row = next((r for r in range(_LABEL_ROWS) if free[r] <= start), None)
        if row is None:
            left_out += 1
            continue
        free[row] = start + width + 0.08
        y = lowest + (_LABEL_ROWS - 1 - row) * 0.85 + 0.35
        axes.annotate(text, (decision.t_s, y), xytext=(-3 if from_right else 3, 0), textcoords="offset points",
                      ha="right" if from_right else "left", va="center", fontsize=7.5, color=INK)  # fmt: skip
    if left_out or not decisions:
        note = f"and {left_out} more" if left_out else "no decision in this stretch"
        axes.text(1.0, 0.02, note, transform=axes.transAxes, ha="right", va="bottom", fontsize=7, color=MUTED)
    axes.spines["left"].set_color(FAINT)


def _width_in(axes: Axes) -> float:
    figure = axes.figure
    return axes.get_position().width * figure.get_figure(root=True).get_figwidth() if figure else 1.0
