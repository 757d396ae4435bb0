"""The cost of recording: the same events with and without it, by turns, in one run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow.parquet as pq
from rich.console import Group

from analytics.session.runs import events_of
from analytics.session.schema import EVENTS, PARTITION, TABLE_OF
from laboratory.bench.campaign import CEILING, COST, MEASURES, Campaign, document
from laboratory.bench.figures import median
from laboratory.bench.peers.network import GamecastPeer
from laboratory.bench.table import table_of
from laboratory.bench.workload import Phases

PLAIN, RECORDED = "not recorded", "recorded"


def measure_recording(
    *, size: int, runs: int, phases: Phases, begin: Callable[[str, int, int], None]
) -> dict[str, Any]:
    """Run trials with and without by turns; return what ``gamecast bench recording --json`` prints.

    ``size``: subscribers, and regions. Blocks for minutes; raises as `run_trial` does.
    """
    with TemporaryDirectory(prefix="gamecast-bench-") as directory:
        session = Path(directory) / "session"
        peers = (GamecastPeer(PLAIN), GamecastPeer(RECORDED, session=session))
        campaign = Campaign(peers=peers, sizes=(size,), runs=runs, phases=phases)
        trials = campaign.run(begin)
        kept = _kept(session)
    measured = document(trials, campaign, RECORDED)
    figures = {name: measured["peers"][name][str(size)] for name in (PLAIN, RECORDED)}
    pairs = list(zip(trials[PLAIN][size], trials[RECORDED][size], strict=True))
    overheads = [1 - after.deliveries_per_s / before.deliveries_per_s for before, after in pairs]
    return {
        "figures": figures,
        "ratios": {name: measured["ratios"][name][PLAIN][str(size)] for name in (*MEASURES, COST, CEILING)},
        "overhead": median(overheads),
        "overheads": overheads,
        "session": kept,
        "unrecorded": trials[RECORDED][size][-1].expected - kept.get("deliveries", {"events": 0})["events"],
        **{key: measured[key] for key in ("cores", "versions", "workload")},
    }


def _kept(session: Path) -> dict[str, dict[str, int]]:
    """Return, table → rows, events and bytes on disk, what a session holds; events are rows but where they are runs."""
    found = {}
    for table in TABLE_OF.values():
        files = sorted(session.glob(f"{table.name}/{PARTITION}=*/*.parquet"))
        if files:
            found[table.name] = {
                "rows": sum(pq.read_metadata(file).num_rows for file in files),
                "events": sum(
                    events_of(pq.read_table(file, columns=[EVENTS] if table.runs else []), table) for file in files
                ),
                "bytes": sum(file.stat().st_size for file in files),
            }
    return found


def report(result: Mapping[str, Any]) -> Group:
    """A table of 80 columns, and what the columns mean."""
    table = table_of("\n", ("deliveries\nper s", "p50\nms", "p99\nms", "CPU µs a\ndelivery", "allows\nper s"))
    for name, figures in result["figures"].items():
        numbers = (figures["p50_ms"], figures["p99_ms"], figures[COST]["all"])
        row = (f"{figures['deliveries_per_s']:,.0f}", *(f"{number:.2f}" for number in numbers))
        table.add_row(name, *row, f"{figures[CEILING]:,.0f}")
    ratios = (result["ratios"][name] for name in ("deliveries_per_s", "p50_ms", "p99_ms", COST, CEILING))
    table.add_row("ratio", *(f"{ratio:.2f}" for ratio in ratios))
    kept = result["session"].get("deliveries", {"events": 0, "bytes": 0})
    runs, each = result["workload"]["runs"], kept["bytes"] / max(1, kept["events"])
    pairs = "one pair" if runs == 1 else f"the median of {runs} pairs"
    note = (
        f"Recording overhead: {result['overhead']:.1%} of throughput, {pairs} of runs\n"
        f"({min(result['overheads']):.1%} to {max(result['overheads']):.1%}). "
        f"The last session holds {kept['events']:,} deliveries,\n{each:.1f} bytes each."
    )
    return Group(table, note)
