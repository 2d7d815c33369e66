"""Vehicles in a grid city by SUMO (https://eclipse.dev/sumo), from the package `eclipse-sumo`."""

import importlib.util
import subprocess
import tempfile
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from string import ascii_uppercase
from xml.etree import ElementTree

from crosslane_lab.errors import LabError
from crosslane_lab.mobility.city import City, Crossing
from crosslane_lab.mobility.trace import Point

MAX_BLOCKS = len(ascii_uppercase) - 1
"""SUMO uses letters as the names of the columns of a grid."""


def drive(city: City) -> dict[int, list[Point]]:
    """The trajectories of all vehicles: a grid with traffic lights, random routes, one position per second."""
    programs = _programs()
    with tempfile.TemporaryDirectory() as folder:
        net, routes, positions = (Path(folder) / name for name in ("net.xml", "routes.xml", "positions.xml"))
        _call(
            programs / "netgenerate",
            "--grid",
            f"--grid.number={city.blocks + 1}",
            f"--grid.length={city.block_m}",
            "--default.lanenumber=1",
            "--default.speed=13.9",
            "--default-junction-type=traffic_light",
            "--no-turnarounds=true",
            f"--output-file={net}",
        )
        routes.write_text(_routes(city), encoding="ascii")
        _call(
            programs / "sumo",
            f"--net-file={net}",
            f"--route-files={routes}",
            f"--end={city.duration_s}",
            f"--seed={city.seed}",
            f"--fcd-output={positions}",
            "--time-to-teleport=-1",
            "--no-step-log=true",
            "--no-warnings=true",
        )
        return _trajectories(positions)


def version() -> str:
    """The version of SUMO, as `1.28.0`."""
    return _call(_programs() / "sumo", "--version").split("\n")[0].split()[-1]


def _programs() -> Path:
    found = importlib.util.find_spec("sumo")
    if found is None or found.origin is None:
        raise LabError(
            "while looking for SUMO: it is not installed; "
            "pip install -e 'lab[sumo]', or make the trace with --engine own"
        )
    return Path(found.origin).parent / "bin"


def _call(program: Path, *arguments: str) -> str:
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        cause = " ".join((done.stderr.strip() or f"exit code {done.returncode}").split())
        raise LabError(f"while running {program.name}: {cause}; try --engine own")
    return done.stdout


def _routes(city: City) -> str:
    crossings = 3 + int(city.duration_s * 14 / city.block_m)
    vehicles = (
        f'<vehicle id="{number}" depart="{depart_s:.1f}" departSpeed="max">'
        f'<route edges="{" ".join(_streets(city.route(number, crossings)))}"/></vehicle>'
        for number, depart_s in enumerate(city.departures_s)
    )
    return "<routes>\n" + "\n".join(vehicles) + "\n</routes>\n"


def _streets(route: list[Crossing]) -> Iterable[str]:
    names = [f"{ascii_uppercase[x]}{y}" for x, y in route]
    return (begin + end for begin, end in pairwise(names))


def _trajectories(positions: Path) -> dict[int, list[Point]]:
    trajectories: dict[int, list[Point]] = {}
    for _, step in ElementTree.iterparse(positions):
        if step.tag == "timestep":
            t_s = float(step.attrib["time"])
            for car in step.iter("vehicle"):
                point = (t_s, float(car.attrib["x"]), float(car.attrib["y"]))
                trajectories.setdefault(int(car.attrib["id"]), []).append(point)
            step.clear()
    return trajectories
