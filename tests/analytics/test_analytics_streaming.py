"""A session that grows while it is followed, and after."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from analytics.jobs.analysis import Analysis, analyse
from analytics.jobs.progress import begin_progress
from analytics.jobs.streaming import Following, Update
from analytics.jobs.stretch import direct_from
from analytics.session.reading import read_sources
from analytics.session.synthetic import World, write_session
from cli.analyze import analyze
from cli.running import status_of
from launcher.ending import WRONG_USE
from sequencing.errors import InvalidInput, UsageError
from tests.integration.spark_session import needs_spark

pytestmark = [needs_spark, pytest.mark.timeout(600)]
WORLD = World(subscribers=10, regions=5, regions_each=2, seed=3)


def test_a_session_with_links_is_not_followed(spark: SparkSession, tmp_path: Path) -> None:
    session = write_session(tmp_path / "session", WORLD, deliveries=300).directory
    (session / "deliveries" / "more").symlink_to(tmp_path)
    with pytest.raises(InvalidInput, match="more is a symbolic link"):
        Following(spark, session, tmp_path / "state").run(until=lambda: True)


def test_following_that_is_stopped_and_begins_again_ends_with_the_numbers_of_the_batch_job(
    spark: SparkSession, tmp_path: Path
) -> None:
    whole = write_session(tmp_path / "whole", WORLD, deliveries=1500, faults=["swap"], deliveries_a_file=500).directory
    live = tmp_path / "live"
    shutil.copytree(whole, live)
    [hour] = (live / "deliveries").iterdir()
    files = sorted(hour.iterdir())
    # The last file comes first, and one comes twice: late, out of order, and once too often.
    waiting = [tmp_path / file.name for file in files[:-1]]
    for file, place in zip(files, waiting, strict=False):
        file.rename(place)
    seen: list[Update] = []
    way = WORLD.direct_ms()
    ended = False

    def on_update(update: Update) -> None:
        nonlocal ended
        seen.append(update)
        if waiting:
            place = waiting.pop()
            shutil.copy(place, hour / f".{place.name}")
            (hour / f".{place.name}").rename(hour / place.name)
        else:
            shutil.copy(files[-1], hour / "again.parquet")
            ended = True

    # As a process that was killed while it wrote may have left it.
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "following.json.new").write_text("")

    def following() -> Following:
        return Following(spark, live, tmp_path / "state", lambda cells: direct_from(cells, WORLD.names, way), on_update)

    def stopped_in_the_middle() -> bool:
        if len(seen) >= 2:
            raise InterruptedError
        return False

    with pytest.raises(InterruptedError):
        following().run(until=stopped_in_the_middle, idle_s=300)
    streamed = following().run(until=lambda: ended, idle_s=300).as_dict()
    assert [update.deliveries for update in seen] == sorted(update.deliveries for update in seen)
    assert len(seen) >= len(files)
    assert any("before" in alarm for update in seen for alarm in update.alarms)

    sources = read_sources(spark, [live])
    batch = analyse(spark, sources, direct=lambda cells: direct_from(cells, WORLD.names, way)).as_dict()
    assert streamed["deliveries"] == batch["deliveries"]
    assert streamed["quarantined"] == batch["quarantined"] == 1
    assert streamed["order"] == batch["order"]
    assert streamed["order"]["inversions"] == 1
    assert streamed["stretch"].pop("by_region") == pytest.approx(batch["stretch"].pop("by_region"), rel=1e-12)
    assert streamed["stretch"].pop("by_destination") == pytest.approx(batch["stretch"].pop("by_destination"), rel=1e-12)
    for name, value in batch["stretch"].items():
        assert streamed["stretch"][name] == (pytest.approx(value, rel=1e-12) if isinstance(value, float) else value)
    assert streamed["load"] == batch["load"]
    assert not (live / "probes").exists(), "nothing is written into the session"
    assert seen[-1].stretch is not None
    assert seen[-1].stretch["p50"] == pytest.approx(batch["stretch"]["p50"])


def test_progress_of_another_session_is_refused_in_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, other = (write_session(tmp_path / name, WORLD, deliveries=50).directory for name in ("one", "other"))
    written = (one / "session.json").read_text()
    (one / "session.json").write_text(written.replace('"one"', '"another-night"'))
    state = tmp_path / "state"
    assert begin_progress(state, one) == begin_progress(state, one) == "another-night"
    assert status_of(analyze, [str(other), "--follow", str(state)]) == WRONG_USE
    [said] = capsys.readouterr().err.splitlines()
    assert f"{state} has the progress of session another-night in {one}, and {other} is session" in said
    assert [each.name for each in state.iterdir()] == ["following.json"], "nothing is begun"
    for place, why in ((tmp_path, "is not empty"), (one / "state", "is within the session")):
        with pytest.raises(UsageError, match=why):
            begin_progress(place, one)


def test_files_that_arrive_late_count_although_they_are_older_than_those_read_before(
    spark: SparkSession, tmp_path: Path
) -> None:
    live, files, follow, seen = _followed(spark, tmp_path)
    late = tmp_path / files[0].name
    files[0].rename(late)
    follow()
    month_ago = time.time() - 30 * 86400
    os.utime(late, (month_ago, month_ago))
    late.rename(files[0])
    streamed = follow().as_dict()
    assert streamed == analyse(spark, read_sources(spark, [live])).as_dict()
    assert seen[-1].deliveries == streamed["deliveries"] == 1500, "live figures have them, too"


def test_files_that_were_replaced_after_they_were_read_count_as_they_are_at_the_end(
    spark: SparkSession, tmp_path: Path
) -> None:
    live, files, follow, _ = _followed(spark, tmp_path)
    follow()
    table = pq.read_table(files[0])
    later = pc.add(table["delivered_at_ns"], pa.array(range(len(table)), pa.int64()))
    place = table.schema.get_field_index("delivered_at_ns")
    pq.write_table(table.set_column(place, table.schema.field(place), later), files[0], compression="none")
    streamed = json.dumps(follow().as_dict())
    assert streamed == json.dumps(analyse(spark, read_sources(spark, [live])).as_dict())


def _followed(spark: SparkSession, folder: Path) -> tuple[Path, list[Path], Callable[[], Analysis], list[Update]]:
    """Return a session, its files of deliveries, a function that follows it for 3 s, and the updates."""
    live = write_session(folder / "live", WORLD, deliveries=1500, deliveries_a_file=500).directory
    [hour] = (live / "deliveries").iterdir()
    seen: list[Update] = []
    return (
        live,
        sorted(hour.iterdir()),
        lambda: Following(spark, live, folder / "state", None, seen.append).run(idle_s=3),
        seen,
    )
