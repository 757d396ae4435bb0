"""Rates of regions from a recorded session, as `gamecast plan --rates` takes them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from cli.plan import plan
from gamecast.analytics import read_session_rates
from sequencing.errors import InvalidInput

pytest.importorskip("pyarrow", reason="sessions are Parquet")

WORLD_SECONDS = 0.0999
"""1,000 events, one each 100 µs: from the first to the last."""


@pytest.fixture
def session(tmp_path: Path) -> Path:
    from analytics.session.synthetic import World, write_session

    world = World(subscribers=6, regions=6, regions_each=2, seed=2)
    made = write_session(tmp_path / "night", world, deliveries=2000)
    assert (made.events, made.deliveries) == (1000, 2000)
    return made.directory


def test_they_are_events_over_the_time_from_first_to_last(session: Path) -> None:
    rates = read_session_rates(session)
    assert sum(rates.values()) == pytest.approx(1000 / WORLD_SECONDS)
    assert list(rates) == [f"region-{number:03}" for number in range(6)]


def test_without_what_publishers_recorded_distinct_deliveries_count(session: Path) -> None:
    published = read_session_rates(session)
    shutil.rmtree(session / "publishes")
    delivered = read_session_rates(session)
    parts = {region: rate / sum(delivered.values()) for region, rate in delivered.items()}
    assert parts == pytest.approx({region: rate / sum(published.values()) for region, rate in published.items()})


def test_what_is_no_session_or_is_damaged_is_named(session: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"is not a recorded session"):
        read_session_rates(tmp_path)
    [file] = session.glob("publishes/*/*.parquet")
    file.write_bytes(file.read_bytes()[:-30])
    with pytest.raises(InvalidInput, match=r"a file of publishes cannot be read"):
        read_session_rates(session)


def test_the_plan_reckons_with_them(session: Path, tmp_path: Path) -> None:
    membership = tmp_path / "membership.csv"
    membership.write_text("subscriber,region\na,region-000\na,region-001\nb,region-000\nb,region-001\n")
    arguments = ["size", str(membership), "--nodes", "1", "--json"]
    found = json.loads(CliRunner().invoke(plan, [*arguments, "--rates", str(session)]).output)
    rates = read_session_rates(session)
    assert found["node_load"]["of_nodes"] == pytest.approx({"n1": rates["region-000"] + rates["region-001"]})
