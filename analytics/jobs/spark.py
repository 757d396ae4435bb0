"""The Spark session that the analysis runs on: this machine, a master, or Spark Connect."""

from __future__ import annotations

import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from sequencing.errors import OtherSideError
from sequencing.extras import needed_by

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LOCAL = "local[*]"
DRIVER_MEMORY = "3g"
"""The driver's memory, for Spark on this machine.

With Python's part the driver stays within 4 GiB. SPARK_DRIVER_MEMORY overrides it.
"""
SMALL = 300_000
LITTLE = "gamecast.little"
"""A setting of Spark's: whether there are no more deliveries than that."""
BRIEF = " -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
BRIEF_BYTES_MAX = 16 * 1024 * 1024
"""Of files with less than this, the analysis takes longer to compile than to run."""

LAST_LINES = 5
PIECES_AT_ONCE = 4
Out = TypeVar("Out")


class SparkUnavailable(OtherSideError):
    """Spark did not start: it needs Java 17 or newer, and `gamecast[analytics]`."""


class SparkFailed(OtherSideError):
    """Spark failed in a job: a worker was lost, or had too little memory or disk."""


def open_spark(master: str | None = None, *, memory: str | None = None, is_brief: bool = False) -> SparkSession:
    """Return a session on ``master``: ``local[N]``, ``spark://…``, ``sc://…`` (Spark Connect) and so on.

    Without a master, use the active one or that of spark-submit, otherwise all cores of this machine. One process has
    one session: an active one is returned as it is. Takes some 5 s. Raises `SparkUnavailable`.

    ``is_brief``: whether there is little to do: then the JVM compiles quickly rather than well.
    """
    with quiet_imports(), needed_by("the analysis"):
        from pyspark.sql import SparkSession
    if not (master or "").startswith("sc://"):
        active = SparkSession.getActiveSession()
        if active is not None:
            return active
    builder = SparkSession.builder.appName("gamecast analyze")
    if (master or "").startswith("sc://"):
        builder = builder.remote(str(master))
    else:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        submitted = "PYSPARK_GATEWAY_PORT" in os.environ
        if master or not submitted:
            builder = builder.master(master or LOCAL)
        for key, value in _settings(master, memory, submitted=submitted, is_brief=is_brief).items():
            builder = builder.config(key, value)
    with quiet_imports(), _silenced() as said:
        try:
            session = builder.getOrCreate()
        except Exception as error:  # the gateway, the JVM and the network raise all kinds of exceptions
            last = " / ".join(line.strip() for line in said() if line.strip())
            raise SparkUnavailable(f"Spark did not start on {master or LOCAL}: {last or error}") from error
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        # spark-submit started the JVM, with its own log settings.
        session.sparkContext.setLogLevel("ERROR")
    return session


def set_for(spark: SparkSession, *, deliveries: int) -> None:
    """Set the options that depend on the amount of data: partitions, and options that only pay for many deliveries.

    Spark's 200 shuffle partitions are wrong for one machine; a partition's sort must fit into memory. For small jobs,
    adaptive planning and compiling at run time cost more than they save.
    """
    large = deliveries > SMALL
    spark.conf.set(LITTLE, str(not large).lower())
    partitions = max(cores(spark), min(400, deliveries // 1_500_000)) if large else 1
    spark.conf.set("spark.sql.shuffle.partitions", str(partitions))
    spark.conf.set("spark.sql.leafNodeDefaultParallelism", str(cores(spark) if large else 1))
    spark.conf.set("spark.sql.adaptive.enabled", str(large).lower())
    spark.conf.set("spark.sql.codegen.wholeStage", str(large).lower())
    spark.conf.set("spark.sql.codegen.factoryMode", "FALLBACK" if large else "NO_CODEGEN")


def is_little(spark: SparkSession) -> bool:
    """Return whether `set_for` was called for few deliveries, which fit into one process."""
    return spark.conf.get(LITTLE, "false") == "true"


def kept(frame: DataFrame) -> DataFrame:
    """Return a frame that is computed once, until it is unpersisted: of few deliveries, a table in this process.

    Each job on such a table is planned from its rows, and not from all that led to them.
    """
    if is_little(frame.sparkSession):
        return frame.sparkSession.createDataFrame(frame.toArrow(), frame.schema).coalesce(1)
    return frame.persist()


@contextmanager
def beside_each_other(deliveries: int) -> Iterator[Callable[[Callable[[], Out]], Callable[[], Out]]]:
    """Yield a function that takes a piece of work, and returns a function for its result, or its error.

    Of few deliveries, most of the time is planning and waiting, so pieces run in threads. Otherwise each has Spark for
    itself. All are done at the end of the context.
    """
    with ThreadPoolExecutor(PIECES_AT_ONCE) as threads:

        def start(work: Callable[[], Any]) -> Callable[[], Any]:
            if deliveries <= SMALL:
                return threads.submit(work).result
            done = work()
            return lambda: done

        yield start


def cores(spark: SparkSession) -> int:
    """Return how many tasks run at a time; 8 if a Spark Connect server does not report it."""
    try:
        return int(spark.sparkContext.defaultParallelism)
    except Exception:  # noqa: BLE001 - Connect has no context, and says so with errors of its own
        return 8


@contextmanager
def spark_failures() -> Iterator[None]:
    """Convert all exceptions of Spark and its gateway to one sentence: users cannot read their stacks."""
    try:
        yield
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in ("pyspark", "py4j"):
            raise
        first = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise SparkFailed(f"Spark failed: {first}") from error


@contextmanager
def quiet_imports() -> Iterator[None]:
    """Suppress PySpark's warnings about untested versions, which do not concern a command's user."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _settings(master: str | None, memory: str | None, *, submitted: bool, is_brief: bool) -> dict[str, str]:
    settings = {
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "200000",
        # A damaged file that passed the checks must not end the job.
        "spark.sql.files.ignoreMissingFiles": "true",
    }
    if submitted:
        return settings
    silence = Path(__file__).with_name("log4j2.properties")
    settings |= {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.memory": memory or os.environ.get("SPARK_DRIVER_MEMORY", DRIVER_MEMORY),
        "spark.driver.extraJavaOptions": f'-Dlog4j2.configurationFile="{silence}" -XX:-UsePerfData' + BRIEF * is_brief,
    }
    if (master or LOCAL).startswith(("local", "spark://127.", "spark://localhost")):
        settings |= {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
    return settings


@contextmanager
def _silenced() -> Iterator[_LastLines]:
    """Give a child that is started inside a file as its standard error; yield a function that reads its last lines."""
    handle, name = tempfile.mkstemp(prefix="gamecast-spark-")
    file = Path(name)
    try:
        stderr = os.dup(2)
        try:
            os.dup2(handle, 2)
            yield _LastLines(file)
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
    finally:
        os.close(handle)
        file.unlink()


class _LastLines:
    def __init__(self, file: Path) -> None:
        self._file = file

    def __call__(self) -> list[str]:
        return self._file.read_text(encoding="utf-8", errors="replace").splitlines()[-LAST_LINES:]
