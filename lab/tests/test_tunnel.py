"""The table of traffic through the tunnel."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import resolved_scenario

from crosslane_lab.errors import LabError
from crosslane_lab.pages import tunnel
from crosslane_lab.runs.folder import RunFolder


def folder(
    root: Path, name: str, metrics: dict[str, dict[str, float]], kind: str = "bulk", congestion: str = "cubic"
) -> RunFolder:
    root.mkdir(parents=True)
    scenario = resolved_scenario.of([], {}, {"kind": kind}, list(metrics), congestion=congestion)
    (root / "scenario.json").write_text(json.dumps(scenario))
    runs = [
        {"strategy": strategy, "seed": seed, "valid": seed < 3, "metrics": {k: v * seed for k, v in values.items()}}
        for strategy, values in metrics.items()
        for seed in (1, 2, 3)
    ]
    summary = {"schema": 1, "scenario": name, "engine": "kernel", "duration_s": 20.0, "seeds": [1, 2, 3]}
    (root / "summary.json").write_text(json.dumps(summary | {"strategies": list(metrics), "runs": runs}))
    return RunFolder.open(root)


def goodput(kernel: float, encrypted: float) -> dict[str, dict[str, float]]:
    return {"kernel": {"goodput_mbit_s": kernel}, "tunnel": {"goodput_mbit_s": encrypted}}


def test_a_share_of_the_kernels_goodput_is_compared_with_its_target(tmp_path: Path) -> None:
    near = folder(tmp_path / "a", "tunnel-equal-60-60", goodput(100, 96))
    far = folder(tmp_path / "b", "tunnel-equal-60-60", goodput(100, 94))
    encrypted, unencrypted = tunnel.targets(near)
    assert (encrypted.value(near), encrypted.met(near)) == (pytest.approx(0.96), True)
    assert encrypted.met(far) is False
    assert unencrypted.met(near) is None, "tunnel-plain was not run"


def test_losses_pauses_and_cpu_time_have_upper_limits(tmp_path: Path) -> None:
    stream = {"tunnel": {"lost_share": 0.0004, "reordered_share": 0.01, "goodput_mbit_s": 60.0}}
    run = folder(tmp_path / "a", "tunnel-udp-stream", stream, "stream")
    assert [target.met(run) for target in tunnel.targets(run)] == [True, False]


def test_wireguard_is_listed_with_its_version_or_reported_as_not_driven(tmp_path: Path) -> None:
    metrics = {"tunnel": {"goodput_mbit_s": 3000.0}, "wireguard-go": {"goodput_mbit_s": 2000.0}}
    compared = folder(tmp_path / "a", "tunnel-unshaped", metrics)
    assert [target.met(compared) for target in tunnel.targets(compared)] == [True, True, None]
    (tmp_path / "a" / "versions.json").write_text('{"wireguard-go": "wireguard-go v0.0.20250522"}')
    page = tunnel.page([RunFolder.open(tmp_path / "a")])
    assert "`tunnel`: goodput_mbit_s at least 100 % of `wireguard-go` | 150\u00a0% | yes |" in page
    assert "Over one path: wireguard-go v0.0.20250522." in page
    slower = folder(tmp_path / "b", "tunnel-unshaped", metrics | {"wireguard-go": {"goodput_mbit_s": 3100.0}})
    assert tunnel.targets(slower)[1].met(slower) is False
    without = folder(tmp_path / "c", "tunnel-unshaped", {"tunnel": {"goodput_mbit_s": 3000.0}})
    page = tunnel.page([without])
    assert "`wireguard-go` was not driven: it is not installed (`apt-get install wireguard-go`)." in page


def test_the_page_has_a_line_for_each_target_and_a_table_for_each_folder(tmp_path: Path) -> None:
    runs = [
        folder(tmp_path / "a", "tunnel-equal-60-60", goodput(100, 96)),
        folder(tmp_path / "b", "tunnel-equal-60-60", goodput(100, 90), congestion="bbr"),
        folder(tmp_path / "c", "tunnel-udp-stream", {"tunnel": {"lost_share": 0.0}}, "stream"),
    ]
    page = tunnel.page(runs)
    assert "Targets met: 2 of 3." in page
    assert (
        "| `equal-60-60` | cubic | `tunnel`: goodput_mbit_s at least 95 % of `kernel` | 96\u00a0% | yes |" in page
    )
    assert (
        "| `equal-60-60` | bbr | `tunnel`: goodput_mbit_s at least 95 % of `kernel` | 90\u00a0% | **no** |" in page
    )
    assert "| not measured |" in page
    assert "## `tunnel-udp-stream`, UDP" in page
    assert "| `tunnel` | 2 | 144 (96–192) | 96.0 % |" in page, "an invalid run does not count"
    assert tunnel.page(runs[::-1]) == page


def test_every_target_has_its_scenario() -> None:
    scenarios = Path(__file__).parents[2] / "scenarios" / "tunnel"
    names = {f"tunnel-{file.stem}" for file in scenarios.glob("*.toml")}
    assert set(tunnel.TARGETS) <= names


def test_runs_without_a_tunnel_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="no run uses the tunnel"):
        tunnel.page([folder(tmp_path / "a", "aggregate", {"kernel": {"goodput_mbit_s": 1.0}})])


def test_the_page_names_the_programs_that_made_its_runs(tmp_path: Path) -> None:
    runs = [folder(tmp_path / name, "tunnel-equal-60-60", goodput(100, 96)) for name in "abc"]
    made = [
        replace(run, versions={"crosslane": f"0.1.0+{name}"})
        for run, name in zip(runs, ("2b", "1a", "2b"), strict=True)
    ]
    assert "\n\nMade by crosslane 0.1.0+1a, 0.1.0+2b.\n\n" in tunnel.page(made)
    assert "\n\nMade by crosslane 0.1.0+2b, unknown.\n\n" in tunnel.page([made[0], runs[1]])
