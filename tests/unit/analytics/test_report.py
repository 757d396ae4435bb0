"""The report's charts and texts, of analyses made by hand."""

from __future__ import annotations

import csv
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from analytics.report.axes import axis_from_zero, duration_text, log_axis, number_text, time_axis
from analytics.report.charts import NAME_MAX, legible, shortened
from analytics.report.figures import at_most, delay_percentiles
from analytics.report.report import render, write_report
from analytics.report.tables import write_tables
from analytics.report.timeline import POINTS_MAX, timeline_figure, timeline_of
from tests.analysed_session import STRANGE_NAMES, analysed

BYTES_MAX = 400_000


@pytest.mark.parametrize(
    ("lowest", "highest", "texts"),
    [
        (0.7, 350, ["0.1 ms", "1 ms", "10 ms", "100 ms", "1 s"]),
        (1, 1000, ["1 ms", "10 ms", "100 ms", "1 s"]),
        (9, 31, ["5 ms", "10 ms", "20 ms", "50 ms"]),
        (10, 10, ["10 ms", "20 ms"]),
        (0.001, 100_000, ["0.001 ms", "0.1 ms", "10 ms", "1 s", "100 s"]),
    ],
)
def test_a_logarithmic_axis_reads_well(lowest: float, highest: float, texts: list[str]) -> None:
    axis = log_axis(lowest, highest, duration_text)
    assert [text for _, text in axis.ticks] == texts
    assert axis.low <= lowest <= highest <= axis.high
    assert (axis.place(axis.low), axis.place(axis.high)) == (0, 1)


@pytest.mark.parametrize(
    ("highest", "texts"),
    [(4.01, ["0", "2", "4", "6"]), (0.3, ["0", "0.1", "0.2", "0.3"]), (0, ["0", "0.5", "1"]), (2500, None)],
)
def test_an_axis_from_zero_has_round_ticks(highest: float, texts: list[str] | None) -> None:
    axis = axis_from_zero(highest, number_text)
    shown = [text for _, text in axis.ticks]
    assert shown == (texts or ["0", "1,000", "2,000", "3,000"])
    assert highest <= axis.high


@pytest.mark.parametrize(
    ("minutes", "texts"),
    [
        (4, ["13:36", "13:37", "13:38", "13:39", "13:40"]),
        (90, ["14:00", "14:30", "15:00"]),
        (1000, ["18:00", "27 Nov", "06:00"]),
        (10_000, ["28 Nov", "30 Nov", "2 Dec"]),
    ],
)
def test_an_axis_of_time_has_ticks_at_round_times(minutes: int, texts: list[str]) -> None:
    start = datetime(2026, 11, 26, 13, 36, tzinfo=UTC)
    assert [text for _, text in time_axis(start, start + timedelta(minutes=minutes)).ticks] == texts


def test_percentiles_are_upper_bounds() -> None:
    buckets = [{"session": "s", "bucket": at, "up_to_ms": ms, "deliveries": count}
               for at, ms, count in ((1, 10.01, 50), (2, 99.91, 45), (3, 1234.0, 5))]  # fmt: skip
    found = analysed()
    found = replace(found, tables={**found.tables, "delays": buckets})
    percentiles = delay_percentiles(found)
    assert percentiles == {"p50": 10.01, "p95": 99.91, "p99": 1234.0}
    assert [at_most(ms) for ms in percentiles.values()] == ["≤ 10.1 ms", "≤ 100 ms", "≤ 1.24 s"]
    assert "<dt>Delay p95</dt><dd>≤ 100 ms</dd>" in render(found)


def test_without_times_no_percentile_is_shown() -> None:
    found = analysed(direct=False)
    found = replace(found, tables={**found.tables, "delays": [], "subscriber_delays": []})
    page = render(found)
    assert "Delay p50" not in page
    assert "No delivery has times." in page


@pytest.mark.parametrize("servers", [12, 1000])
def test_the_page_is_small_and_needs_no_network(servers: int) -> None:
    page = render(analysed(servers, names=STRANGE_NAMES, broken=True, minutes=10_000))
    assert len(page.encode()) < BYTES_MAX
    assert "http" not in page
    assert "src=" not in page.replace("img src=x", "")


def test_names_are_cut_in_the_middle_and_control_characters_shown() -> None:
    long = STRANGE_NAMES[4]
    assert len(shortened(long)) == NAME_MAX - 2
    assert shortened("\u6797" * 15) == "\u6797" * 15
    assert shortened("\u6797" * 16) == "\u6797" * 7 + "…" + "\u6797" * 7
    assert shortened(long).endswith("nds-in-eu-west")
    assert legible("two\nlines\x00\u202e") == "two↵lines\ufffd\ufffd"


def test_without_minutes_nothing_is_drawn_over_time() -> None:
    assert timeline_figure(analysed()) == timeline_figure(analysed(minutes=1)) == ""
    assert "Over time" not in render(analysed())


def test_a_line_over_time_breaks_where_nothing_is_known() -> None:
    picture = timeline_figure(analysed(minutes=60))
    [line] = [each for each in picture.split("<path") if each.startswith(' class="line p50" d="M') and "L" in each]
    assert line.count("M") == 2
    assert picture.count('class="gaps" cx=') == 3  # and one of the legend


def test_a_long_session_has_several_minutes_to_a_point() -> None:
    found = analysed(minutes=10_000)
    timeline = timeline_of(found)
    assert timeline is not None
    assert len(timeline.points) <= POINTS_MAX
    assert sum(point.deliveries for point in timeline.points) == sum(
        row["deliveries"] for row in found.tables["timeline"]
    )
    assert f"Each point is {timeline.minutes:g} minutes" in timeline_figure(found)


def test_no_cell_of_the_tables_is_a_formula(tmp_path: Path) -> None:
    for file in write_tables(tmp_path, analysed(names=("=cmd|'/c calc'!A1", "+1", "@x", "-y"), minutes=5)):
        with file.open(encoding="utf-8", newline="") as stream:
            cells = [cell for row in csv.reader(stream) for cell in row]
        assert not [cell for cell in cells if cell[:1] in "=+@" and cell]
        assert not [cell for cell in cells if cell[:1] == "-" and not cell[1:2].isdigit()]


def test_strange_names_are_drawn_as_they_are_in_pictures(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    written = write_report(tmp_path, analysed(names=(*STRANGE_NAMES, "\u6797\u9593"), minutes=5))
    assert {"report.html", "who_hurts.png", "hot_regions.png", "timeline.csv"} <= {file.name for file in written}
