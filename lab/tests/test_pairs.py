import tomllib

import polars as pl

from crosslane_lab.papers.pairs import campaign
from crosslane_lab.papers.pairs import page as pairs_page


def test_a_lot_is_the_same_each_time_and_differs_from_others() -> None:
    assert campaign.pairs(1) == campaign.pairs(1) != campaign.pairs(2)
    first = campaign.pairs(1)[18]
    assert first[0].words == "6.82 Mbit/s, 14 ms, 1.68 % lost, jitter 18 ms"
    for pair in campaign.pairs(7):
        for path in pair:
            assert 2 <= path.rate <= 200
            assert 2 <= path.delay <= 80
            assert 0 <= path.loss <= 0.02
            assert 0 <= path.jitter <= 20


def test_a_scenario_has_both_paths_and_each_alone() -> None:
    for traffic in campaign.TRAFFIC:
        found = tomllib.loads(campaign.scenario(1, 18, campaign.pairs(1)[18], traffic))
        assert [path["rate_mbit_s"] for path in found["cellular"]] == [6.82, 68.7]
        assert found["cellular"][0]["jitter"] == {"most_ms": 18}
        assert {each["name"] for each in found["strategy"]} <= set(campaign.STRATEGIES[traffic])


def rows(traffic: str, values: dict[str, float]) -> list[dict[str, object]]:
    return [
        {
            "lot": 1,
            "traffic": traffic,
            "pair": 0,
            "strategy": strategy,
            "goodput_mbit_s": value,
            "p99_ms": value,
            "worst_ms": value,
        }
        for strategy, value in values.items()
    ]


def test_a_strategy_is_compared_with_the_better_path() -> None:
    bulk = pl.DataFrame(rows("bulk-cubic", {"single-a": 10.0, "single-b": 40.0, "kernel": 44.0, "tunnel": 38.12}))
    found = pairs_page.compared(bulk, "bulk-cubic")
    assert dict(found.select("strategy", pl.col("value").round(3)).rows()) == {"kernel": 1.1, "tunnel": 1.0}
    messages = pl.DataFrame(rows("messages", {"single-a": 10.0, "single-b": 40.0, "tunnel": 18.0}))
    assert pairs_page.compared(messages, "messages")["value"].to_list() == [8.0]
