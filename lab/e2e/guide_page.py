"""The code blocks of a guide: which commands they have, which files, and which output they show."""

import re
from dataclasses import dataclass, field
from pathlib import Path

_PROMPT = re.compile(r"^(?:(?P<host>[a-z0-9]+)?[#$])\s+(?P<command>.+)$")
_NOT_RUN = re.compile(r"<!-- not run: (?P<reason>[^>]+) -->\s*$")
_RUN = re.compile(
    r"<!-- (?:(?P<slow>slow)|(?P<order>in any order))?(?:, )?(?:with (?P<changes>[^:>]+))?: [^>]+ -->\s*$"
)
_FILE = re.compile(r"(?P<before>[^.`]*)`(?P<path>/etc/crosslane/[a-z]+\.toml)`")
_ON = re.compile(r"On (?:the|each) (?P<host>\w+)")
_DURATION = re.compile(r"(?<![\w.])\d+(?:\.\d+)? (?:ms|s|min|h|d)(?: \d+ (?:min|h))?(?!\w)")
_SIZE = re.compile(r"(?<![\w.])\d+(?:\.\d+)? [kMG]?B(?!\w)")
_NUMBER = re.compile(r"(?<![A-Za-z\d.-])(?:-?\d+(?:\.\d+)?|-)(?![\w-])")
_COMMIT = re.compile(r"(?<=\d)\+[0-9a-f]{8}(?:\.dirty)?(?![\w.])")
_COMMENT = re.compile(r"\s+#\s.*$")
COMMANDS = ("", "sh")
"""Languages of blocks that are commands; the others are files, parts of files, or drawings."""


@dataclass
class Step:
    """A command, and what the page shows of its output."""

    host: str | None
    command: str
    line: int
    expected: list[str] = field(default_factory=list)


@dataclass
class Block:
    """A code block."""

    language: str
    line: int
    text: list[str]
    not_run: str | None
    is_slow: bool
    """Whether it is executed on request only."""
    in_order: bool
    """Whether the lines of its outputs are printed in this order; else only their words are compared."""
    changes: list[tuple[str, str]]
    """What the test executes in place of a part of a command, so that it takes less time."""
    file: tuple[str | None, str] | None
    """Host and path of a file that the text before it names."""

    @property
    def steps(self) -> list[Step]:
        """Its commands: the lines with a prompt, the others being output, or all lines where none has a prompt."""
        text = self.text
        for new, old in self.changes:
            text = [re.sub(rf"{re.escape(old)}(?!\S)", new, line) for line in text]
        prompts = [_PROMPT.match(line) for line in text]
        steps: list[Step] = []
        for number, (line, prompt) in enumerate(zip(text, prompts, strict=True), start=self.line + 1):
            if prompt:
                steps.append(Step(prompt["host"], _COMMENT.sub("", prompt["command"]), number))
            elif any(prompts):
                if steps and line.strip():
                    steps[-1].expected.append(line)
            elif line.strip():
                steps.append(Step(None, _COMMENT.sub("", line), number))
        return steps


def blocks(page: Path) -> list[Block]:
    """All code blocks of a page."""
    found: list[Block] = []
    prose: list[str] = []
    lines = iter(enumerate(page.read_text(encoding="utf-8").splitlines(), start=1))
    for number, line in lines:
        if not line.startswith("```"):
            prose.append(line)
            continue
        text = []
        for _, inside in lines:
            if inside.startswith("```"):
                break
            text.append(inside)
        before = " ".join(prose)
        mark = _NOT_RUN.search(before)
        run = _RUN.search(before)
        changes = [change.split(" for ") for change in (run["changes"] or "").split(" and ")] if run else []
        named = list(_FILE.finditer(before))
        host = _ON.search(named[-1]["before"]) if named else None
        file = (host["host"] if host else None, named[-1]["path"]) if named else None
        found.append(
            Block(
                language=line.removeprefix("```").strip(),
                line=number,
                text=text,
                not_run=mark["reason"] if mark else None,
                is_slow=bool(run and run["slow"]),
                in_order=not (run and run["order"]),
                changes=[(change[0], change[1]) for change in changes if len(change) == 2],
                file=file,
            )
        )
        prose = []
    return found


def masked(line: str) -> str:
    """The line with every figure, time and size replaced by its kind, and with single spaces.

    Which of two paths has the lower delay is such a figure.
    """
    line = line.replace("it has the lowest delay", "0 ms later than the lowest-delay path")
    line = _SIZE.sub("N", _DURATION.sub("T", _COMMIT.sub("", line)))
    return " ".join(_NUMBER.sub("N", line).split())


def differences(expected: list[str], actual: str, in_order: bool = True) -> list[str]:
    """The documented lines that the program did not print, in this order, apart from figures."""
    printed = [masked(line) for line in actual.splitlines()]
    if not in_order:
        words = set(" ".join(printed).split())
        return [line for line in expected if not words.issuperset(masked(line).split())]
    following = iter(printed)
    return [line for line in expected if masked(line) not in following]
