"""The table of traffic through the tunnel: medians, those of the kernel, and the targets."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from crosslane_lab.errors import unreadable
from crosslane_lab.pages.command import add_page
from crosslane_lab.pages.made_by import made_by
from crosslane_lab.render.markdown import number, spread_text, table
from crosslane_lab.runs.catalog import GAP, GOODPUT, WORST_DELAY, describe
from crosslane_lab.runs.folder import RunFolder
from crosslane_lab.runs.frame import Spread, spread

CPU = "tunnel.cpu_s_per_gb"
WIREGUARD = "wireguard-go"
LOST, REORDERED = "lost_share", "reordered_share"
OURS = ("tunnel", "tunnel-plain", "tunnel-redundant")
SHOWN = {
    "bulk": (GOODPUT, CPU),
    "stream": (GOODPUT, LOST, REORDERED, CPU),
    "messages": (LOST, GAP, WORST_DELAY),
}
"""The metrics shown, by kind of traffic; omitted if no run has them."""


@dataclass(frozen=True)
class Target:
    """The target of a strategy in a scenario: `limit`, or `limit` times the median of `relative_to` there."""

    strategy: str
    metric: str
    limit: float
    relative_to: str = ""

    @property
    def at_most(self) -> bool:
        """Whether less is better."""
        return self.metric != GOODPUT

    def value(self, folder: RunFolder) -> float | None:
        """The median, or its ratio to that of `relative_to`; None if it was not measured."""
        ours = spread(folder.valid_runs(self.strategy), self.metric)
        if not self.relative_to:
            return ours.median if ours else None
        theirs = spread(folder.valid_runs(self.relative_to), self.metric)
        return ours.median / theirs.median if ours and theirs and theirs.median else None

    def met(self, folder: RunFolder) -> bool | None:
        """Whether the target was met; None if it was not measured."""
        value = self.value(folder)
        if value is None:
            return None
        return value <= self.limit if self.at_most else value >= self.limit

    @property
    def text(self) -> str:
        """The target in words."""
        unit = describe(self.metric).unit
        bound = f"{100 * self.limit:g} % of `{self.relative_to}`" if self.relative_to else number(self.limit, unit)
        return f"`{self.strategy}`: {self.metric} {'at most' if self.at_most else 'at least'} {bound}"


def _share_of_kernel(encrypted: float, unencrypted: float) -> tuple[Target, ...]:
    shares = {"tunnel": encrypted, "tunnel-plain": unencrypted}
    return tuple(Target(strategy, GOODPUT, share, "kernel") for strategy, share in shares.items())


TARGETS: dict[str, tuple[Target, ...]] = {
    "tunnel-equal-60-60": _share_of_kernel(0.95, 0.98),
    "tunnel-narrow-25-47": _share_of_kernel(0.95, 0.98),
    "tunnel-wide-246-469": _share_of_kernel(0.93, 0.96),
    "tunnel-unequal-20-80": (Target("tunnel", GOODPUT, 80.0),),
    "tunnel-spread-100": (Target("tunnel", GOODPUT, 0.97, "single"),),
    "tunnel-far-20-100": (Target("tunnel", GOODPUT, 0.97, "single-far"),),
    "tunnel-udp-stream": (Target("tunnel", LOST, 0.001), Target("tunnel", REORDERED, 0.005)),
    "tunnel-unshaped": (
        Target("tunnel", GOODPUT, 2700.0),
        Target("tunnel", GOODPUT, 1.0, WIREGUARD),
        Target("tunnel", CPU, 5.0),
    ),
    "tunnel-udp-leave-coverage": (Target("tunnel", GAP, 60.0),),
    "tunnel-udp-sudden-loss": (Target("tunnel", GAP, 150.0),),
    "tunnel-redundant-loss": (Target("tunnel-redundant", LOST, 0.004),),
}
"""By scenario: shares of the goodput of another strategy, 80 % of the capacity of both links, or limits."""


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "tunnel", help="make the table of traffic through the tunnel from several run folders", description=__doc__
    )
    add_page(parser, "run folders of scenarios/tunnel", "docs/results/tunnel-measured.md", page)


def page(folders: Sequence[RunFolder]) -> str:
    """The page as Markdown, a function of the folders only. Raises `LabError` for runs without a tunnel."""
    for folder in folders:
        if not any(strategy in OURS for strategy in folder.measured):
            raise unreadable(folder.path, "no run uses the tunnel", "give runs of scenarios/tunnel")
    ranked = sorted(folders, key=lambda folder: (folder.name, _congestion(folder)))
    verdicts = [ok for folder in ranked for t in targets(folder) if (ok := t.met(folder)) is not None]
    lines = [
        "# The tunnel, measured",
        "",
        "Written by `make tunnel`; `docs/guide/tunnel.md` explains it, `scenarios/tunnel` has the scenarios.",
        "Medians over the valid runs, minimum and maximum in brackets; *of kernel*: goodput relative to that of",
        "`kernel`, which uses no tunnel.",
        "",
        made_by(folders),
        "",
        f"Targets met: {verdicts.count(True)} of {len(verdicts)}.",
        "",
        *table(
            ["scenario", "congestion", "target", "measured", "met"],
            (_verdict(folder, target) for folder in ranked for target in targets(folder)),
            "lllrl",
            compact=True,
        ),
    ]
    for folder in ranked:
        lines += ["", f"## `{folder.name}`, {_congestion(folder)}", "", *_table(folder), *_wireguard_note(folder)]
    return "\n".join(lines) + "\n"


def targets(folder: RunFolder) -> tuple[Target, ...]:
    """The targets of the scenario of a folder."""
    return TARGETS.get(folder.name, ())


def _verdict(folder: RunFolder, target: Target) -> list[str]:
    value = target.value(folder)
    shown = "–" if value is None else number(value, "%" if target.relative_to else describe(target.metric).unit)
    word = {True: "yes", False: "**no**", None: "not measured"}[target.met(folder)]
    return [f"`{folder.name.removeprefix('tunnel-')}`", _congestion(folder), target.text, shown, word]


def _table(folder: RunFolder) -> list[str]:
    runs = [run for run in folder.runs if run.valid]
    metrics = [name for name in SHOWN.get(folder.scenario.traffic, (GOODPUT,)) if spread(runs, name)]
    heads = ["strategy", "runs", *(_head(name) for name in metrics), "of kernel"]
    rows: list[list[str]] = []
    kernel = spread(folder.valid_runs("kernel"), GOODPUT)
    for strategy in folder.measured:
        valid = folder.valid_runs(strategy)
        ours = spread(valid, GOODPUT)
        ratio = f"{100 * ours.median / kernel.median:.1f} %" if ours and kernel and kernel.median else "–"
        rows.append(
            [f"`{strategy}`", str(len(valid)), *(_cell(spread(valid, name), name) for name in metrics), ratio]
        )
    return list(table(heads, rows, compact=True))


def _wireguard_note(folder: RunFolder) -> list[str]:
    """The version of WireGuard, if the tunnel is compared with it."""
    if not any(target.relative_to == WIREGUARD for target in targets(folder)):
        return []
    if folder.valid_runs(WIREGUARD):
        return ["", f"Over one path: {folder.versions.get(WIREGUARD, f'{WIREGUARD}, of unknown version')}."]
    return ["", f"`{WIREGUARD}` was not driven: it is not installed (`apt-get install {WIREGUARD}`)."]


def _head(metric: str) -> str:
    unit = {CPU: "s/GB"}.get(metric, describe(metric).unit)
    return f"{metric} ({unit})" if unit else metric


def _cell(stats: Spread | None, metric: str) -> str:
    if stats is None:
        return "–"
    text = spread_text(stats, describe(metric).unit if describe(metric).unit == "%" else "")
    return text.replace("\u00a0%", "")


def _congestion(folder: RunFolder) -> str:
    uses_tcp = folder.scenario.protocol == "tcp" and folder.scenario.traffic != "stream"
    return folder.scenario.congestion if uses_tcp else "UDP"
