"""`crosslane-lab mobility manhattan`: trajectories of vehicles in a grid city."""

import argparse
from collections.abc import Callable
from pathlib import Path

from crosslane_lab.errors import LabError
from crosslane_lab.mobility import own, sumo, trace
from crosslane_lab.mobility.city import City

MAX_VEHICLES = 10_000
"""The maximum that `crosslane` reads."""


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    mobility = commands.add_parser("mobility", help="make the trajectories of vehicles", description=__doc__)
    maps = mobility.add_subparsers(required=True, metavar="MAP")
    grid = maps.add_parser("manhattan", help="a grid city with traffic lights", description=__doc__)
    option_help = "{} (default: %(default)s)"
    grid.add_argument("--vehicles", type=int, default=1, metavar="N", help=option_help.format("number of vehicles"))
    grid.add_argument("--minutes", type=float, default=30, metavar="M", help=option_help.format("duration"))
    grid.add_argument(
        "--blocks", type=int, default=6, metavar="N", help=option_help.format("blocks in each direction")
    )
    grid.add_argument(
        "--block-m", type=float, default=150, metavar="M", help=option_help.format("length of a block")
    )
    grid.add_argument("--seed", type=int, default=1, metavar="S", help=option_help.format("random seed"))
    grid.add_argument(
        "--engine", choices=("own", "sumo"), default="own", help=option_help.format("traffic simulator")
    )
    grid.add_argument("--out", type=Path, required=True, metavar="FILE", help="the mobility file (CSV)")
    grid.set_defaults(act=_manhattan)


def _manhattan(options: argparse.Namespace) -> None:
    city = City(options.blocks, options.block_m, options.vehicles, options.minutes, options.seed)
    max_blocks = sumo.MAX_BLOCKS if options.engine == "sumo" else 100
    _within("--vehicles", city.vehicles, 1, MAX_VEHICLES)
    _within("--minutes", city.minutes, 0.1, 120)
    _within("--blocks", city.blocks, 1, max_blocks)
    _within("--block-m", city.block_m, 40, 1000)
    engines: dict[str, Callable[[City], dict[int, list[trace.Point]]]] = {"own": own.drive, "sumo": sumo.drive}
    trajectories = engines[options.engine](city)
    name = f"SUMO {sumo.version()}" if options.engine == "sumo" else "crosslane-lab"
    made_by = (
        f"{name}: manhattan --vehicles {city.vehicles} --minutes {city.minutes:g} --blocks {city.blocks} "
        f"--block-m {city.block_m:g} --seed {city.seed} --engine {options.engine}"
    )
    trace.write(options.out, trajectories, made_by)
    print(options.out)


def _within(option: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise LabError(
            f"while reading {option}: {value:g} is outside {low:g} to {high:g}; choose a number in this range"
        )
