"""The values of JSON files that the lab reads."""

import json
from typing import Any, TypeGuard

MOST = 1e18
"""No quantity of a drive is greater; what is could not be drawn."""


def loads(text: str) -> Any:  # noqa: ANN401
    """The JSON value; raises `ValueError` also if it is nested too deeply or has text that is not Unicode."""
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if "\\ud" in text.lower():
        json.dumps(value, ensure_ascii=False).encode()
    return value


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether a JSON value is a number, and one that a drive can have."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= MOST


def text_of(data: dict[str, Any], key: str) -> str:
    """A key's text; raises `KeyError` or `TypeError`."""
    if not isinstance(data[key], str):
        raise TypeError(f"`{key}` is not text")
    return data[key]


def number_of(data: dict[str, Any], key: str) -> float:
    """A key's number; raises `KeyError` or `TypeError`."""
    if not is_number(data[key]):
        raise TypeError(f"`{key}` is not a number, or too great")
    return float(data[key])


def optional_number(data: dict[str, Any], key: str) -> float | None:
    """A key's number; None if it is absent or null; raises `TypeError`."""
    return None if data.get(key) is None else number_of(data, key)


def span_of(pair: Any, key: str) -> tuple[float, float]:  # noqa: ANN401
    """A pair of numbers; raises `TypeError`."""
    if not isinstance(pair, list) or len(pair) != 2 or not all(map(is_number, pair)):
        raise TypeError(f"`{key}` has what is not a pair of numbers")
    return float(pair[0]), float(pair[1])


def list_of(data: dict[str, Any], key: str, kind: type) -> list[Any]:
    """A key's list of values of a kind; raises `KeyError` or `TypeError`."""
    values = data[key]
    if not isinstance(values, list) or not all(isinstance(value, kind) for value in values):
        raise TypeError(f"`{key}` is not a list of {_KINDS[kind]}")
    return values


_KINDS = {str: "text", dict: "objects", int: "whole numbers"}
