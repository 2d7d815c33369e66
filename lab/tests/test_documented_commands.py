"""Every `crosslane-lab` command line of the documentation is accepted by the program."""

import re
import shlex
from pathlib import Path

import pytest

from crosslane_lab.cli import _parser

ROOT = Path(__file__).parents[2]
FOLDERS = (".", "docs", "docs/guide", "docs/reference", "docs/design", "docs/results", "lab", "data")
_COMMAND = re.compile(r"^(?:\.venv/bin/)?crosslane-lab +(?P<arguments>[^#]*)")


def _documented() -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for page in sorted(page for folder in FOLDERS for page in (ROOT / folder).glob("*.md")):
        blocks = page.read_text(encoding="utf-8").split("```")[1::2]
        lines = [line for block in blocks for line in block.splitlines()]
        commands = [command["arguments"] for line in lines if (command := _COMMAND.match(line))]
        found += [(str(page.relative_to(ROOT)), command) for command in commands]
    return found


def test_commands_are_found() -> None:
    assert len(_documented()) > 8


@pytest.mark.parametrize(("page", "arguments"), _documented())
def test_the_program_accepts_the_documented_command(page: str, arguments: str) -> None:
    try:
        _parser().parse_args(shlex.split(arguments))
    except SystemExit:
        pytest.fail(f"{page}: crosslane-lab {arguments}")
