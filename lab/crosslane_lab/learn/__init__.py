"""A learned order of two paths: data from simulated drives, their analysis, and a tree (docs/guide/learning.md)."""

from pathlib import Path
from typing import Any

from crosslane_lab.errors import LabError
from crosslane_lab.output import write_file


def need(module: str) -> Any:  # noqa: ANN401
    """A module of the extra `learn`; raises `LabError` if it is not installed."""
    from importlib import import_module

    try:
        return import_module(module)
    except ImportError as error:
        remedy = "`pip install -e 'lab[learn]'`"
        raise LabError(f"while loading {module.split('.')[0]}: it is not installed; {remedy}") from error


def write(file: Path, text: str) -> None:
    """Write a text file, in a folder that is made if it is missing."""
    file.parent.mkdir(parents=True, exist_ok=True)
    write_file(file, text)
