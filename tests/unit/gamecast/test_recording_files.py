"""The files of a session: rolled whole, filed by the hour, and what the disk refuses is counted."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")
import pyarrow.dataset as pd  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402

from analytics.session.schema import GAPS, RECEIVES, STAYS, TABLE_OF  # noqa: E402
from gamecast.recording import files as files_module  # noqa: E402
from gamecast.recording.columns import ReceivedFrame, receives, rows_of  # noqa: E402
from gamecast.recording.files import SessionFiles  # noqa: E402

HOUR_NS = 3_600_000_000_000
BASE_NS = 497_000 * HOUR_NS


def received(*times: int) -> Any:
    noted = [ReceivedFrame("s1", 1, "forest", 1, place, 10, at) for place, at in enumerate(times, 1)]
    return receives("vm", list(zip(*noted, strict=True)))


def visible(directory: Path) -> list[str]:
    return sorted(str(file.relative_to(directory)) for file in directory.rglob("*.parquet"))


@pytest.fixture
def files(tmp_path: Path) -> SessionFiles:
    return SessionFiles(tmp_path, session="the-session", recorder="r")


def test_nothing_is_visible_before_the_roll_and_all_of_it_after(files: SessionFiles, tmp_path: Path) -> None:
    files.add(RECEIVES, received(BASE_NS, BASE_NS + 1))
    files._write(("receives", "2026-09-12T08"))
    assert visible(tmp_path) == []
    assert len(list(tmp_path.rglob(".*.partial"))) == 1
    assert pd.dataset(tmp_path).count_rows() == 0  # readers leave out what is being written
    rolled = files.roll()
    assert [str(file.relative_to(tmp_path)) for file in rolled] == visible(tmp_path)
    assert visible(tmp_path) == ["receives/hour=2026-09-12T08/r-000001.parquet"]
    assert (files.rolled_files, files.rolled_rows["receives"], files.roll()) == (1, 2, [])


def test_a_clock_that_steps_back_files_rows_where_they_say(files: SessionFiles, tmp_path: Path) -> None:
    files.add(RECEIVES, received(BASE_NS, BASE_NS + HOUR_NS, BASE_NS - 2 * HOUR_NS, BASE_NS + 5))
    files.roll()
    table = pd.dataset(tmp_path / "receives", partitioning="hive").to_table().to_pylist()
    assert sorted((row["hour"], row["sequence"]) for row in table) == [
        ("2026-09-12T06", 3),
        ("2026-09-12T08", 1),
        ("2026-09-12T08", 4),
        ("2026-09-12T09", 2),
    ]


def test_rows_without_a_time_are_filed_as_unknown(files: SessionFiles, tmp_path: Path) -> None:
    row = {"subscriber": "s1", "region": "forest", "stay": 0, "revision": 0}
    files.add(STAYS, rows_of(STAYS, [row, {**row, "noted_at_ns": BASE_NS}]))
    files.roll()
    assert [name.split("/")[1] for name in visible(tmp_path)] == ["hour=2026-09-12T08", "hour=unknown"]


def test_a_file_says_what_it_is_and_strings_are_strings(files: SessionFiles) -> None:
    files.add(RECEIVES, received(BASE_NS))
    (file,) = files.roll()
    opened = pq.ParquetFile(file)
    metadata = opened.metadata.metadata
    assert metadata[b"gamecast.schema"] == b"2"
    assert metadata[b"gamecast.session"] == b"the-session"
    assert metadata[b"gamecast.recorder"] == b"r"
    assert opened.schema_arrow.remove_metadata().equals(RECEIVES.arrow_schema())
    assert opened.metadata.row_group(0).column(0).compression == "SNAPPY"


def test_many_rows_are_written_in_row_groups_before_the_roll(files: SessionFiles, tmp_path: Path) -> None:
    rows = files_module.ROW_GROUP_ROWS // 2 + 1
    for _ in range(4):
        files.add(RECEIVES, received(*range(BASE_NS, BASE_NS + rows)))
    assert files.open_bytes > 0
    (file,) = files.roll()
    assert pq.ParquetFile(file).num_row_groups == 2
    assert pq.read_table(file).num_rows == 4 * rows


def test_a_table_that_cannot_be_written_is_counted_and_others_are_there(files: SessionFiles, tmp_path: Path) -> None:
    (tmp_path / "receives").write_text("in the way")
    files.add(RECEIVES, received(BASE_NS, BASE_NS))
    gap = dict(zip(GAPS.names, ("s1", 1, "vm", "forest", 1, 2, 3, "lost", 4, BASE_NS), strict=True))
    files.add(GAPS, rows_of(GAPS, [gap]))
    assert [file.parts[-3] for file in files.roll()] == ["gaps"]
    assert files.lost == {("receives", "disk"): 2}
    assert isinstance(files.trouble, OSError)
    (tmp_path / "receives").unlink()
    files.add(RECEIVES, received(BASE_NS))
    assert len(files.roll()) == 1  # the disk is back
    assert files.lost == {("receives", "disk"): 2}


def test_a_disk_that_fills_up_costs_what_was_written_since_the_last_roll(
    files: SessionFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.add(RECEIVES, received(BASE_NS))
    files.roll()
    files.add(RECEIVES, received(BASE_NS, BASE_NS, BASE_NS))

    def full(_: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files_module, "_sync", full)
    assert files.roll() == []
    assert files.lost == {("receives", "disk"): 3}
    monkeypatch.undo()
    assert visible(tmp_path) == ["receives/hour=2026-09-12T08/r-000001.parquet"]
    assert list(tmp_path.rglob(".*")) == []


def test_two_recorders_of_a_session_never_write_the_same_file(tmp_path: Path) -> None:
    one, two = (SessionFiles(tmp_path, session="s", recorder=name) for name in ("one", "two"))
    for files in (one, two):
        files.add(RECEIVES, received(BASE_NS))
        files.roll()
    assert pd.dataset(tmp_path / "receives").count_rows() == 2
    assert set(TABLE_OF) >= {"receives"}
