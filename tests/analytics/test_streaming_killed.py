"""A session that grows while it is followed by processes that are killed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

from analytics.jobs.analysis import analyse
from analytics.session.reading import read_sources
from analytics.session.synthetic import write_session
from launcher.ending import BROKEN
from tests.analytics.test_analytics_streaming import WORLD
from tests.integration.spark_session import needs_spark
from tests.patience import scaled, slowness

pytestmark = [needs_spark, pytest.mark.timeout(600)]
KILLS = int(os.environ.get("GAMECAST_KILLS", "2"))
"""How often the analysis is killed while it follows; each start of Spark takes seconds."""


def test_following_that_is_killed_at_any_moment_ends_with_the_numbers_of_the_batch_job(
    spark: SparkSession, tmp_path: Path
) -> None:
    random = Random(7)
    whole = write_session(tmp_path / "whole", WORLD, deliveries=2500, faults=["swap"], deliveries_a_file=100).directory
    live = tmp_path / "live"
    shutil.copytree(whole, live)
    [hour] = (live / "deliveries").iterdir()
    waiting = [file.rename(tmp_path / file.name) for file in sorted(hour.iterdir())]
    before = sorted(file.relative_to(live) for file in live.rglob("*") if file.is_file())

    def follow(idle_s: float) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "gamecast", "analyze", str(live), "--follow", str(tmp_path / "state")]
        return subprocess.Popen(
            [*command, "--idle", str(idle_s), "--json"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip

    share = -(-len(waiting) // KILLS)
    for _ in range(KILLS):
        process = follow(600)
        try:
            until = time.monotonic() + random.uniform(8, 16) * slowness()
            some = [waiting.pop() for _ in range(min(share, len(waiting)))]
            while time.monotonic() < until:
                if some and random.random() < 0.3:
                    file = some.pop()
                    file.rename(hour / file.name)
                assert process.poll() is None, process.communicate()
                time.sleep(0.2)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
        for file in some:
            file.rename(hour / file.name)
    process = follow(3)
    try:
        out, err = process.communicate(timeout=scaled(240))
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == BROKEN, err
    streamed = json.loads(out)
    batch = json.loads(json.dumps(analyse(spark, read_sources(spark, [live])).as_dict()))
    assert streamed == batch
    assert streamed["order"]["inversions"] == 1
    now = {file.relative_to(live) for file in live.rglob("*") if file.is_file()}
    assert now - set(before) == {hour.relative_to(live) / file.name for file in hour.iterdir()}, "nothing else"
