"""The columns that a table from outside must have."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from crosslane_lab.errors import unreadable


def check(
    file: Path, found: Mapping[str, Any], numbers: Collection[str], texts: Collection[str], remedy: str
) -> None:
    """Raise `LabError` unless there are these columns of numbers and of text; an empty column is both."""
    missing = sorted({*numbers, *texts} - set(found))
    if missing:
        columns = f"the column {missing[0]} is" if len(missing) == 1 else f"the columns {', '.join(missing)} are"
        raise unreadable(file, f"{columns} missing", remedy)
    for name in (*numbers, *texts):
        kind = found[name]
        fits = is_text(kind) if name in texts else kind.is_numeric()
        if kind != pl.Null and not fits:
            raise unreadable(file, f"`{name}` is {kind}, not {'text' if name in texts else 'numbers'}", remedy)


def is_text(kind: Any) -> bool:  # noqa: ANN401
    """Whether a column of this type has text."""
    return kind == pl.String or isinstance(kind, pl.Categorical | pl.Enum)
