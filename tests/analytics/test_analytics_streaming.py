"""A session that grows while it is followed, and after."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from analytics.jobs.analysis import analyse
from analytics.jobs.streaming import Following, Update
from analytics.jobs.stretch import direct_from
from analytics.session.reading import read_sources
from analytics.session.synthetic import World, write_session
from sequencing.errors import InvalidInput
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
    (tmp_path / "state" / "files").mkdir(parents=True)
    (tmp_path / "state" / "files" / "000000099.json").write_text("")

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
