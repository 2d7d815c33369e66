"""The requests of the roadside controller: one JSON object a line, each answered by one.

`{"id":17,"home":"10.99.0.7/32","unit":"rsu1","next_hop":"10.81.0.11"}` leads a home address to a unit, and
`"unit":null` withdraws it. `next_hop` is for routers: a switch needs the MAC address of the unit, which is in the
configuration.
"""

import json
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address
from typing import Any

MAX_LINE = 4096
"""The maximum length of a line, in bytes."""


@dataclass(frozen=True)
class Redirect:
    """One request: lead `home` to `unit` (None: no longer to any)."""

    id: int
    home: IPv4Address
    unit: str | None


class RequestError(Exception):
    """A request that cannot be carried out: one sentence, and the id of the request if it has one."""

    def __init__(self, sentence: str, request_id: int | None = None) -> None:
        super().__init__(sentence)
        self.id = request_id


def parse(line: bytes) -> Redirect:
    """The request in a line."""
    try:
        request = json.loads(line)
    except (ValueError, RecursionError):
        request = None
    if not isinstance(request, dict):
        raise RequestError("the request is no JSON object on one line; send one")
    request_id = request.get("id")
    if not isinstance(request_id, int) or isinstance(request_id, bool):
        raise RequestError('the request has no "id"; send a number')
    unit = request.get("unit", "")
    if unit is not None and (not isinstance(unit, str) or unit == ""):
        raise RequestError('the request has no "unit"; send its name, or null to withdraw', request_id)
    return Redirect(request_id, _home(request.get("home"), request_id), unit)


def answer(request_id: int | None, error: str | None = None) -> bytes:
    """The line that answers a request: done, or the error."""
    result: dict[str, Any] = {"done": True} if error is None else {"error": error}
    return json.dumps({"id": request_id, **result}, separators=(",", ":")).encode() + b"\n"


def _home(home: object, request_id: int) -> IPv4Address:
    try:
        address, length = str(home).split("/")
        if length == "32":
            return IPv4Address(address)
    except (ValueError, AddressValueError):
        pass
    raise RequestError(f'home {json.dumps(home)} is no IPv4 address as "10.99.0.7/32"; correct it', request_id)
