"""One Spark for all tests: it takes seconds to start, and a process has one."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from tests.patience import scaled


def java_version() -> int:
    """Return Java's major version, 0 where there is none."""
    java = shutil.which("java")
    if java is None:
        return 0
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False, timeout=scaled(60)).stderr
    number = said.partition('version "')[2].partition(".")[0].strip('"\n ')
    return int(number) if number.isdigit() else 0


# Of jobs that take milliseconds, most of the time would go to the compiler that makes code fast for hours.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC")

HAS_JAVA = java_version() >= 17
NO_JAVA = "Spark needs Java 17 or newer: ./dev setup installs it"
needs_spark = pytest.mark.skipif(not HAS_JAVA, reason=NO_JAVA)
