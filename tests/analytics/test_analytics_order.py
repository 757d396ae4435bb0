"""The audit on Spark says what `gamecast audit` says, whatever the slices."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from analytics.jobs.analysis import Audit, audit_all
from analytics.jobs.cells import add_up
from analytics.jobs.numbering import number
from analytics.jobs.slices import cut
from analytics.jobs.spark import set_for
from analytics.session.quarantine import Quarantine
from analytics.session.reading import Sources, union_of
from analytics.session.schema import TABLES
from sequencing.checkers import DeliverySequence, Verdict, judge
from tests.integration.spark_session import needs_spark

pytestmark = [needs_spark, pytest.mark.timeout(600)]
WORLDS = 40
"""Each is a session of one set of deliveries, so that all of them cost one run."""


@dataclass(frozen=True)
class Delivery:
    """One row."""

    event: str
    region: str
    sender: str
    sent_at_ns: int


def random_world(seed: int) -> dict[str, list[Delivery]]:
    """Draw orders of a few subscribers: right ones, with swaps, repetitions, losses, and unrelated parts."""
    draw = random.Random(seed)
    regions = [f"r{each}" for each in range(draw.randint(1, 6))]
    events = [
        Delivery(f"e{turn}", draw.choice(regions), draw.choice("pqr"), turn * 10) for turn in range(draw.randint(3, 40))
    ]
    found = {}
    for name in [f"s{each}" for each in range(draw.randint(1, 5))]:
        mine = draw.sample(regions, draw.randint(1, len(regions)))
        seen = [event for event in events if event.region in mine and draw.random() > 0.05]
        for _ in range(draw.choice([0, 0, 0, 1, 2, 8])):
            if len(seen) > 1:
                at = draw.randrange(len(seen) - 1)
                seen[at], seen[at + 1] = seen[at + 1], seen[at]
        if seen and draw.random() < 0.2:
            seen.insert(draw.randrange(len(seen) + 1), draw.choice(seen))
        found[name] = seen
    return found


def verdict_of(world: dict[str, list[Delivery]]) -> Verdict:
    return judge(
        DeliverySequence(
            name,
            [e.event for e in seen],
            [e.region for e in seen],
            [e.sender for e in seen],
            [e.sent_at_ns for e in seen],
        )
        for name, seen in world.items()
        if seen
    )


def rows_of(worlds: list[dict[str, list[Delivery]]]) -> Iterator[tuple[object, ...]]:
    for turn, world in enumerate(worlds):
        draw = random.Random(turn)
        for name, seen in world.items():
            at_ns = 0
            for index, each in enumerate(seen):
                # Half of the worlds have delays that have nothing to do with the order: times are only a hint.
                late = draw.randint(0, 300) if turn % 2 else 5
                at_ns = max(at_ns + 1, each.sent_at_ns + late)
                yield (f"w{turn:02}", name, index, each.region, each.sender, each.event, each.sent_at_ns, at_ns)


@pytest.fixture(scope="module")
def worlds() -> list[dict[str, list[Delivery]]]:
    return [random_world(seed) for seed in range(WORLDS)]


@pytest.fixture(scope="module", params=[1_000_000, 60], ids=["one slice", "many slices"])
def audited(request: pytest.FixtureRequest, spark: SparkSession, worlds: list[dict[str, list[Delivery]]]) -> Audit:
    schema = (
        "session string, subscriber string, index long, region string, publisher string, event string, "
        "sent_at_ns long, delivered_at_ns long"
    )
    deliveries = spark.createDataFrame(list(rows_of(worlds)), schema)
    absent = ("incarnation", "long"), ("host", "string"), ("epoch", "long"), ("sequence", "long"), ("replayed", "long")
    for name, kind in absent:
        deliveries = deliveries.withColumn(name, fn.lit(None).cast(kind))
    deliveries = deliveries.withColumn("received_at_ns", fn.col("delivered_at_ns"))
    sources = sources_of(spark, deliveries)
    cells = add_up(deliveries).persist()
    numbering = number(deliveries, cells)
    set_for(spark, deliveries=WORLDS)
    slices = cut(numbering, deliveries=deliveries.count(), deliveries_per_slice=request.param)
    assert slices.count > 10 or request.param > 60
    return audit_all(sources, numbering, slices, cells)


def sources_of(spark: SparkSession, deliveries: DataFrame) -> Sources:
    """Deliveries, and nothing else."""
    empty = {table.name: union_of(spark, table.name, []) for table in TABLES}
    return Sources(empty | {"deliveries": deliveries}, {}, {}, Quarantine(), logs=True, unfinished=0)


def test_it_counts_what_the_checkers_count(audited: Audit, worlds: list[dict[str, list[Delivery]]]) -> None:
    verdicts = [verdict_of(world) for world in worlds]
    assert audited.order.inversions == sum(verdict.inversions for verdict in verdicts) > 50
    assert audited.order.cycles == sum(verdict.cycles for verdict in verdicts) > 20
    assert audited.duplicated == sum(verdict.duplicated for verdict in verdicts) > 0
    assert audited.publisher_order_violations == sum(v.publisher_order_violations for v in verdicts) > 0


def test_the_pairs_of_regions_account_for_every_inversion(
    audited: Audit, worlds: list[dict[str, list[Delivery]]]
) -> None:
    by_session: dict[str, int] = {}
    for pair in audited.order.pairs:
        by_session[pair.session] = by_session.get(pair.session, 0) + pair.inversions
    expected = {f"w{turn:02}": verdict_of(world).inversions for turn, world in enumerate(worlds)}
    assert {name: count for name, count in by_session.items() if count} == {n: c for n, c in expected.items() if c}


def test_the_first_offence_is_one(audited: Audit, worlds: list[dict[str, list[Delivery]]]) -> None:
    for pair in audited.order.pairs:
        if pair.first is None or pair.first.kind != "inversion":
            continue
        world = worlds[int(pair.session[1:])]
        one, other = pair.first.events
        places = []
        for subscriber in pair.first.subscribers:
            seen = [each.event for each in world[subscriber]]
            places.append(seen.index(one) < seen.index(other))
        assert places == [True, False]
    assert audited.order.first is not None
