"""The wheel on a standalone cluster: spark-submit, a master and two workers, all on this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from analytics.session.synthetic import FAULTS, World, write_session
from cli.main import cli
from tests.analytics.spark_cluster import cluster
from tests.integration.spark_session import needs_spark
from tests.patience import scaled

ROOT = Path(__file__).parents[2]
SCRIPT = "from gamecast.cli.analyze import analyze\nanalyze()\n"


@needs_spark
@pytest.mark.timeout(600)
def test_the_submitted_wheel_gives_the_figures_of_a_spark_here(spark: SparkSession, tmp_path: Path) -> None:
    write_session(tmp_path / "night", World(subscribers=12, regions=9, regions_each=3), deliveries=3000, faults=FAULTS)
    here = CliRunner().invoke(cli, ["analyze", str(tmp_path / "night"), "--json"])
    assert here.exit_code == 1, here.output  # the planted faults were found
    build = [sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", str(tmp_path), str(ROOT)]
    built = subprocess.run(build, capture_output=True, text=True, check=False, timeout=scaled(180))
    assert built.returncode == 0, built.stderr
    [wheel] = tmp_path.glob("*.whl")
    (tmp_path / "run.py").write_text(SCRIPT)
    with cluster(tmp_path) as url:
        submit = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", url]
        there = subprocess.run(
            [*submit, "--py-files", str(wheel), "run.py", "night", "--json"],
            capture_output=True,
            text=True,
            check=False,
            timeout=scaled(300),
            cwd=tmp_path,
            # Without the tree: the command is in the wheel alone.
            env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": ""},
        )
    assert there.returncode == 1, there.stderr
    assert json.loads(there.stdout) == json.loads(here.stdout)
