import tomllib

import polars as pl

from crosslane_lab.papers.camera import campaign, page
from crosslane_lab.papers.roads.campaign import Drive

DRIVE = Drive("UL_atnt_verizon_4_run_25.csv", 111.5, (10.0, 30.0), "verizon")


def test_a_scenario_has_both_operators_or_one_and_a_rate_that_adapts_or_not() -> None:
    both = tomllib.loads(campaign.scenario(DRIVE, campaign.Rate(5, 20), campaign.BOTH))
    assert both["service"]["prefer"] == ["verizon", "att"]
    assert [path["name"] for path in both["cellular"]] == ["verizon", "att"]
    assert (both["traffic"]["object_bytes"], both["traffic"]["min_object_bytes"]) == (100_000, 25_000)
    one = tomllib.loads(campaign.scenario(DRIVE, campaign.Rate(5, 5), "att"))
    assert [path["name"] for path in one["cellular"]] == ["att"]
    assert "min_object_bytes" not in one["traffic"]


def test_the_page_compares_with_the_better_operator_of_each_drive() -> None:
    missed = {
        ("both", "deadline"): (0.1, 0.3),
        ("att", "deadline"): (0.2, 0.9),
        ("verizon", "deadline"): (0.8, 0.4),
        ("both", "kernel"): (0.5, 0.5),
        ("att", "single"): (0.9, 0.9),
        ("verizon", "single"): (0.9, 0.8),
    }
    found = page.page(
        pl.DataFrame(
            [
                {
                    "drive": f"{drive}",
                    "rate": rate.name,
                    "place": place,
                    "strategy": strategy,
                    "missed": share,
                    "undroppable": share / 2,
                    "mbit_s": 4.0,
                    "overhead": 0.05,
                }
                for (place, strategy), shares in missed.items()
                for drive, share in enumerate(shares)
                for rate in campaign.RATES
            ]
        )
    )
    assert "| both operators, `deadline` | 20.0 | 10.0 | 4.0 | 5.0 |" in found
    assert "| the better one alone, `deadline` | 30.0 | 15.0 | 4.0 | 5.0 |" in found
    assert "| the better one alone, plain TCP | 85.0 | 42.5 | 4.0 | 5.0 |" in found
    assert "0.67 of the better operator alone by the same engine (target: 0.6, **not reached**)" in found
    assert "in 1 of 2 drives" in found


def test_of_two_operators_that_miss_as_many_the_first_by_name_is_taken() -> None:
    frame = pl.DataFrame(
        {
            "drive": ["1", "1"],
            "rate": ["5", "5"],
            "place": ["verizon", "att"],
            "strategy": ["single", "single"],
            "missed": [0.5, 0.5],
        }
    )
    for given in (frame, frame.reverse()):
        assert campaign.alone(given, "single")["place"].to_list() == ["att"]
