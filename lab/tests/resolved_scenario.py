"""Resolved scenarios, as `scenario.json` has them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any


def of(
    paths: list[dict[str, Any]],
    service: dict[str, Any],
    traffic: dict[str, Any],
    strategies: list[str],
    **more: object,
) -> dict[str, Any]:
    """The keys of `scenario.json` that the lab reads, of others the defaults."""
    baselines = ("single", "kernel", "kernel-tuned")
    kinds = {name: "baseline" if name in baselines else "agent" for name in strategies}
    return {
        "congestion": "cubic",
        "seeds": [1],
        "strategies": [{"name": name, "base": name, "kind": kind} for name, kind in kinds.items()],
        "paths": [{"outages_s": []} | path for path in paths],
        "roadside_units": [],
        "fleet": None,
        "service": {"mode": "aggregate", "prefer": [], "cost_per_gb": {}} | service,
        "traffic": {"protocol": "tcp", "direction": "up"} | traffic,
        "expect": [],
    } | more


def at_most(strategy: str, metric: str, limit: float) -> dict[str, Any]:
    """An expectation."""
    return {"strategy": strategy, "metric": metric, "bound": "at_most", "limit": limit, "of_strategy": None}


def change(root: Path, edit: Callable[[dict[str, Any]], Any]) -> None:
    """Change a resolved scenario in place."""
    file = root / "scenario.json"
    data = json.loads(file.read_text())
    edit(data)
    file.write_text(json.dumps(data))
