"""Fits the radio models of access links to public recordings, with their errors."""

import json
from pathlib import Path

from crosslane_lab.calibrate import feup_wifi, uccmisl_5g

DATA_SETS = {"feup-wifi": feup_wifi.calibrate, "uccmisl-5g": uccmisl_5g.calibrate}


def text(data_set: str, data: Path) -> str:
    """Parameters and errors as JSON, a function of the data only."""
    return json.dumps(DATA_SETS[data_set](data), indent=2, ensure_ascii=False) + "\n"
