"""The session: what its two machines, the publisher and the subscriber, learn of each other."""

from __future__ import annotations

from sequencing.cut import ReadResult
from sequencing.errors import OutOfMemory, Superseded
from sequencing.frames import UNKNOWN_END, FrameKind, PublishedFrame, StampedFrame
from sequencing.node import TICK_META, Node
from sequencing.plan import Plan
from sequencing.ready import Missing, Ready
from sequencing.record import Interest, Record
from sequencing.session import Effects, Session

REGIONS = frozenset("ab")


def record(epoch: int = 1) -> Record:
    """Both regions begin in the epoch, at one node."""
    plan = Plan(epoch, 1, "causal", {"n1": ""}, {"a": ("n1",), "b": ("n1",)}, ())
    return Record(plan, {"me": REGIONS}, {"me": Interest(1, 1)})


class Host:
    """Carries out a session's effects with one node. It reads only when a test says so."""

    def __init__(self) -> None:
        self.session: Session[str] = Session("me", 1, causal=True)
        self.node = Node("n1")
        self.delivered: list[Ready | Missing] = []
        self.failed: list[str] = []
        self.mark_again = 0
        plan = record().plan
        self.node.install(plan.epoch, plan.version, plan.steps("n1"))
        self.carry_out(self.session.subscribe(REGIONS))
        self.carry_out(self.session.changed(record()))
        self.carry_out(self.session.found_ends([(region, 1, None) for region in sorted(REGIONS)]))
        self.read()
        assert self.session.joined == REGIONS
        self.delivered.clear()

    def carry_out(self, effects: Effects[str]) -> None:
        self.delivered += effects.deliver
        for each in effects.resolve:
            self.failed += each.tokens if each.error is not None else ()
        for region, body in effects.mark_again:
            self.mark_again += 1
            self.carry_out(self.session.mark(region, body))
        for node in effects.publish:
            self.offer(node)

    def offer(self, node: str) -> None:
        while frames := self.session.take(node):
            self.carry_out(self.session.answered(node, self.node.publish(frames)))

    def publish(self, region: str) -> None:
        if (node := self.session.publish(region, b"1", False, 0, f"event in {region}")) is not None:
            self.offer(node)

    def read(self, *more: StampedFrame) -> None:
        """Read all that the node has, and then some more."""
        frames = list(more)
        for region, read in self.session.reads().items():
            stream = self.node.egress.get((read.epoch, region), [])
            frames[:0] = [frame for frame in stream if frame.last > (read.after or 0)]
        self.carry_out(self.session.read(ReadResult(frames, dict.fromkeys(REGIONS, 1))))

    def accepted(self, region: str) -> int:
        """Return how many events of this connection a region has accepted."""
        return sum(frame.meta.startswith(b"%d 1 1 " % FrameKind.EVENTS) for frame in self.node.egress[1, region])

    def lose_last(self, region: str) -> StampedFrame:
        """Lose the newest frame of a region after it was accepted."""
        return self.node.egress[1, region].pop()


def test_an_event_waits_until_the_one_before_it_elsewhere_was_delivered() -> None:
    host = Host()
    host.publish("a")
    host.publish("b")
    assert (host.accepted("a"), host.accepted("b")) == (1, 0)
    host.read()
    assert host.accepted("b") == 1
    host.read()
    assert [item.frame.region for item in host.delivered if isinstance(item, Ready)] == ["a", "b"]


def test_an_event_does_not_wait_for_one_that_is_missing() -> None:
    host = Host()
    host.publish("a")
    host.lose_last("a")
    host.publish("b")
    host.read()
    assert host.accepted("b") == 0
    host.node.publish([PublishedFrame("a", 1, "other", 1, 1, 1, b"")])
    host.read()
    assert [type(item) for item in host.delivered] == [Missing, Ready]
    assert host.accepted("b") == 1


def test_an_event_does_not_wait_for_one_that_was_lost_with_the_end_of_its_epoch() -> None:
    """The stream is sealed by a manager that does not know how many events there were."""
    host = Host()
    host.publish("a")
    host.lose_last("a")
    host.publish("b")
    host.carry_out(host.session.changed(record(epoch=2)))
    tick = StampedFrame("a", 1, UNKNOWN_END, TICK_META, b"", b"")
    assert host.session.waiting_events("n1") == 0
    host.carry_out(host.session.read(ReadResult([tick], {"a": 1, "b": 1})))
    assert host.session.awaits_own(frozenset("b"))
    assert not host.session.awaits_own(frozenset("a"))


def test_a_marker_that_failed_is_published_again_and_one_of_a_superseded_connection_is_not() -> None:
    host = Host()
    for error, again in ((OutOfMemory("full"), 1), (Superseded("by another"), 0)):
        host.session.mark("a", b"marker")
        effects = host.session.failed(["a"], in_flight=error, waiting=error)
        assert not effects.resolve
        assert len(effects.mark_again) == again


def test_effects_say_once_that_other_streams_are_to_be_read() -> None:
    host = Host()
    effects = host.session.unsubscribe({"a"})
    assert (effects.reads_changed, effects.interest_changed) == (True, True)
    assert not host.session.read(ReadResult([], {"b": 1})).reads_changed
    assert host.session.reads().keys() == {"b"}
