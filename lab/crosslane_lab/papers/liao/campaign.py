"""The runs of `crosslane-lab reproduce liao`: training data, held-out drives, a walk, the kernel, recordings.

Everything is drawn from seeds (`learn/places.py`): the drives of seed 1 train the trees, those of seed 2 try them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from crosslane_lab.learn import bound, collect, repeat
from crosslane_lab.learn.collect import Case
from crosslane_lab.learn.places import BUFFERS_KB, CLASSES, draw
from crosslane_lab.papers.drives import campaign as imc23
from crosslane_lab.papers.frame import Options
from crosslane_lab.papers.liao import trees
from crosslane_lab.papers.roads import campaign as pam2025
from crosslane_lab.progress import Progress
from crosslane_lab.runs.runner import Comparison

TRAIN_SEED, HELD_SEED = 1, 2
DRIVES = {False: (580, 40), True: (12, 8)}
"""Drives for training and held out, without and with `--quick`."""
TUNNEL_DRIVES = {False: 120, True: 12}
"""Drives on which the trees for the tunnel are trained, the first ones of the others."""
KERNEL_S = 20
"""Length of a drive on the kernel."""
KERNEL_DRIVES = 1
"""Held-out drives of each class on the kernel, with each buffer; with `--quick` with the short one only."""
IN_FLIGHT_DRIVES = {False: 8, True: 2}
"""Held-out drives of which packets are recorded."""
PAM_EVERY = {False: 12, True: 60}
IMC_EVERY = {False: 1, True: 6}
RECORDED_S = 120
"""Longest part of a recorded drive."""

SCHEDULERS = ("minrtt", "roundrobin", "default")
REPEATED = "minrtt-repeated"
PATHS = collect.PATHS
WALK = ("smartps", "learned")
IN_TUNNEL = {
    "tunnel-fixed": ("threshold", ""),
    "tunnel-smartps": ("smartps", "smartps-tunnel"),
    "tunnel-learned": ("learned", "learned-tunnel"),
}
"""Strategies in mode `cheapest-first`, with the strategy that orders the paths and its tree."""
OVER_MPTCP = "mptcp-learned"
"""Strategy `learned` over the kernel's MPTCP: of its answers that has one path alone, and both."""
KERNEL = ("kernel", "kernel-tuned", OVER_MPTCP, "tunnel", *IN_TUNNEL)
RECORDED = ("learned", "learned-transport")

_STRATEGY = """
[[strategy]]
name = "{name}"
base = "{base}"
"""

_WALK = """\
# Figures 2 and 3 of Liao et al. 2020, made by `crosslane-lab reproduce liao`.

name = "liao-walk-{scheduler}"
title = "A walk away from an access point, under an LTE cell"
duration_s = 100
scheduler = "{scheduler}"

[vehicle]
route = {{ from_m = [5, 0], to_m = [205, 0], speed_kmh = 7.2 }}

[[wifi]]
name = "wifi"
delay_ms = 5

[wifi.model]
position_m = [0, 5]
band = "5"

[[cellular]]
name = "cellular"
rat = "lte"
delay_ms = 25

[cellular.model]
cells_m = [[0, 300]]
share = 0.3

[service]
prefer = ["wifi", "cellular"]

[traffic]
kind = "bulk"
send_buffer_bytes = 64000
"""

_RECORDED = """\
# {file} (docs/guide/real-data.md), made by `crosslane-lab reproduce liao`.
# Run it with --data DIR.

name = "{name}"
title = "A bulk upload over two recorded operators"
duration_s = {duration:.1f}
scheduler = "{scheduler}"

[vehicle]
route = {{ from_m = [0, 0], to_m = [2000, 0], speed_kmh = 80 }}   # a trace does not depend on the position
{paths}
[service]
prefer = [{prefer}]

[traffic]
kind = "bulk"
send_buffer_bytes = {buffer}
"""

_PATH = """
[[cellular]]
name = "{operator}"
rat = "lte"
{constant}                # assumed
trace = "data:{trace}"
"""


def tree_folder(root: Path) -> Path:
    """Where the trees are."""
    return root / "trees"


def training(quick: bool, in_tunnel: bool = False) -> list[Case]:
    """The cases that the trees are trained on: those for the tunnel, or the others."""
    count = TUNNEL_DRIVES[quick] if in_tunnel else DRIVES[quick][0]
    return collect.cases(draw(TRAIN_SEED, count), in_tunnel=in_tunnel)


def held_out(quick: bool) -> list[Case]:
    """The cases that no tree has seen."""
    return collect.cases(draw(HELD_SEED, DRIVES[quick][1]))


def prepare(options: Options) -> None:
    """Simulate the training data and train the trees."""
    runner, progress = options.runner, Progress()
    chosen, of_tunnel = (training(options.quick, in_tunnel) for in_tunnel in (False, True))
    collect.prepare(runner.root, TRAIN_SEED)
    runner.run(collect.plan([*chosen, *of_tunnel]))
    rows, rows_of_tunnel = (collect.table(runner.root, each) for each in (chosen, of_tunnel))
    trees.make(tree_folder(runner.root), rows, rows_of_tunnel, progress)


def plan(options: Options) -> list[Comparison]:
    """All runs; on the kernel unless the simulator was asked for, recordings if their folder was named."""
    root, quick = options.runner.root, options.quick
    source, scenarios = tree_folder(root), root / "scenarios"
    for folder in (str(HELD_SEED), "walk", "in-flight", "kernel", "recorded"):
        trees.copy(source, scenarios / folder, trees.KINDS)
    collect.prepare(root, TRAIN_SEED)
    collect.prepare(root, HELD_SEED)
    held = held_out(quick)
    trained = [*training(quick), *training(quick, in_tunnel=True)]
    planned = [*collect.plan(trained), *collect.plan(held), *bound.plan(root, held)]
    planned += _repeated(held)
    planned += [*_walk(scenarios / "walk"), *_in_flight(scenarios / "in-flight", quick)]
    if options.engine != "simulator":
        planned += _kernel(scenarios / "kernel", quick)
    if options.runner.data:
        planned += _recorded(options, scenarios / "recorded")
    return planned


def repeated_name(case: Case) -> str:
    """Folder of a case with MinRTT, repeated."""
    return f"{case.name}-{REPEATED}"


def _repeated(held: list[Case]) -> Iterator[Comparison]:
    """MinRTT again, with slightly longer delays: what differs from the first time is chance."""
    for case, other in zip(held, repeat.again(held), strict=True):
        yield Comparison(repeated_name(case), other.scenario(SCHEDULERS[0], {}), ("threshold",), keep=collect.KEPT)


def _with(text: str, folder: Path, using: dict[str, tuple[str, str]]) -> str:
    """A scenario with strategies by base and tree."""
    entries = (_strategy(name, base, {"tree": f"{tree}.json"}) for name, (base, tree) in using.items())
    return bound.digests(folder, [tree for _, tree in using.values()]) + text + "".join(entries)


def _strategy(name: str, base: str, parameters: dict[str, str]) -> str:
    lines = (f'{key} = "{value}"\n' for key, value in parameters.items())
    trials = "trials = 0\n" if "tree" in parameters else ""
    return _STRATEGY.format(name=name, base=base) + "".join(lines) + trials


def _walk(folder: Path) -> Iterator[Comparison]:
    keep = ("packets", "links", "samples", "throughput")
    using = {f"with-{name}": (name, name) for name in WALK}
    text = _with(_WALK.format(scheduler="priority"), folder, using)
    yield Comparison("walk/trees", text, tuple(using), keep=keep)
    yield Comparison("walk/minrtt", _WALK.format(scheduler="minrtt"), ("threshold",), keep=keep)


def mobile(quick: bool) -> list[Case]:
    """Of the held-out bulk uploads with a short buffer those on the move."""
    cases = [case for case in held_out(quick) if (case.traffic, case.buffer_kb) == ("bulk-up", BUFFERS_KB[0])]
    return [case for case in cases if case.drive.kind != "static"]


def _in_flight(folder: Path, quick: bool) -> Iterator[Comparison]:
    using = {f"with-{name}": (name, name) for name in bound.TREES}
    for case in mobile(quick)[: IN_FLIGHT_DRIVES[quick]]:
        name, keep = f"in-flight/{case.drive.number}", ("packets",)
        yield Comparison(
            f"{name}-trees", _with(case.scenario("priority", {}), folder, using), tuple(using), keep=keep
        )
        for scheduler in SCHEDULERS:
            yield Comparison(f"{name}-{scheduler}", case.scenario(scheduler, {}), ("threshold",), keep=keep)


def driven(quick: bool) -> list[Case]:
    """Held-out bulk uploads for the kernel: drives of each class with either buffer."""
    cases = [case for case in held_out(quick) if case.traffic == "bulk-up"]
    short, tuned = ([case for case in cases if case.buffer_kb == buffer_kb] for buffer_kb in BUFFERS_KB)

    def first(of: list[Case], count: int) -> list[Case]:
        return [case for kind in CLASSES for case in [case for case in of if case.drive.kind == kind][:count]]

    return first(short, 1) if quick else [*first(short, KERNEL_DRIVES), *first(tuned, KERNEL_DRIVES)]


def _kernel(folder: Path, quick: bool) -> Iterator[Comparison]:
    names = [*(tree for _, tree in IN_TUNNEL.values() if tree), "learned"]
    for case in driven(quick):
        text = case.scenario("default", {}).replace("duration_s = 60", f"duration_s = {KERNEL_S}")
        for name, (steer, tree) in IN_TUNNEL.items():
            parameters = {"mode": "cheapest-first", "steer": steer}
            text += _strategy(name, "tunnel", parameters | ({"tree": f"{tree}.json"} if tree else {}))
        text += _strategy(OVER_MPTCP, "learned", {"tree": "learned.json"})
        text = bound.digests(folder, names) + text
        yield Comparison(f"kernel/{case.drive.number}-{case.buffer_kb}", text, KERNEL, engine="kernel")


@dataclass(frozen=True)
class Recording:
    """A part of a recorded drive: the set, a name, its length and two operators with their traces."""

    data_set: str
    name: str
    file: str
    duration_s: float
    traces: dict[str, str]

    def scenario(self, scheduler: str, buffer_kb: int) -> str:
        """A bulk upload over both operators, of which the first is preferred."""
        constant = "delay_ms = 25" if self.data_set == "pam2025" else "rate_mbit_s = 10"
        paths = (_PATH.format(operator=name, constant=constant, trace=trace) for name, trace in self.traces.items())
        return _RECORDED.format(
            file=self.file,
            name=f"liao-{self.name}-{buffer_kb}-{scheduler}".lower(),
            duration=self.duration_s,
            scheduler=scheduler,
            paths="".join(paths),
            prefer=", ".join(f'"{name}"' for name in self.traces),
            buffer=buffer_kb * 1000,
        )


def recordings(options: Options) -> list[Recording]:
    """Drives of pam2025 and a pair of operators of each segment of imc23."""
    found: list[Recording] = []
    for drive in pam2025.drives(options.runner)[:: PAM_EVERY[options.quick]]:
        operators = sorted(pam2025.OPERATORS, key=lambda name: name != drive.prefers)
        traces = {name: f"pam2025/uplink/{drive.file}#pam2025:{name}" for name in operators}
        duration = min(drive.duration_s, RECORDED_S)
        found.append(Recording("pam2025", f"pam2025-{drive.name}", drive.file, duration, traces))
    segments = imc23.drives(options.runner.data, IMC_EVERY[options.quick])
    for segment in {each.file: each for each in reversed(segments)}.values():
        traces = {name: f"imc23/{segment.file}#imc23:{name}" for name in segment.operators[:2]}
        name = f"imc23-{segment.file.removesuffix('.csv').replace('_', '-')}"
        found.append(Recording("imc23", name, segment.file, min(segment.duration_s, RECORDED_S), traces))
    return found


def _recorded(options: Options, folder: Path) -> Iterator[Comparison]:
    using = {f"with-{name}": ("learned", name) for name in RECORDED}
    for recording in recordings(options):
        for buffer_kb in BUFFERS_KB:
            name = f"recorded/{recording.name}-{buffer_kb}"
            text = _with(recording.scenario("priority", buffer_kb), folder, using)
            yield Comparison(f"{name}-priority", text, ("threshold", *using))
            for scheduler in SCHEDULERS:
                yield Comparison(f"{name}-{scheduler}", recording.scenario(scheduler, buffer_kb), ("threshold",))
