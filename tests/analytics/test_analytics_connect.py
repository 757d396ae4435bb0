"""The analysis through Spark Connect, by a process that has no Spark: the same figures as in this process's Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

pytest.importorskip("grpc", reason="Spark Connect speaks gRPC (the analytics extra)")

from pyspark.sql import SparkSession

from analytics.session.synthetic import FAULTS, World, write_session
from cli.main import cli
from tests.integration.spark_session import needs_spark
from tests.patience import scaled


@needs_spark
@pytest.mark.timeout(600)
def test_spark_connect_gives_the_figures_of_a_spark_here(
    spark: SparkSession, spark_connect: str, tmp_path: Path
) -> None:
    write_session(
        tmp_path / "night",
        World(subscribers=12, regions=9, regions_each=3, seed=5),
        deliveries=3000,
        faults=FAULTS,
        deliveries_a_file=2000,
    )
    arguments = ["analyze", str(tmp_path / "night"), "--json"]
    here = CliRunner().invoke(cli, arguments)
    assert here.exit_code == 1, here.output  # the planted faults were found
    there = subprocess.run(
        [sys.executable, "-m", "gamecast", *arguments, "--master", spark_connect],
        capture_output=True,
        text=True,
        check=False,
        timeout=scaled(300),
    )
    assert there.returncode == 1, there.stderr
    assert json.loads(there.stdout) == json.loads(here.stdout)
    assert json.loads(there.stdout)["order"]["inversions"] > 0
