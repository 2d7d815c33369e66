"""Fits the radio models of access links to public recordings, with their errors."""

import json
from pathlib import Path

import polars as pl

from crosslane_lab.calibrate import feup_wifi, uccmisl_5g
from crosslane_lab.errors import first_line, unreadable

DATA_SETS = {"feup-wifi": feup_wifi.calibrate, "uccmisl-5g": uccmisl_5g.calibrate}

REMEDY = "restore the published files of the data set"


def text(data_set: str, data: Path) -> str:
    """Parameters and errors as JSON, a function of the data only."""
    try:
        fitted = DATA_SETS[data_set](data)
    except (
        ArithmeticError,
        AssertionError,
        LookupError,
        TypeError,
        ValueError,
        pl.exceptions.PolarsError,
    ) as error:
        cause = f"nothing can be fitted to its rows ({first_line(error)})"
        raise unreadable(data / data_set, cause, REMEDY) from error
    return json.dumps(fitted, indent=2, ensure_ascii=False) + "\n"
