"""`crosslane-lab learn refit`: the tree that `crosslane refit` fits to the trials of simulated drives, its gain.

A vehicle begins with a tree that is never sure, so that the user's order applies (Wi-Fi first), and drives with
trials. The fitted tree is then compared with the user's order and with MinRTT on other drives.
"""

import argparse
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from crosslane_lab.errors import unreadable
from crosslane_lab.learn import tree, write
from crosslane_lab.learn.bound import buffer_text, digests
from crosslane_lab.learn.places import BUFFERS_KB, Drive, draw
from crosslane_lab.papers.frame import DASH
from crosslane_lab.render.markdown import table
from crosslane_lab.runs.catalog import GOODPUT
from crosslane_lab.runs.folder import RunFolder
from crosslane_lab.runs.runner import Comparison, Runner, add_jobs, add_program

DURATION_S = 600
"""Of the drives with trials."""
OTHERS_SEED = 2
"""Of the drives to compare on."""
SHOWN = ("a", "b", "was_a_first", "is_a_preferred", "goodput_mbit_s", "delay_ms")
"""Fields of a trial that are in a row of the store."""
BY = ("user", "fitted", "fitted-trials", "minrtt")
_AGENT = """\
[[path]]
name = "wifi"
rat = "wifi"
[[path]]
name = "cellular"
rat = "lte"
[strategy]
name = "learned"
tree = "tree.json"
store = "trials.jsonl"
"""


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    parser = commands.add_parser("refit", help="fit a tree to trials, as on board", description=__doc__)
    parser.add_argument("--drives", type=int, default=160, help="with trials, of 600 s (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=11, help="of their draws (default: %(default)s)")
    parser.add_argument("--others", type=int, default=40, help="drives to compare on (default: %(default)s)")
    add_program(parser)
    add_jobs(parser)
    parser.add_argument(
        "--out", type=Path, default=Path("runs/refit"), metavar="DIR", help="(default: %(default)s)"
    )
    parser.set_defaults(act=_act)


def _act(given: argparse.Namespace) -> None:
    if min(given.drives, given.others, given.jobs) < 1:
        raise unreadable("the draws", "there is nothing to run", "give --drives, --others and --jobs of at least 1")
    if given.seed == OTHERS_SEED:
        cause = f"seed {given.seed} draws the drives on which trees are compared"
        raise unreadable("the draws", cause, "give another --seed")
    root, board = given.out / "runs", given.out / "board"
    runner = Runner(given.program.resolve(), root, parallel=given.jobs)
    drives = draw(given.seed, given.drives, DURATION_S)
    write(root / "scenarios" / "unsure.json", tree.text("learned", [{"a_first": 0.5}], {}))
    trials = {
        name(drive, "trials"): with_trees(drive, 64, [("on-board", "unsure", 'store = "x"')]) for drive in drives
    }
    runner.run(Comparison(run, text, ("on-board",), keep=("windows", "events")) for run, text in trials.items())
    lines = [line for run in trials for line in rows(root / run)]
    numbered = [
        json.dumps({"version": 1, "number": place + 1, "strategy": "learned"} | line)
        for place, line in enumerate(lines)
    ]
    write(board / "trials.jsonl", "".join(f"{line}\n" for line in numbered))
    write(board / "agent.toml", _AGENT)
    shutil.copyfile(root / "scenarios" / "unsure.json", board / "tree.json")
    print(runner.call(["refit", "--config", str(board / "agent.toml")], "fitting a tree").strip())
    shutil.copyfile(board / "tree.json", root / "scenarios" / "fitted.json")
    others = draw(OTHERS_SEED, given.others)
    runner.run(
        comparison for drive in others for buffer_kb in BUFFERS_KB for comparison in plan(root, drive, buffer_kb)
    )
    print("\n".join(page(root, others)))


def name(drive: Drive, kind: str) -> str:
    """Name of a run folder; the scenarios of all are in one folder, with the trees."""
    return f"{drive.seed}-{drive.number}-{kind}"


def with_trees(drive: Drive, buffer_kb: int, trees: list[tuple[str, str, str]]) -> str:
    """The scenario with strategies `learned` by name, tree and further keys."""
    strategies = (
        f'\n[[strategy]]\nname = "{name}"\nbase = "learned"\ntree = "{of}.json"\n{more}\n'
        for name, of, more in trees
    )
    return drive.scenario(buffer_kb, "priority", {}) + "".join(strategies)


def rows(run: Path) -> Iterator[dict[str, object]]:
    """What the trials of a run showed."""
    for each in RunFolder.open(run).runs:
        for event in each.events_of("agent", "trial"):
            missing = [field for field in SHOWN if field not in event.fields]
            if missing:
                file = each.folder / "events.jsonl"
                raise unreadable(file, f"a trial has no `{missing[0]}`", f"remove {run} and run the command again")
            yield {field: event.fields[field] for field in SHOWN}


def plan(root: Path, drive: Drive, buffer_kb: int) -> Iterator[Comparison]:
    """The runs of a drive on which the tree is compared."""
    trees = [("user", "unsure", "trials = 0"), ("fitted", "fitted", "trials = 0"), ("fitted-trials", "fitted", "")]
    text = digests(root / "scenarios", ["fitted"]) + with_trees(drive, buffer_kb, trees)
    yield Comparison(name(drive, f"{buffer_kb}-trees"), text, tuple(by for by, _, _ in trees))
    yield Comparison(name(drive, f"{buffer_kb}-minrtt"), drive.scenario(buffer_kb, "minrtt", {}), ("threshold",))


def page(root: Path, drives: list[Drive]) -> Iterator[str]:
    """Median goodput, and each drive compared with MinRTT and the user's order unless these carried nothing."""
    head = ["by", "median, Mbit/s", "ratio to `minrtt`", "least", "drives below 0.97", "ratio to `user`"]
    for buffer_kb in BUFFERS_KB:
        goodput = [_goodput(root, drive, buffer_kb) for drive in drives]
        yield f"\nSend buffer {buffer_text(buffer_kb)}, {len(drives)} drives:\n"
        lines: list[list[str]] = []
        for by in BY:
            ratios, to_users = ([of[by] / of[to] for of in goodput if of[to]] for to in ("minrtt", "user"))
            figures = [[of[by] for of in goodput], ratios, [min(ratios, default=0.0)] * bool(ratios), to_users]
            first, ratio, least, to_user = (f"{median(each):.2f}" if each else DASH for each in figures)
            lines.append([f"`{by}`", first, ratio, least, str(sum(ratio < 0.97 for ratio in ratios)), to_user])
        yield from table(head, lines, compact=True)


def _goodput(root: Path, drive: Drive, buffer_kb: int) -> dict[str, float]:
    found: dict[str, float] = {}
    for kind in ("trees", "minrtt"):
        for run in RunFolder.open(root / name(drive, f"{buffer_kb}-{kind}")).runs:
            found["minrtt" if kind == "minrtt" else run.strategy] = run.metrics.get(GOODPUT, 0.0)
    return found
