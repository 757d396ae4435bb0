"""What a change costs grows with the change, not with the regions beside it. Calls and bytes are counted, not timed."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable
from types import FrameType

from sequencing.conditions import can_follow_all
from sequencing.plan import Plan
from sequencing.record import Interest, Record
from sequencing.subscriber import Subscriber


def plan_of(regions: list[str]) -> Plan:
    return Plan(1, 1, "acyclic", {"n1": ""}, dict.fromkeys(regions, ("n1",)), ())


def calls_of(work: Callable[[], object]) -> int:
    """Return how many functions of Python a call of ``work`` makes."""
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
    return calls


def calls_to_join_all(count: int) -> int:
    """Return the calls that the ends of so many regions, found together, take a new subscriber."""
    regions = [f"r{number}" for number in range(count)]
    me = Subscriber("me", 1)
    me.subscribe(regions)
    me.update(Record(plan_of(regions), {"me": frozenset(regions)}, {"me": Interest(1, 1)}))
    ends = [(region, read.epoch, None) for region, read in me.reads().items()]
    calls = calls_of(lambda: me.found_ends(ends))
    assert len(me.marks()) == count
    return calls


def test_the_ends_of_many_regions_are_found_in_one_walk() -> None:
    assert calls_to_join_all(1_600) < 5 * calls_to_join_all(400)


def test_pairs_that_end_together_are_not_enumerated() -> None:
    """A list of the pairs of 1,600 regions would take 200 MB."""
    regions = frozenset(f"r{number}" for number in range(1_600))
    plan = plan_of([*regions])
    tracemalloc.start()
    try:
        assert can_follow_all(plan, regions)
        _, most_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most_bytes < 2_000_000
