"""The short way of a lone event: what takes it, and what must not. That both ways do the same: test_both_ways.py."""

from __future__ import annotations

import pytest

from sequencing.cut import ReadResult, Streams
from sequencing.everywhere import everywhere
from sequencing.frames import FrameKind, PublishedFrame, StampedFrame, encode_json_body
from sequencing.keyed import NO_EXTRAS, Extras, Named
from sequencing.node import Node
from sequencing.plan import Plan
from sequencing.record import Record
from sequencing.session import Session

SOLE = Plan(1, 1, "acyclic", {"n1": ""}, everywhere("n1"), (), sole="n1")
BODY = encode_json_body([0], [b"1"])


class World:
    """A session that has joined two regions at one node, and a publisher there."""

    def __init__(self) -> None:
        self.node = Node("n1")
        self.node.begin_any(1, 1)
        self.session: Session[str] = Session("me", 2)
        self.session.changed(Record(SOLE))
        self.numbers: dict[tuple[str, str], int] = {}
        self.whole = Streams({})
        self.join("forest", "river")
        for region in ("forest", "river"):  # what comes first goes the general way, and shows what comes next
            assert self.come(self.publish(region)) == "general"

    def join(self, *regions: str) -> None:
        self.session.subscribe(regions)
        request = self.session.request()
        assert request is not None
        self.session.granted(request)
        effects = self.session.found_ends([(region, 1, None) for region in regions])
        for region, body in self.session._subscriber.marks():
            self.session.mark(region, body)
        for node in ("n1", *effects.publish):
            if frames := self.session.take(node):
                self.session.answered(node, self.node.publish(frames))
        self.whole = Streams(dict.fromkeys(self.session.wanted, 1))
        self.read_all()

    def read_all(self) -> None:
        after = {region: read.after or 0 for region, read in self.session.reads().items()}
        frames = [
            frame
            for region, last in after.items()
            for frame in self.node.egress.get((1, region), ())
            if frame.last > last
        ]
        self.session.read(ReadResult(frames, self.whole))

    def publish(
        self,
        region: str,
        publisher: str = "other",
        *,
        events: int = 1,
        kind: FrameKind = FrameKind.EVENTS,
        extras: Extras = NO_EXTRAS,
    ) -> StampedFrame:
        first = self.numbers.get((region, publisher), 0) + 1
        self.numbers[region, publisher] = first + events - 1
        body = encode_json_body([0] * events, [b"1"] * events)
        self.node.publish([PublishedFrame(region, 1, publisher, 5, first, events, body, kind, extras=extras)])
        return self.node.egress[1, region][-1]

    def come(self, frame: StampedFrame, whole: Streams | None = None) -> str:
        """Bring a frame alone; return the way that it took."""
        ready = self.session.read_next(frame, whole or self.whole)
        if ready is not None:
            assert ready.frame == frame
            return "short"
        self.session.read(ReadResult([frame], whole or self.whole))
        return "general"


def test_what_comes_next_of_a_settled_region_takes_the_short_way() -> None:
    world = World()
    assert [world.come(world.publish(region)) for region in ("forest", "river", "forest")] == ["short"] * 3
    assert world.session.reads()["forest"].after == world.node.egress[1, "forest"][-1].last
    assert world.come(world.publish("forest", "a third one")) == "short"


def test_a_region_that_has_moved_is_not_taken_for_quiet() -> None:
    world = World()
    world.session._subscriber._markers.requests = 7
    assert world.come(world.publish("forest")) == "short"
    assert world.session._subscriber._regions.all["forest"].moved_in == 7


@pytest.mark.parametrize(
    "what", ["two events", "a marker", "own", "again", "behind a gap", "another epoch", "an odd stamp", "no numbers"]
)
def test_what_is_not_as_expected_goes_the_general_way(what: str) -> None:
    world = World()
    match what:
        case "two events":
            frame = world.publish("forest", events=2)
        case "a marker":
            frame = world.publish("forest", kind=FrameKind.JOIN)
        case "own":
            frame = world.publish("forest", "me")
        case "again":
            frame = world.node.egress[1, "forest"][-1]
        case "behind a gap":
            world.publish("forest")
            frame = world.publish("forest")
        case "another epoch":
            frame = world.publish("forest")._replace(epoch=2)
        case "an odd stamp":
            frame = world.publish("forest")
            frame = frame._replace(stamp=frame.stamp + b",7,1")
        case _:
            frame = world.publish("forest")._replace(stamp=b"")
    assert world.come(frame) == "general"


@pytest.mark.parametrize("what", ["a join", "a leave", "a plan", "another read", "other streams", "a wake"])
def test_what_may_change_the_grounds_ends_it(what: str) -> None:
    world, whole = World(), None
    match what:
        case "a join":
            world.session.subscribe(["lake"])
        case "a leave":
            world.session.unsubscribe(["river"])
        case "a plan":
            plan = Plan(1, 2, "acyclic", {"n1": ""}, {"forest": ("n1",), "river": ("n1",)}, ())
            wanted = world.session.interest()
            world.session.changed(Record(plan, {"me": frozenset(wanted.since)}, {"me": wanted}))
        case "another read":
            frames = [world.publish("river"), world.publish("river", kind=FrameKind.JOIN)]
            world.session.read(ReadResult(frames, world.whole))
        case "other streams":
            whole = Streams(world.whole)
        case _:
            world.session.publish("forest", b"1", False, 0, "x")
    assert world.come(world.publish("forest"), whole) == "general"


def test_several_plain_events_that_come_at_once_change_nothing_else() -> None:
    world = World()
    frames = [world.publish("river"), world.publish("forest", events=2), world.publish("river")]
    world.session.read(ReadResult(frames, world.whole))
    assert [world.come(world.publish(region)) for region in ("forest", "river")] == ["short"] * 2


def test_what_is_missing_among_several_ends_it() -> None:
    world = World()
    lost = world.publish("river")
    world.session.read(ReadResult([world.publish("forest"), world.publish("river")], world.whole))
    assert lost.last < world.node.egress[1, "river"][-1].last
    assert world.come(world.publish("forest")) == "general"


def test_other_streams_are_expected_once_one_has_come_with_them() -> None:
    world = World()
    whole = Streams(world.whole)
    assert [world.come(world.publish("forest"), whole) for _ in range(2)] == ["general", "short"]


def test_it_goes_on_after_the_general_way() -> None:
    world = World()
    assert world.come(world.publish("forest", events=2)) == "general"
    assert world.come(world.publish("forest")) == "short"
    assert world.come(world.publish("forest", kind=FrameKind.JOIN)) == "general"
    assert [world.come(world.publish("forest")) for _ in range(2)] == ["general", "short"]


def test_keys_make_no_difference_to_the_order() -> None:
    world = World()
    named = Extras(names=(Named(0, "door", deletes=False),))
    assert world.come(world.publish("forest", extras=named)) == "short"


def test_causal_order_goes_the_general_way() -> None:
    session: Session[str] = Session("me", 2, causal=True)
    frame = StampedFrame("forest", 1, 1, b"0 1 5 1 other", b"0,1", BODY)
    assert session.read_next(frame, Streams({"forest": 1})) is None
