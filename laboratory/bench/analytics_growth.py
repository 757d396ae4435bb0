"""How the analysis grows: stretch and audit of 1, 10 and 50 million deliveries, beside DuckDB on the same files.

    python laboratory/bench/analytics_growth.py --master 'local[2]' --deliveries 1 10 50 --faults

Each size is a process of its own. ``ratio`` is the time for each delivery over that of the size before: 1 is linear.
Memory is the most that the driver's JVM, and the Python beside it, ever held (VmHWM); local[2] runs the tasks in it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from analytics.session.synthetic import FAULTS, World, write_session

MILLION = 1_000_000
WORLD = World()


def main() -> None:
    """Measure each size, and print JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--deliveries", type=float, nargs="+", default=[1, 10, 50], metavar="MILLIONS")
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--sessions", type=Path, help="Keep the sessions here, and take those that are here.")
    parser.add_argument("--faults", action="store_true", help="Plant every fault in each session.")
    parser.add_argument("--causal", action="store_true", help="Audit causal order too.")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure is not None:
        print(json.dumps(measure(options.measure, options.master, causal=options.causal)))
        return
    with tempfile.TemporaryDirectory() as scratch:
        report(options, options.sessions or Path(scratch))


def report(options: argparse.Namespace, folder: Path) -> None:
    """Run the sizes, smallest first."""
    sizes: list[dict[str, Any]] = []
    for millions in sorted(options.deliveries):
        directory = folder / f"session-{millions:g}m{'-faults' if options.faults else ''}"
        if not (directory / "session.json").exists():
            wanted = round(millions * MILLION)
            written = write_session(directory, WORLD, deliveries=wanted, faults=FAULTS if options.faults else ())
            (directory / "_planted").write_text(json.dumps(dict(written.planted)))
        command = [sys.executable, __file__, "--measure", str(directory), "--master", options.master]
        done = subprocess.run(
            [*command, *(["--causal"] if options.causal else [])], capture_output=True, text=True, check=False
        )
        if done.returncode:
            sys.exit(done.stderr[-3000:])
        found = json.loads(done.stdout.splitlines()[-1])
        found["planted"] = json.loads((directory / "_planted").read_text()) if (directory / "_planted").exists() else {}
        if sizes:
            before = sizes[-1]
            found["ratio"] = (found["seconds"] / found["deliveries"]) / (before["seconds"] / before["deliveries"])
        sizes.append(found)
        print(json.dumps(found), flush=True)


def measure(directory: Path, master: str, *, causal: bool) -> dict[str, Any]:
    """Analyse one session as the command line does, report included; Spark is started before the clock runs."""
    from pyspark.sql import functions as fn

    from analytics.jobs.analysis import analyse
    from analytics.jobs.cells import add_up
    from analytics.jobs.spark import open_spark
    from analytics.jobs.stretch import direct_from, measure_stretch
    from analytics.report.report import write_report
    from analytics.session.reading import read_sources

    load = os.getloadavg()[0]
    spark = open_spark(master)
    cpu_before = cpu_seconds(spark)
    began, steps = time.perf_counter(), {}
    began_stage, stage = began, "reading the files"

    def on_stage(name: str) -> None:
        nonlocal began_stage, stage
        steps[stage] = time.perf_counter() - began_stage
        began_stage, stage = time.perf_counter(), name

    sources = read_sources(spark, [directory])
    way = WORLD.direct_ms()
    made = analyse(
        spark,
        sources,
        direct=lambda cells: direct_from(cells, WORLD.names, way),
        causal=causal or None,
        on_stage=on_stage,
    )
    on_stage("writing the report")
    with tempfile.TemporaryDirectory() as out:
        files = write_report(Path(out), made)
        report_bytes = files[0].stat().st_size
    on_stage("")
    seconds = time.perf_counter() - began
    stretch = made.stretch() or {"by_destination": {}}
    by_destination = stretch["by_destination"]
    found: dict[str, Any] = {
        "deliveries": made.deliveries,
        "seconds": seconds,
        "steps_s": steps,
        "deliveries_per_s": made.deliveries / seconds,
        "slices": made.audit.order.slices,
        "cpu_s": cpu_seconds(spark) - cpu_before,
        "load_average_before": load,
        "load_average_after": os.getloadavg()[0],
        "verdict": made.audit.verdict,
        "order": {name: value for name, value in made.audit.as_dict().items() if isinstance(value, int)},
        "found": [each.describe() for each in made.audit.examples],
        "report_bytes": report_bytes,
        "stretch_mean": float(np.mean(list(by_destination.values()))),
        **memory(spark),
    }
    # The same aggregation alone, Spark and DuckDB one after the other on a warm cache of files.
    began = time.perf_counter()
    cells = add_up(sources["deliveries"])
    direct = direct_from(cells, WORLD.names, way)
    again = measure_stretch(cells, direct).by_destination.orderBy(fn.col("subscriber")).collect()
    found["stretch_query_s"] = time.perf_counter() - began
    assert len(again) == len(by_destination)
    return found | beside(directory, by_destination, found["stretch_query_s"])


def cpu_seconds(spark: Any) -> float:
    """Return the CPU time of Spark's JVM and its Python workers: what a busy machine cannot falsify."""
    ticks: dict[int, float] = {}
    parent: dict[int, int] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text(encoding="utf-8").rpartition(")")[2].split()
        except OSError:
            continue
        pid = int(status.parent.name)
        parent[pid] = int(fields[1])
        ticks[pid] = sum(map(float, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    family = {int(spark.sparkContext._gateway.proc.pid)}
    while found := {pid for pid, its in parent.items() if its in family} - family:
        family |= found
    return sum(ticks.get(pid, 0.0) for pid in family)


def memory(spark: Any) -> dict[str, float]:
    """Return the most memory that the driver's processes held, in GiB."""
    pids = {"driver_python_gib": os.getpid(), "driver_jvm_gib": spark.sparkContext._gateway.proc.pid}
    found = {}
    for name, pid in pids.items():
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
        [peak] = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")]
        found[name] = int(peak) / 1024**2
    return found


def beside(directory: Path, by_destination: dict[str, float], spark_s: float) -> dict[str, Any]:
    """Let DuckDB answer the same question, if it is installed; its answer must be the same."""
    try:
        import duckdb
        import pandas as pd
    except ImportError:
        return {"duckdb": None}
    names, direct_ms = WORLD.names, WORLD.direct_ms()
    direct = pd.DataFrame(  # noqa: F841 - DuckDB finds it by its name
        [(one, other, direct_ms[a][b]) for a, one in enumerate(names) for b, other in enumerate(names)],
        columns=["publisher", "subscriber", "direct_ms"],
    )
    began = time.perf_counter()
    connection = duckdb.connect(config={"threads": 2})
    rows = connection.sql(
        "SELECT d.subscriber, sum(d.delivered_at_ns - d.sent_at_ns) / 1e6 / sum(w.direct_ms) AS stretch "
        f"FROM read_parquet('{directory}/deliveries/*/*.parquet') AS d JOIN direct AS w USING (publisher, subscriber) "
        "WHERE d.publisher <> d.subscriber GROUP BY d.subscriber"
    ).fetchall()
    seconds = time.perf_counter() - began
    same = {name for name, value in rows if abs(value - by_destination[name]) <= 1e-9 * value}
    return {
        "duckdb": duckdb.__version__,
        "duckdb_s": seconds,
        "duckdb_agrees": len(same) == len(by_destination) == len(rows),
        "spark_over_duckdb": spark_s / seconds,
    }


if __name__ == "__main__":
    main()
