"""What lies under each comparison: the signal, the subflows and the decisions, on the figure's time axis."""

from dataclasses import dataclass

import polars as pl
from matplotlib.axes import Axes

from crosslane_lab.coverage import threshold_dbm
from crosslane_lab.figures.style import INK, MUTED, RED, path_colour, say_nothing_here
from crosslane_lab.metrics import representative
from crosslane_lab.run import Event, Run, RunFolder

Window = tuple[float, float]

_MOST_LABEL_ROWS = 3
_ROW = 0.85
_LANE_IN = 0.21
_CHARACTER_IN = 0.068
_FLOOR_DBM = -110.0


def heights_in(folder: RunFolder) -> dict[str, float]:
    """The panels this module draws, and their heights."""
    lanes, rows = len(folder.scenario.paths), _label_rows(folder)
    return {"signal": 1.05, "events": _LANE_IN * (lanes + _ROW * rows) + 0.05}


def _label_rows(folder: RunFolder) -> int:
    """Rows for the decisions' labels: as many as any median run has decisions, within reason."""
    most = (len(representative(folder, s).events_of("agent", "decision")) for s in folder.measured)
    return min(max(most, default=0), _MOST_LABEL_ROWS) or 1


def draw(folder: RunFolder, run: Run, axes: dict[str, Axes], window: Window, first: bool) -> None:
    """Draw the signal and the events of a run into their panels, and mark decisions through all panels."""
    for one in axes.values():
        one.set_xlim(*window)
    _signal(folder, run, axes["signal"], window, first)
    decisions = [e for e in run.events_of("agent", "decision") if window[0] <= e.t_s <= window[1]]
    _events(folder, run, axes["events"], first)
    _labels(axes["events"], decisions, window, _label_rows(folder))
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
        axes.plot(dots["t_ns"] / 1e9, dots["rssi_dbm"], ".", color=colour, markersize=3.6, alpha=alpha, mew=0)
        line = mean.filter(pl.col("path") == path).gather_every(5)
        axes.plot(line["t_ns"] / 1e9, line["rssi_dbm"].clip(_FLOOR_DBM, None), color=colour, linewidth=1.2)
        limit = threshold_dbm(folder, path)
        if limit is not None:
            axes.axhline(limit, color=colour, linewidth=0.8, linestyle=(0, (2, 2)))
            if first:
                _name_the_threshold(axes, limit, line, colour)
    if not mean.height and not heard.height:
        say_nothing_here(axes, "no signal recorded")
    if first:
        axes.set_ylabel("signal (dBm)")


def _name_the_threshold(axes: Axes, limit: float, mean: pl.DataFrame, colour: str) -> None:
    """The threshold's value above its line, where the signal itself is far below it."""
    left, right = axes.get_xlim()
    lowest = mean.drop_nulls("rssi_dbm").sort("rssi_dbm", "t_ns")["t_ns"].head(1)
    place = 0.99 if lowest.is_empty() else (lowest.item() / 1e9 - left) / (right - left)
    place = min(max(place, 0.01), 0.99)
    axes.annotate(
        f"threshold −{abs(limit):g} dBm",
        (place, limit),
        xycoords=("axes fraction", "data"),
        xytext=(0, 2),
        textcoords="offset points",
        ha="left" if place < 0.2 else "right" if place > 0.8 else "center",
        va="bottom",
        fontsize=7.5,
        color=colour,
    )


@dataclass(frozen=True)
class Life:
    """A stretch of a path's subflow in one role."""

    path: str
    begin_s: float
    end_s: float
    backup: bool


def lives(run: Run, end_s: float) -> list[Life]:
    """When each path had a subflow and in which role, from the kernel's events.

    Opening and closing are the vehicle's own; a change of priority is told only to the side that did not
    ask for it, so it counts from either.
    """
    open_at: dict[str, tuple[float, bool]] = {}
    result: list[Life] = []

    def end(path: str, t_s: float) -> None:
        if path in open_at:
            since, backup = open_at.pop(path)
            result.append(Life(path, since, t_s, backup))

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
    for life in lives(run, folder.duration_s):
        if life.path not in paths:
            continue
        y = -paths.index(life.path)
        colour = path_colour(folder, life.path)
        width, alpha = (1.6, 0.55) if life.backup else (5.0, 0.9)
        axes.plot(
            [life.begin_s, life.end_s],
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
    axes.set_ylim(-len(paths) + 0.35 - _label_rows(folder) * _ROW, 0.6)
    axes.set_yticks([-i for i in range(len(paths))], list(paths) if first else [])
    for label, path in zip(axes.get_yticklabels(), paths, strict=False):
        label.set_color(path_colour(folder, path))
    axes.grid(False)


def _labels(axes: Axes, decisions: list[Event], window: Window, rows: int) -> None:
    """Each decision as "path → state" beneath its line, in the first row where it has room."""
    lowest = axes.get_ylim()[0]
    per_s = _width_in(axes) / (window[1] - window[0])
    free = [float("-inf")] * rows
    left_out = 0
    for decision in decisions:
        text = f"{decision.text('path')} → {decision.text('state')}"
        x_in, width = (decision.t_s - window[0]) * per_s, len(text) * _CHARACTER_IN
        from_right = x_in + width > _width_in(axes)
        start = x_in - width if from_right else x_in
        row = next((r for r in range(rows) if free[r] <= start), None)
        if row is None:
            left_out += 1
            continue
        free[row] = start + width + 0.08
        y = lowest + (rows - 1 - row) * _ROW + 0.35
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
    if left_out:
        axes.text(
            1.0,
            0.02,
            f"and {left_out} more",
            transform=axes.transAxes,
            ha="right",
            va="bottom",
            fontsize=7,
            color=MUTED,
        )


def _width_in(axes: Axes) -> float:
    figure = axes.figure
    return axes.get_position().width * figure.get_figure(root=True).get_figwidth() if figure else 1.0
