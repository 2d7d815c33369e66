"""Torrinhas et al. 2024: MPTCP over several roadside units and one radio, section IV from our runs."""

from pathlib import Path

from crosslane_lab.papers import frame
from crosslane_lab.papers.torrinhas import page
from crosslane_lab.papers.torrinhas.results import DRIVEN, LOADED, RECORDS, STRATEGIES, UNLOADED
from crosslane_lab.runs.runner import Comparison, scenario


def _plan(options: frame.Options) -> list[Comparison]:
    folder, seeds = options.scenarios / "torrinhas", "1..3" if options.quick else "1..10"
    texts = {name: scenario(folder / f"{name}.toml") for name in ("scenario-1", "scenario-2", LOADED)}
    texts[UNLOADED] = scenario(folder / f"{LOADED}.toml", {"background": "[]"})
    simulated = [Comparison(name, text, STRATEGIES, seeds, "simulator", RECORDS) for name, text in texts.items()]
    without_drives = options.quick or options.engine == "simulator"
    return simulated if without_drives else [*simulated, *_drives(folder)]


def _drives(folder: Path) -> list[Comparison]:
    """The drives on the kernel, which has no minRTT."""
    edits = {"scheduler": '"default"'}
    return [
        Comparison(
            name,
            scenario(folder / f"{each.scenario}.toml", edits | {"congestion": f'"{each.congestion}"'}),
            each.strategies,
            each.seeds,
            "kernel",
            RECORDS,
        )
        for name, each in DRIVEN.items()
    ]


def _write(results: frame.Results, options: frame.Options) -> list[Path]:
    return page.write(results, options.out)


PAPER = frame.Paper(
    name="torrinhas",
    what="the paper on MPTCP over one radio: simulates and drives its two scenarios, two hours",
    claims=page.CLAIMS,
    plan=_plan,
    write=_write,
)
