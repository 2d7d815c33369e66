"""The lower panels of each comparison: signal, subflows and decisions on the time axis of the figure."""

from dataclasses import dataclass

import polars as pl
from matplotlib.axes import Axes

from crosslane_lab.coverage import threshold_dbm
from crosslane_lab.render.style import INK, MUTED, RED, annotate_empty, path_colour
from crosslane_lab.runs.folder import Event, Run, RunFolder
from crosslane_lab.runs.frame import representative

Window = tuple[float, float]

_MAX_LABEL_ROWS = 3
_LABEL_ROW = 0.85
_PATH_ROW_IN = 0.21
_CHARACTER_IN = 0.068
_FLOOR_DBM = -110.0


def heights_in(folder: RunFolder) -> dict[str, float]:
    """The panels of this module and their heights."""
    paths, rows = len(folder.scenario.paths), _label_rows(folder)
    return {"signal": 1.05, "events": _PATH_ROW_IN * (paths + _LABEL_ROW * rows) + 0.05}


def _label_rows(folder: RunFolder) -> int:
    """Rows for the labels of decisions: the highest number of decisions in a median run, up to a limit."""
    counts = (len(representative(folder, s).events_of("agent", "decision")) for s in folder.measured)
    return min(max(counts, default=0), _MAX_LABEL_ROWS) or 1


def draw(folder: RunFolder, run: Run, axes: dict[str, Axes], window: Window, first: bool) -> None:
    """Draw the signal and the events of a run into their panels, and mark decisions through all panels."""
    for panel in axes.values():
        panel.set_xlim(*window)
    _signal(folder, run, axes["signal"], window, first)
    decisions = [e for e in run.events_of("agent", "decision") if window[0] <= e.t_s <= window[1]]
    _events(folder, run, axes["events"], first)
    _labels(axes["events"], decisions, window, _label_rows(folder))
    for panel in axes.values():
        for decision in decisions:
            panel.axvline(decision.t_s, color=INK, linewidth=0.7, linestyle=(0, (4, 3)), alpha=0.55, zorder=1)


def _signal(folder: RunFolder, run: Run, axes: Axes, window: Window, first: bool) -> None:
    begin, end = (int(max(0.0, edge) * 1e9) for edge in window)
    here = pl.col("t_ns").is_between(begin, end) & pl.col("rssi_dbm").is_not_null()
    mean = run.links.filter(here).collect()
    samples = run.samples.filter(here & (pl.col("kind") != "vehicle-cam")).collect()
    for path in folder.scenario.paths:
        colour = path_colour(folder, path)
        dots = samples.filter(pl.col("path") == path)
        alpha = 0.45 if path not in folder.scenario.cells else 0.18
        axes.plot(dots["t_ns"] / 1e9, dots["rssi_dbm"], ".", color=colour, markersize=3.6, alpha=alpha, mew=0)
        line = mean.filter(pl.col("path") == path).gather_every(5)
        axes.plot(line["t_ns"] / 1e9, line["rssi_dbm"].clip(_FLOOR_DBM, None), color=colour, linewidth=1.2)
        limit = threshold_dbm(folder, path)
        if limit is not None:
            axes.axhline(limit, color=colour, linewidth=0.8, linestyle=(0, (2, 2)))
            if first:
                _label_threshold(axes, limit, line, colour)
    if not mean.height and not samples.height:
        annotate_empty(axes, "no signal recorded")
    if first:
        axes.set_ylabel("signal (dBm)")


def _label_threshold(axes: Axes, limit: float, mean: pl.DataFrame, colour: str) -> None:
    """The value of the threshold above its line, at a time when the signal is far below it."""
    left, right = axes.get_xlim()
    lowest = mean.drop_nulls("rssi_dbm").sort("rssi_dbm", "t_ns")["t_ns"].head(1)
    position = 0.99 if lowest.is_empty() else (lowest.item() / 1e9 - left) / (right - left)
    position = min(max(position, 0.01), 0.99)
    axes.annotate(
        f"threshold −{abs(limit):g} dBm",
        (position, limit),
        xycoords=("axes fraction", "data"),
        xytext=(0, 2),
        textcoords="offset points",
        ha="left" if position < 0.2 else "right" if position > 0.8 else "center",
        va="bottom",
        fontsize=7.5,
        color=colour,
    )


@dataclass(frozen=True)
class SubflowInterval:
    """An interval in which the subflow of a path exists in one role."""

    path: str
    begin_s: float
    end_s: float
    backup: bool


def subflow_intervals(run: Run, end_s: float) -> list[SubflowInterval]:
    """The intervals in which each path had a subflow, and its role, from the events of the kernel.

    Openings and closings are taken from the vehicle's side. The kernel reports a change of priority only on the
    side that did not request it, so these events are taken from both sides.
    """
    open_at: dict[str, tuple[float, bool]] = {}
    result: list[SubflowInterval] = []

    def end(path: str, t_s: float) -> None:
        if path in open_at:
            since, backup = open_at.pop(path)
            result.append(SubflowInterval(path, since, t_s, backup))

    for event in run.events_of("kernel"):
        path, backup = event.text("path"), bool(event.fields.get("backup"))
        if event.event == "subflow_priority":
            if path in open_at and open_at[path][1] != backup:
                end(path, event.t_s)
                open_at[path] = (event.t_s, backup)
        elif not _on_vehicle(event):
            continue
        elif event.event in ("established", "subflow_established"):
            open_at.setdefault(path, (event.t_s, backup))
        elif event.event == "subflow_closed":
            end(path, event.t_s)
        elif event.event == "closed":
            for each in list(open_at):
                end(each, event.t_s)
    for each in list(open_at):
        end(each, end_s)
    return result


def _on_vehicle(event: Event) -> bool:
    return event.text("side") in ("", "vehicle")


def _events(folder: RunFolder, run: Run, axes: Axes, first: bool) -> None:
    paths = folder.scenario.paths
    for interval in subflow_intervals(run, folder.duration_s):
        if interval.path not in paths:
            continue
        y = -paths.index(interval.path)
        colour = path_colour(folder, interval.path)
        width, alpha = (1.6, 0.55) if interval.backup else (5.0, 0.9)
        axes.plot(
            [interval.begin_s, interval.end_s],
            [y, y],
            color=colour,
            linewidth=width,
            alpha=alpha,
            solid_capstyle="butt",
            zorder=2,
        )
    for event in run.events_of("kernel", "subflow_closed"):
        if _on_vehicle(event) and event.text("path") in paths:
            axes.plot(event.t_s, -paths.index(event.text("path")), "x", color=INK, markersize=4.5, mew=1.1)
    for event in run.events_of("agent", "alarm"):
        if event.text("path") in paths:
            axes.plot(event.t_s, 0.42 - paths.index(event.text("path")), "v", color=RED, markersize=4.5, mew=0)
    axes.set_ylim(-len(paths) + 0.35 - _label_rows(folder) * _LABEL_ROW, 0.6)
    axes.set_yticks([-i for i in range(len(paths))], list(paths) if first else [])
    for label, path in zip(axes.get_yticklabels(), paths, strict=False):
        label.set_color(path_colour(folder, path))
    axes.grid(False)


def _labels(axes: Axes, decisions: list[Event], window: Window, rows: int) -> None:
    """Each decision as "path → state" below its line, in the first row with free space."""
    lowest = axes.get_ylim()[0]
    per_s = _width_in(axes) / (window[1] - window[0])
    free = [float("-inf")] * rows
    omitted = 0
    for decision in decisions:
        text = f"{decision.text('path')} → {decision.text('state')}"
        x_in, width = (decision.t_s - window[0]) * per_s, len(text) * _CHARACTER_IN
        from_right = x_in + width > _width_in(axes)
        start = x_in - width if from_right else x_in
        row = next((r for r in range(rows) if free[r] <= start), None)
        if row is None:
            omitted += 1
            continue
        free[row] = start + width + 0.08
        y = lowest + (rows - 1 - row) * _LABEL_ROW + 0.35
        axes.annotate(
            text,
            (decision.t_s, y),
            xytext=(-3 if from_right else 3, 0),
            textcoords="offset points",
            ha="right" if from_right else "left",
            va="center",
            fontsize=7.5,
            color=INK,
        )
    if omitted:
        axes.text(
            1.0,
            0.02,
            f"and {omitted} more",
            transform=axes.transAxes,
            ha="right",
            va="bottom",
            fontsize=7,
            color=MUTED,
        )


def _width_in(axes: Axes) -> float:
    figure = axes.figure
    return axes.get_position().width * figure.get_figure(root=True).get_figwidth() if figure else 1.0
