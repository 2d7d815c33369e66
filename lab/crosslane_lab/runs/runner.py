"""Runs `crosslane`: only the comparisons whose run folder is missing or stale."""

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from crosslane_lab.errors import LabError, first_line, unreadable
from crosslane_lab.output import write_file
from crosslane_lab.progress import Progress
from crosslane_lab.runs.tables import is_whole

_OTHER_FILE = re.compile(r'"((?:\.\./)+[^"]*)"')
"""A file that a scenario names relative to its own folder."""
_NAMED_FILE = re.compile(r'"(data:)?([^"#\s]+\.\w+)(?:#[^"]*)?"')
"""A file that a scenario names: a recording, a trace or a tree."""
_SUMMARY, _MADE_FROM = "summary.json", "made-from.json"


@dataclass(frozen=True)
class Comparison:
    """One run folder: a scenario, strategies and seeds. `keep` names the records that stay; empty: none."""

    name: str
    scenario: str
    strategies: tuple[str, ...]
    seeds: str = "1"
    engine: str = "simulator"
    keep: tuple[str, ...] = ()

    @property
    def is_drive(self) -> bool:
        """Whether it is on the kernel."""
        return self.engine == "kernel"


def default_program() -> Path:
    """The program that was built in this folder, or else that of this Python environment (a wheel may have it)."""
    built, installed = Path("target/release/crosslane"), Path(sys.executable).with_name("crosslane")
    return installed if installed.exists() and not built.exists() else built


def add_program(parser: argparse.ArgumentParser) -> None:
    """Add the option that names the program."""
    parser.add_argument(
        "--program", type=Path, default=default_program(), metavar="FILE", help="(default: %(default)s)"
    )


def add_jobs(parser: argparse.ArgumentParser) -> None:
    """Add the number of runs at once."""
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="runs at once (default: %(default)s)")


@dataclass(frozen=True)
class Runner:
    """The program, and the folder below which the run folders are; `data` is passed on to the program.

    So many simulations run at once as `parallel` says; 0: one comparison after another, each with as many as the
    program chooses. Drives on the kernel, which share its processors, are never at once.
    """

    program: Path | str
    root: Path
    data: Path | None = None
    parallel: int = 0

    @cached_property
    def version(self) -> str:
        """The program's version, with a digest that differs between builds."""
        text = self.call(["--version"], "asking for its version").strip()
        file = shutil.which(self.program)
        digest = hashlib.sha256(Path(file).read_bytes()).hexdigest() if file else ""
        return f"{text} {digest[:16]}"

    def call(self, arguments: Sequence[str], activity: str, show_messages: bool = False) -> str:
        """The standard output of the program; raises `LabError` if it does not start or fails.

        With `show_messages` its progress and errors go to the user, else the last line of them is in the error.
        """
        stderr = None if show_messages else subprocess.PIPE
        try:
            done = subprocess.run(
                [str(self.program), *arguments],
                stdout=subprocess.PIPE,
                stderr=stderr,
                encoding="utf-8",
                errors="replace",
                check=False,
            )
        except OSError as error:
            remedy = "`make build`, or name it with --program"
            raise LabError(f"while starting {self.program}: {first_line(error)}; {remedy}") from error
        if done.returncode:
            failed = (
                "it failed; see its message above" if show_messages else f"exit code {done.returncode}, no message"
            )
            lines = (done.stderr or "").strip().splitlines() or [failed]
            raise LabError(f"while {activity}: {lines[-1]}")
        return done.stdout

    def run(self, comparisons: Iterable[Comparison]) -> None:
        """Run what is missing or stale, drives on the kernel last."""
        missing = [comparison for comparison in comparisons if not self.is_current(comparison)]
        progress, done = Progress(), 0

        def run_one(comparison: Comparison) -> None:
            nonlocal done
            done += 1
            progress(f"running {comparison.name} ({done} of {len(missing)})")
            self._run(comparison)

        try:
            with ThreadPoolExecutor(max(self.parallel, 1)) as pool:
                list(pool.map(run_one, (each for each in missing if not each.is_drive)))
            for each in missing:
                if each.is_drive:
                    run_one(each)
        finally:
            progress.done()

    def is_current(self, comparison: Comparison) -> bool:
        """Whether the run folder is of this scenario, its files, engine, strategies, seeds and program, and whole.

        It is not whole if a record was cut or is gone.
        """
        folder = self.root / comparison.name
        try:
            summary = json.loads((folder / _SUMMARY).read_text(encoding="utf-8"))
            made = json.loads((folder / _MADE_FROM).read_text(encoding="utf-8"))
            kept = all((folder / record).is_file() for record in made.pop("records", ()))
            whole = all(is_whole(record) for record in folder.glob("runs/*/*.arrow"))
            interrupted = summary.get("interrupted")
        except (OSError, ValueError, AttributeError, TypeError):
            return False
        return kept and whole and not interrupted and made == self._made_from(comparison)

    def _made_from(self, comparison: Comparison) -> dict[str, object]:
        """What a run folder depends on, as it is read from JSON."""
        made = {"program": self.version} | vars(comparison)
        files = self._files(comparison)
        return json.loads(json.dumps(made | {"files": files} if files else made))

    def _files(self, comparison: Comparison) -> dict[str, str]:
        """Digests of the files that the scenario names, as far as they exist."""
        folder = self._scenario_file(comparison).parent
        found: dict[str, str] = {}
        for of_data, name in _NAMED_FILE.findall(comparison.scenario):
            file = (self.data or Path() if of_data else folder) / name
            if file.is_file():
                state = file.stat()
                found[f"{of_data}{name}"] = _digest(file, state.st_mtime_ns, state.st_size)
        return found

    def _scenario_file(self, comparison: Comparison) -> Path:
        return self.root / "scenarios" / f"{comparison.name}.toml"

    def _run(self, comparison: Comparison) -> None:
        folder, drives = self.root / comparison.name, comparison.is_drive
        file, made = self._scenario_file(comparison), self._made_from(comparison)
        file.parent.mkdir(parents=True, exist_ok=True)
        write_file(file, comparison.scenario)
        shutil.rmtree(folder, ignore_errors=True)
        which = "windows" if "windows" in comparison.keep else "all" if comparison.keep else "none"
        records = [] if drives else ["--records", which]
        records += ["--jobs", "1"] if drives or self.parallel else []
        arguments = ["--strategy", ",".join(comparison.strategies), "--seed", comparison.seeds, *records]
        arguments += ["--data", str(self.data)] if self.data else []
        command = "drive" if drives else "simulate"
        self.call([command, str(file), *arguments, "--out", str(folder)], f"running {file}", show_messages=drives)
        for record in folder.glob("runs/*/*"):
            if record.stem not in comparison.keep and not drives:
                record.unlink()
        kept = sorted(record for record in folder.glob("runs/*/*") if record.stem in comparison.keep)
        made["records"] = [record.relative_to(folder).as_posix() for record in kept]
        write_file(folder / _MADE_FROM, json.dumps(made, indent=1))


@cache
def _digest(file: Path, mtime_ns: int, size: int) -> str:
    """The digest of a file's content, which is read again after a change of its time or size."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def scenario(file: Path, edits: Mapping[str, str] | None = None, more: str = "") -> str:
    """The text of a scenario with other values of some keys, `more` appended, and absolute names of other files.

    Of `name` and `duration_s` the first is changed, which is the scenario's; of another key every one.
    Raises `LabError` if the file or a key is missing.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise unreadable(
            file, first_line(error), "name the folder of scenarios of the project with --scenarios"
        ) from error
    for key, value in (edits or {}).items():
        first_only = int(key in ("name", "duration_s"))
        text, count = re.subn(rf"^{key} = [^#\n]*", f"{key} = {value} ", text, count=first_only, flags=re.M)
        if not count:
            raise unreadable(file, f"`{key}` is missing", "restore the shipped file")
    text = re.sub(r" +$", "", text, flags=re.M)
    return _OTHER_FILE.sub(lambda found: f'"{(file.parent / found[1]).resolve()}"', text) + more
