"""What a change costs grows with the change, not with the regions beside it. Calls and bytes are counted, not timed."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import FrameType
from typing import Any

import pytest

from adapters.places import Places
from adapters.redis.evidence import Evidence
from adapters.redis.streamsread import StreamsRead
from sequencing.conditions import can_follow_all
from sequencing.cut import ReadResult, Streams
from sequencing.frames import StampedFrame
from sequencing.keyspace import NodeKeys
from sequencing.node import Answer, Verdict
from sequencing.plan import Atom, AtomId, Plan
from sequencing.record import Interest, Record
from sequencing.session import Session
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


def steps_of(work: Callable[[], object]) -> int:
    """Return how many bytecodes Python executes for a call of ``work``: a loop counts in each turn."""
    steps = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal steps
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        steps += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return steps


class World:
    """One connection that has joined many regions, of one node or of two with an atom for all of them."""

    def __init__(self, count: int, *, nodes: int = 1) -> None:
        self.regions = [f"r{number:05d}" for number in range(count)]
        self.nodes = nodes
        self.session: Session[str] = Session("me", 1)
        self.plan = replace(plan_of(self.regions), nodes={"n1": "", "n2": ""})
        if nodes > 1:
            far = self.regions[count // 2 :]
            paths = {**self.plan.paths, **dict.fromkeys(far, ("n1", "n2"))}
            self.plan = replace(self.plan, paths=paths, atoms=(Atom(AtomId(1), tuple(self.regions), "n1"),))
        self.said = 0
        self.numbers = dict.fromkeys(("n1", "n2"), 0)
        self.last = dict.fromkeys(self.regions, 0)
        self.streams = {node: Streams({}) for node in ("n1", "n2")}
        """Node → what a reader reads there at once."""
        self.subscribe(*self.regions)

    def subscribe(self, *regions: str) -> None:
        """Ask for regions, be granted them, find their ends, publish their markers, and read these."""
        self.session.subscribe(regions)
        self.said += 1
        self.announce({region: ("n1",) for region in regions if region not in self.plan.paths})
        for node in ("n1", "n2"):
            reads = self.session.changed_reads(node)
            ends = [(region, read.epoch, None) for region, read in reads.items() if read and read.after is None]
            self.session.found_ends(ends)
            self.session.changed_reads(node)
            self.streams[node] = self.streams[node].with_changes({region: 1 for region, _, _ in ends})
        while frames := self.session.take("n1"):
            for frame in frames:
                meta = b"1 1 1 %d me" % frame.first
                self.read(self.next(frame.region, meta, frame.body))
            self.session.answered("n1", [Answer(Verdict.OK, (1, self.last[frame.region])) for frame in frames])
        assert self.session.joined >= set(regions)

    def announce(self, paths: Mapping[str, tuple[str, ...]] = {}, *, name: str = "other") -> None:
        """Follow a record with more regions, or with another subscriber."""
        self.plan = replace(self.plan, version=self.plan.version + 1, paths={**self.plan.paths, **paths})
        self.last |= dict.fromkeys(paths, 0)
        members = {"me": frozenset(self.session.wanted), name: frozenset(("r00000",))}
        self.session.changed(Record(self.plan, members, {"me": Interest(1, self.said)}))

    def next(self, region: str, meta: bytes = b"0 1 1 1 p", body: bytes = b"[0,[0],[1]]") -> StampedFrame:
        node = self.plan.paths[region][-1]
        self.numbers[node] += 1
        self.last[region] += 1
        stamp = b"0,%d" % self.numbers[node]
        if self.nodes > 1:
            stamp += b",1,%d" % sum(self.numbers.values())
        return StampedFrame(region, 1, self.last[region], meta, stamp, body)

    def read(self, frame: StampedFrame) -> None:
        self.session.read(self.result(frame))

    def result(self, frame: StampedFrame) -> ReadResult:
        return ReadResult([frame], self.streams[self.plan.paths[frame.region][-1]])


def join_one_more(world: World) -> Callable[[], object]:
    return lambda: world.subscribe("x")


def leave_one(world: World) -> Callable[[], object]:
    return lambda: world.session.unsubscribe([world.regions[1]])


def take_an_event(world: World) -> Callable[[], object]:
    frame = world.next(world.regions[-1])
    result = world.result(frame)
    return lambda: world.session.read(result)


def follow_a_plan_about_others(world: World) -> Callable[[], object]:
    return lambda: world.announce({"of another": ("n1",)})


WORK = {
    "one more join": (join_one_more, 1),
    "a leave": (leave_one, 1),
    "an event": (take_an_event, 1),
    "an event, with an atom": (take_an_event, 2),
    "a plan about others": (follow_a_plan_about_others, 1),
}


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="not every opcode is reported from Python 3.12 on")
@pytest.mark.parametrize("what", WORK)
def test_what_a_session_does_does_not_grow_with_its_regions(what: str) -> None:
    make, nodes = WORK[what]
    few, many = (steps_of(make(World(count, nodes=nodes))) for count in (50, 1_500))
    assert few > 10, "it is counted"
    assert many < 1.1 * few, "some loop goes over all regions"


def test_a_reader_of_many_streams_takes_over_one_more_by_itself() -> None:
    def steps(count: int) -> int:
        places = Places((f"r{number}", (1, 0)) for number in range(count))
        reading = StreamsRead(NodeKeys("n1"), places, Evidence(NodeKeys("n1")))
        reading.command(1, None)

        def change() -> None:
            places.put("x", (1, 7))
            places.drop("r3")
            reading.turn()
            assert reading.command(1, None).count(b"egress") == count

        return steps_of(change)

    assert steps(2_000) < 1.1 * steps(50)
