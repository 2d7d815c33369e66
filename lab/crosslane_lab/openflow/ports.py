"""The configuration: which port of the switch leads to which roadside unit."""

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

from crosslane_lab.errors import LabError, first_line, unreadable

_KEYS = ("unit", "port", "mac")
_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")


@dataclass(frozen=True)
class Port:
    """The way to one unit: the name of a port of the switch, and the unit's MAC address behind it."""

    name: str
    mac: str


def read(path: Path) -> dict[str, Port]:
    """The port of each unit, from a TOML file with one table `[[port]]` for each."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise unreadable(path, first_line(error), "write one table [[port]] for each unit") from error
    if set(document) != {"port"} or not isinstance(document["port"], list):
        raise unreadable(path, "it must hold tables [[port]] and nothing else", "write one for each unit")
    ports: dict[str, Port] = {}
    for number, table in enumerate(document["port"], 1):
        unit, port = _port(path, f"[[port]] number {number}", table)
        if unit in ports:
            raise unreadable(path, f'unit "{unit}" has two ports', "remove one of the two tables")
        ports[unit] = port
    return ports


def _port(path: Path, place: str, table: object) -> tuple[str, Port]:
    if not isinstance(table, dict) or set(table) != set(_KEYS) or not all(_is_name(table[key]) for key in _KEYS):
        raise _wrong(path, place, "needs the keys unit, port and mac, each a text, and no others")
    mac = table["mac"].lower()
    if not _MAC.fullmatch(mac) or int(mac[:2], 16) & 1:
        raise _wrong(path, place, f'mac "{mac}" is no unicast MAC address as "02:00:00:00:00:01"')
    return table["unit"], Port(table["port"], mac)


def _is_name(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _wrong(path: Path, place: str, cause: str) -> LabError:
    return unreadable(path, f"{place}: {cause}", "correct it")
