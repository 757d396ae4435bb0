"""The demo recorded, analysed, and computed again with numpy (issue 6, Done when 1)."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
import pyarrow.dataset as ds
import pytest
from click.testing import CliRunner

from cli.main import cli
from tests.integration.spark_session import needs_spark
from tests.patience import besides_waiting, scaled
from tests.shared_data import BLACK_GOLD, needs_shared_data

pytestmark = [needs_spark, needs_shared_data, pytest.mark.timeout(600)]
TRIMMED = "of stamps (unread)"
"""On links of a busy network that were trimmed before who records from outside had read them."""
GAMECAST = [sys.executable, "-m", "gamecast"]


def run(*arguments: object) -> dict[str, object]:
    done = subprocess.run(
        [*GAMECAST, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=scaled(500)
    )
    told = [line for line in besides_waiting(done.stderr).splitlines() if TRIMMED not in line]
    assert (done.returncode, told) == (0, [])
    found: dict[str, object] = json.loads(done.stdout)
    return found


@pytest.mark.usefixtures("spark")
def test_the_figures_of_a_recorded_demo_are_those_of_numpy(tmp_path: Path) -> None:
    demo = run("demo", BLACK_GOLD, "--nodes", 3, "--record", tmp_path / "demo", "--json")
    names = [f"server-{number}" for number in range(1, 9)]
    draw = np.random.default_rng(4)
    delays = draw.uniform(0.5, 3.0, (len(names), len(names)))
    matrix = tmp_path / "matrix.csv"
    lines = [",".join([name, *map(str, row)]) for name, row in zip(names, delays.tolist(), strict=True)]
    matrix.write_text("\n".join([",".join(["", *names]), *lines]))
    analyzed = CliRunner().invoke(cli, ["analyze", str(tmp_path / "demo"), "--direct", str(matrix), "--json"])
    assert (analyzed.exit_code, analyzed.stderr) == (0, "")
    found = json.loads(analyzed.stdout)

    rows = ds.dataset(sorted(map(str, (tmp_path / "demo").rglob("deliveries/*/[!.]*.parquet")))).to_table().to_pandas()
    assert rows.events.sum() > len(rows), "a row is all that was handed out together"
    several = rows.each_sent_at_ns.notna()
    rows["sent_at_ns"] = rows.each_sent_at_ns.where(several, rows.sent_at_ns.map(lambda at: [at]))
    rows = rows.explode("sent_at_ns").astype({"sent_at_ns": "int64"})
    assert found["deliveries"] == demo["deliveries"] == len(rows)
    assert found["subscribers"] == demo["subscribers"] == rows.subscriber.nunique()
    assert found["regions"] == rows.region.nunique()
    assert found["quarantined"] == 0
    order = found["order"]
    assert isinstance(order, dict)
    assert {name: order[name] for name in ("inversions", "cycles", "duplicated", "lost")} == dict.fromkeys(
        ("inversions", "cycles", "duplicated", "lost"), 0
    )
    assert (order["publisher_order_violations"], order["first"]) == (0, None)
    assert order["stamps"]["region_disagreements"] == 0
    assert order["stamps"]["atom_disagreements"] == 0
    assert 0 < order["stamps"]["atoms"] <= demo["atoms"]

    others = rows[rows.publisher != rows.subscriber]
    took: dict[str, float] = defaultdict(float)
    straight: dict[str, float] = defaultdict(float)
    for row in others.itertuples():
        took[row.subscriber] += (row.delivered_at_ns - row.sent_at_ns) / 1e6
        straight[row.subscriber] += delays[names.index(row.publisher), names.index(row.subscriber)]
    expected = {name: took[name] / straight[name] for name in took}
    stretch = found["stretch"]
    assert isinstance(stretch, dict)
    assert stretch["by_destination"] == pytest.approx(expected, abs=1e-6)
    ascending = sorted(expected.values())
    assert stretch["max"] == pytest.approx(ascending[-1], abs=1e-6)
    assert stretch["p50"] == pytest.approx(ascending[(len(ascending) + 1) // 2 - 1], abs=1e-6)

    load = found["load"]
    assert isinstance(load, dict)
    seconds = (rows.delivered_at_ns.max() - rows.delivered_at_ns.min()) / 1e9
    assert load["seconds"] == pytest.approx(seconds, abs=1e-6)
    delivered = rows.groupby("subscriber").size()
    assert {row["subscriber"]: row["deliveries"] for row in load["subscribers"]} == delivered.to_dict()
    held = (rows.delivered_at_ns - rows.received_at_ns).groupby(rows.subscriber).mean() / 1e6
    assert {row["subscriber"]: row["held_ms"] for row in load["subscribers"]} == pytest.approx(held.to_dict(), abs=1e-6)
    published = (
        ds.dataset(sorted(map(str, (tmp_path / "demo").rglob("publishes/*/[!.]*.parquet")))).to_table().to_pandas()
    )
    by_region = published[published.outcome == "acknowledged"].groupby("region").events.sum()
    assert {row["region"]: row["events"] for row in load["regions"]} == by_region.to_dict()
    plans = ds.dataset(sorted(map(str, (tmp_path / "demo").rglob("epochs/*/[!.]*.parquet")))).to_table().to_pandas()
    plan = json.loads(plans.sort_values(["epoch", "version"]).plan.iloc[-1])
    carried: dict[str, int] = defaultdict(int)
    for region, events in by_region.items():
        for node in plan["regions"][region]["path"]:
            carried[node] += int(events)
    assert {row["node"]: row["events"] for row in load["nodes"]} == carried
    busiest = int(delivered.max())
    ratios = {node: events / busiest for node, events in carried.items()}
    assert {row["node"]: row["ratio"] for row in load["nodes"]} == pytest.approx(ratios)
