"""The analysis of a session that is still being recorded, with Structured Streaming over its directory.

Each micro-batch has the files rolled since the last one. Its sums are written beside the checkpoint, under the batch's
number, so that a batch repeated after a crash replaces its first output. Sums do not depend on order, so late rows and
rows out of order count like all others. The order is checked live only as an alarm: the new rows are audited together
with those of the last seconds before them. When the session has ended, everything is audited once. The figures are
those of the batch job, from the stored sums.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from analytics.jobs.analysis import Analysis, MakeDirect, analyse
from analytics.jobs.cells import add_up, merge
from analytics.jobs.moves import is_near
from analytics.jobs.numbering import number
from analytics.jobs.order import audit_order, audit_publishers, audit_repetitions
from analytics.jobs.probes import direct_from_probes
from analytics.jobs.progress import begin_progress, is_of_files, noted, replace_json, sizes_of
from analytics.jobs.slices import cut
from analytics.jobs.spark import set_for
from analytics.jobs.stretch import measure_stretch, quantile
from analytics.session.finding import Finding, find, finished_files
from analytics.session.quarantine import Quarantine
from analytics.session.reading import read_sources
from analytics.session.runs import spread
from analytics.session.schema import DELIVERIES, TABLE_OF
from analytics.session.storage import Stored, stored
from sequencing.errors import InvalidInput

TAIL_S = 10.0
"""How many seconds before a batch are audited together with it: the deliveries of one event are closer together."""
IDLE_S = 30.0
POLL_S = 0.5
FILES_PER_BATCH_MAX = 64
FILE_AGE_MAX = "36500d"
"""Spark leaves out files that are a week older than the newest; a host's files may arrive that late."""


@dataclass(frozen=True, slots=True)
class Update:
    """The state of a live analysis, after a batch."""

    batch: int
    deliveries: int
    subscribers: int
    stretch: dict[str, float] | None
    """p50, p90 and max of destinations, None without direct ways that are long enough."""
    alarms: tuple[str, ...]
    """Order violations in the batch and the seconds before it."""


@dataclass(slots=True)
class Following:
    """A session that is followed; ``state`` is stored, so that following continues where it ended."""

    spark: SparkSession
    directory: str | Path
    state: Path
    direct: MakeDirect | None = None
    on_update: Callable[[Update], None] = lambda _: None
    tail_s: float = TAIL_S
    _finding: Finding = field(default_factory=lambda: Finding(Quarantine()))
    _last_ns: int = 0
    _directory: Stored = field(init=False)

    def run(
        self, *, until: Callable[[], bool] | None = None, idle_s: float = IDLE_S, causal: bool | None = None
    ) -> Analysis:
        """Follow until ``until`` returns true and all is read, or no file was rolled for ``idle_s``; then analyse.

        Raises `InvalidInput` for an invalid session, and the errors of the batch job.
        """
        session = begin_progress(self.state, self.directory)
        for file in sorted(self._kept("files").glob("*.json")):
            for name in sizes_of(noted(file) or ()):
                self._finding.known(stored(name), DELIVERIES.name, session)
        directory = self._directory = stored(self.directory).resolved()
        idle_since = time.monotonic()
        while not directory.within(DELIVERIES.name).is_folder:  # the recorder makes it, with its first file
            if (until is not None and until()) or time.monotonic() - idle_since >= idle_s:
                raise InvalidInput(f"{self.directory}: no deliveries were recorded there")
            time.sleep(POLL_S)
        # Spark lists the folder itself, and would follow them.
        for name, reason in directory.listing(everywhere=True).left_out.items():
            raise InvalidInput(f"{self.directory} cannot be followed while it is recorded: {name} is {reason}")
        rows = (
            self.spark.readStream.schema(DELIVERIES.spark_schema())
            .option("maxFilesPerTrigger", FILES_PER_BATCH_MAX)
            .option("maxFileAge", FILE_AGE_MAX)
            .option("ignoreCorruptFiles", "true")
            .parquet(directory.within(DELIVERIES.name).for_spark)
            .select("*", fn.col("_metadata.file_path").alias("_file"))
        )
        query = (
            rows.writeStream.foreachBatch(lambda batch, number_: self._take(batch, number_, session))
            .option("checkpointLocation", str(self.state / "checkpoint"))
            .trigger(processingTime=f"{POLL_S} seconds")
            .start()
        )
        try:
            idle_since = time.monotonic()
            done = -1
            while not (until is not None and until()) and time.monotonic() - idle_since < idle_s:
                if query.awaitTermination(1):
                    break
                progress = query.lastProgress
                if progress is not None and progress["numInputRows"] and progress["batchId"] != done:
                    done, idle_since = progress["batchId"], time.monotonic()
            query.processAllAvailable()
        finally:
            query.stop()
        return self._conclude(causal)

    def _kept(self, what: str) -> Path:
        folder = self.state / what
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def _take(self, batch: DataFrame, batch_number: int, session: str) -> None:
        """Store the sums of one batch, and raise the alarm if its order is wrong."""
        named = sorted(unquote(row["_file"]) for row in batch.select("_file").distinct().collect())
        files = sizes_of(
            name
            for name in named
            if self._is_read(name) and self._finding.check(stored(name), DELIVERIES.name, session)
        )
        # A batch that is repeated after a crash must not mistake its own files for copies.
        note = self._kept("files") / f"{batch_number:09}.json"
        if (known := noted(note)) is not None:
            files = sizes_of(known)
        if not files:
            return
        if known is None:
            replace_json(note, files)
        readable = self.spark.read.schema(DELIVERIES.spark_schema()).option("ignoreCorruptFiles", "true")
        read = readable.parquet(*(stored(name).for_spark for name in files))
        rows = spread(read, DELIVERIES).withColumn("session", fn.lit(session)).persist()
        add_up(rows).coalesce(1).write.mode("overwrite").parquet(str(self._kept("cells") / f"batch={batch_number}"))
        alarms = self._audit(rows, batch_number)
        rows.unpersist()
        self.on_update(self._update(batch_number, alarms))

    def _is_read(self, name: str) -> bool:
        """Return whether a file that Spark found is one that a listing of the session has."""
        return self._directory.within(*stored(name).parts_in(self._directory)).is_file

    def _audit(self, rows: DataFrame, batch_number: int) -> tuple[str, ...]:
        """Audit the batch with the tail before it, and keep the tail of both for the next batch."""
        columns = DELIVERIES.event_names
        kept = sorted(self._kept("tail").glob("batch=*"), key=lambda folder: int(folder.name.partition("=")[2]))
        before = [folder for folder in kept if int(folder.name.partition("=")[2]) < batch_number]
        recent = rows.select("session", *columns)
        if before:
            recent = recent.unionByName(self.spark.read.parquet(str(before[-1])).select("session", *columns))
        recent = recent.persist()
        cells = add_up(recent).persist()
        count = recent.count()
        set_for(self.spark, deliveries=count)
        numbering = number(recent, cells)
        slices = cut(numbering, deliveries=count)
        order = audit_order(slices, numbering, cells)
        offences = (
            order.first,
            order.cycle,
            audit_publishers(slices, numbering, cells).first,
            audit_repetitions(slices, numbering)[1],
        )
        slices.release()
        newest = cells.agg(fn.max("last_at_ns").alias("at")).first()
        self._last_ns = max(self._last_ns, int((newest and newest["at"]) or 0))
        tail = recent.where(fn.col("delivered_at_ns") >= self._last_ns - int(self.tail_s * 1e9))
        tail.coalesce(1).write.mode("overwrite").parquet(str(self._kept("tail") / f"batch={batch_number}"))
        for each in (recent, cells):
            each.unpersist()
        # The previous tail stays, in case this batch is repeated.
        for folder in before[:-1]:
            shutil.rmtree(folder, ignore_errors=True)
        return tuple(dict.fromkeys(each.describe() for each in offences if each is not None))

    def _sums(self) -> DataFrame:
        cells = self.spark.read.option("mergeSchema", "true").parquet(str(self.state / "cells")).drop("batch")
        # Earlier versions did not count these.
        since = {"untimely": 0, "first_sent_ns": None, "last_sent_ns": None}
        new = {name: fn.lit(value).cast("long") for name, value in since.items() if name not in cells.columns}
        return merge(cells.withColumns(new) if new else cells)

    def _ways(self, cells: DataFrame) -> DataFrame:
        if self.direct is not None:
            return self.direct(cells)
        probes = TABLE_OF["probes"].spark_schema()
        files = finished_files(stored(self.directory))[0].get("probes")
        read = self.spark.read.schema(probes).parquet(*(file.for_spark for file in files)) if files else None
        return direct_from_probes(read if read is not None else self.spark.createDataFrame([], probes), cells)

    def _update(self, batch_number: int, alarms: tuple[str, ...]) -> Update:
        cells = self._sums().persist()
        by_destination = measure_stretch(cells, self._ways(cells)).by_destination
        rows = by_destination.select("stretch", "direct_ms").collect()
        ascending = [] if is_near(row["direct_ms"] for row in rows) else sorted(row["stretch"] for row in rows)
        totals: Any = cells.agg(fn.sum("deliveries").alias("n"), fn.countDistinct("subscriber").alias("who")).first()
        cells.unpersist()
        parts = {name: quantile(ascending, part) or 0.0 for name, part in (("p50", 0.5), ("p90", 0.9), ("max", 1.0))}
        return Update(batch_number, int(totals["n"]), int(totals["who"]), parts if ascending else None, alarms)

    def _conclude(self, causal: bool | None) -> Analysis:
        found = find([self.directory])
        files = sizes_of(each.file.name for each in found.usable if each.table == DELIVERIES.name)
        cells = self._sums() if is_of_files(self.state, files) else None
        return analyse(self.spark, read_sources(self.spark, found), direct=self.direct, causal=causal, cells=cells)
