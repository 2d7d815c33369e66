"""The report page."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import polars as pl
import pytest
import synthetic
from synthetic import Drive, Plan

from crosslane_lab.figures import ALL
from crosslane_lab.pages import results
from crosslane_lab.render.svg import png
from crosslane_lab.report import page as report
from crosslane_lab.runs.folder import RunFolder
from crosslane_lab.runs.tables import TABLES


@pytest.fixture(scope="module")
def html(left: RunFolder) -> str:
    return report.page(left)


class Page(HTMLParser):
    """Collects ids, references and figures of a page, and checks that every element is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.fetched: list[str] = []
        self.pictures: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag not in ("meta", "br", "link", "img"):
            self.open.append(tag)
        self.ids += [given["id"]] if given.get("id") else []  # pyright: ignore
        self.fetched += [given[name] or "" for name in ("src", "href", "xlink:href") if name in given]
        if tag == "svg":
            self.pictures.append(given.get("aria-label") or "")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def parsed(html: str) -> Page:
    page = Page()
    page.feed(html)
    assert page.open == []
    return page


def test_the_page_fetches_nothing(html: str) -> None:
    assert all(ref.startswith(("#", "data:")) for ref in parsed(html).fetched)
    assert not re.search(r"https?://", html)
    assert "<script" not in html
    assert "@import" not in html


def test_ids_are_unique_and_references_resolve(html: str) -> None:
    page = parsed(html)
    assert len(page.ids) == len(set(page.ids))
    referenced = {ref[1:] for ref in page.fetched if ref.startswith("#")} | set(
        re.findall(r"url\(#([^)]+)\)", html)
    )
    assert referenced <= set(page.ids)


def test_every_figure_has_a_text_for_screen_readers(html: str) -> None:
    pictures = parsed(html).pictures
    assert len(pictures) == 4
    assert all(len(alt) > 80 for alt in pictures)


def test_figures_follow_the_theme(html: str) -> None:
    svg = html[html.index("<svg") : html.rindex("</svg>")]
    assert "var(--ink)" in svg
    assert "#1f2328" not in svg


def test_the_table_gives_median_and_range_with_the_best_marked(left: RunFolder) -> None:
    row = next(row for row in report.metric_rows(left) if row.name == "delivery_delay_ms.max")
    texts = [text.replace("\u00a0", " ") for text, _ in row.cells]
    assert texts[0] == "903 ms (902–904)"
    assert [best for _, best in row.cells] == [False, False, True]


def test_metrics_are_in_the_documented_order(left: RunFolder) -> None:
    names = [row.name for row in report.metric_rows(left)]
    assert names[0] == "delivery_delay_ms.p50"
    assert names.index("path.its-g5.share") < names.index("overhead_share") < names.index("lateness_us.p99")


def test_expectations_have_verdicts(html: str) -> None:
    assert re.search(r'at most 60</th>.*?class="ok">ok<', html)
    assert re.search(r'at most 1</th>.*?class="not">not ok<', html)


def test_an_expectation_on_a_strategy_that_was_not_run_is_neither_met_nor_missed(drive: Path) -> None:
    synthetic.change_summary(drive, expect=[{"text": "hapanchak: gap_ms.max at most 1", "ok": None, "value": None}])
    folder = RunFolder.open(drive)
    assert 'class="note">not run<' in report.page(folder)
    assert "Targets met: 0 of 1 (1 not run)." in results.page([folder])


def test_decisions_are_listed_with_their_reason(html: str) -> None:
    assert "13.200 s" in html
    assert "active → closed" in html
    assert "the smoothed signal was below −82 dBm for 100 ms" in html
    assert "None: only the kernel controlled the paths." in html


def test_drops_are_counted_by_reason(left: RunFolder) -> None:
    assert report.drop_rows(left) == [("its-g5", "retries", [15.0, 15.0, 0.0])]


def test_the_same_folder_gives_the_same_page(left: RunFolder, html: str) -> None:
    assert report.page(left) == html


def test_a_title_with_markup_is_text(left: RunFolder) -> None:
    assert "<b>bold</b>" not in report.page(replace(left, title="<b>bold</b>", runs=()))


@pytest.mark.parametrize("key", [key for key in ALL if key != "objects"])  # see test_objects
def test_each_figure_draws_what_the_drive_has(
    key: str, left: RunFolder, passed_by: RunFolder, tmp_path: Path
) -> None:
    backup = RunFolder.open(synthetic.write(tmp_path, Drive(mode="backup", seeds=(1, 2, 3))))
    uploads = RunFolder.open(synthetic.write(tmp_path / "uploads", Drive(traffic="uploads")))
    module = ALL[key]
    folder = next(f for f in (left, passed_by, backup, uploads) if module.skip_reason(f) is None)
    assert png(module.draw(folder), 40).startswith(b"\x89PNG")
    assert module.caption(folder).endswith(".")


def test_a_figure_without_data_is_omitted_with_its_reason(html: str) -> None:
    assert "Omitted: " in html
    assert "The recovered path: no path recovered in this drive" in html


@pytest.mark.parametrize("strategies", [1, 5])
def test_any_number_of_strategies_fits(strategies: int, tmp_path: Path) -> None:
    plans = {f"s{i}": Plan(14.0, 0.2 * i) for i in range(strategies)}
    report.page(RunFolder.open(synthetic.write(tmp_path, Drive(plans=plans, seeds=(1,)))))


def test_empty_records_give_a_page_of_remarks(drive: Path) -> None:
    for run in (drive / "runs").iterdir():
        for name in TABLES:
            synthetic.frame(name, {}, 0).write_ipc(run / f"{name}.arrow")
        (run / "events.jsonl").write_text("")
    parsed(report.page(RunFolder.open(drive)))


def test_plain_tcp_without_tokens_and_data_sequence_numbers_is_drawn(drive: Path) -> None:
    for run in (drive / "runs").iterdir():
        for name, columns in {"packets": ("subflow", "dsn", "data_ack"), "tcp_info": ("subflow", "token")}.items():
            empty = [pl.lit(None).alias(column) for column in columns]
            synthetic.rewrite(run / f"{name}.arrow", lambda table, empty=empty: table.with_columns(empty))
    parsed(report.page(RunFolder.open(drive)))


def test_a_folder_of_invalid_runs_gives_a_page(left: RunFolder) -> None:
    bad = tuple(replace(run, valid=False, reason="stalled for 3 ms") for run in left.runs)
    page = report.page(replace(left, runs=bad))
    parsed(page)
    assert page.count("stalled for 3 ms") == 6
