"""Regions that are followed for their atoms only, taken up again and left at bad moments; and what retention takes.

Hand-made interleavings of a real manager's records, a node and subscribers, each of which once went wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

import pytest

from laboratory.simulation.lines import plan_along
from sequencing.frames import FrameKind, PublishedFrame, StampedFrame
from sequencing.manager import next_record
from sequencing.membership import Membership
from sequencing.node import Node
from sequencing.plan import Ordering, Plan
from sequencing.publisher import Publisher
from sequencing.ready import Missing, Ready
from sequencing.record import Record
from sequencing.subscriber import Subscriber
from sequencing.transition import Transition

ENDS = {region: f"end-{region}" for region in "abcde"}


def planned(ordering: Ordering, membership: Membership, epoch: int, first_atom: int) -> Plan:
    """All regions begin at one node, where the atoms are, and each ends at one of its own: atoms alone order them."""
    plan = plan_along(
        ["n1"],
        membership,
        ordering,
        epoch=epoch,
        first_atom=first_atom,
        place=lambda _: 0,
        keeps_needless=lambda: True,
    )
    paths = {region: ("n1", ENDS[region]) for region in plan.paths}
    return replace(plan, nodes=dict.fromkeys(["n1", *ENDS.values()], ""), paths=paths)


def sparing(ordering: Ordering, membership: Membership, epoch: int, first_atom: int) -> Plan:
    """Plan as `planned`, without atoms whose regions another one has too: that is sound, and gives atoms more to do."""
    plan = planned(ordering, membership, epoch, first_atom)
    kept = tuple(one for one in plan.atoms if not any(set(one.regions) < set(other.regions) for other in plan.atoms))
    return replace(plan, atoms=kept)


class Net:
    """Nodes, and subscribers that read them when they are told to; ``told``: what each was handed out, in order."""

    def __init__(self, ordering: Ordering, plan: Callable[..., Plan], names: str) -> None:
        self.nodes = {name: Node(name) for name in ("n1", *ENDS.values())}
        self.node = self.nodes["n1"]
        self.told: dict[str, list[str | Missing]] = {}
        self._planner = partial(plan, ordering)
        self._record = Record(Plan(1, 1, ordering, dict.fromkeys(self.nodes, ""), {}, ()))
        self._subscribers: dict[str, Subscriber] = {}
        self._markers: list[tuple[str, str, bytes]] = []
        self._numbers = Counter[tuple[str, str]]()
        for name in names.split():
            self.add(name)

    @property
    def plan(self) -> Plan:
        return self._record.plan

    def add(self, name: str) -> Subscriber:
        self.told[name] = []
        self._subscribers[name] = Subscriber(name, 1)
        self._subscribers[name].update(self._record)
        return self._subscribers[name]

    def __getitem__(self, name: str) -> Subscriber:
        return self._subscribers[name]

    def subscribe(self, name: str, regions: str) -> None:
        self._take(name, self[name].subscribe(regions))

    def unsubscribe(self, name: str, regions: str) -> None:
        self._take(name, self[name].unsubscribe(regions))

    def follow(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Everybody follows the record that everybody's wishes make; ``meanwhile``: what happens before they hear."""
        interests = {name: subscriber.interest() for name, subscriber in self._subscribers.items()}
        record = next_record(self._record, interests, (), self._planner)
        assert record is not None
        meanwhile()
        transition = Transition(record)
        while not transition.finished:
            for task in transition.tasks():
                transition.done(task, task.perform(self.nodes[task.node]))
                self._pass_on()
        for name, subscriber in self._subscribers.items():
            self._take(name, subscriber.update(record))
        self._record = record.settled()

    def publish(self, publisher: str, events: str) -> None:
        """Publish events like ``a1 b1``: the letter is the region, and the whole is the body."""
        for event in events.split():
            self._publish(publisher, event[0], event.encode(), FrameKind.EVENTS)

    def mark(self, regions: str) -> bool:
        """Publish the markers that wait for that; return whether there were any."""
        now = [marker for marker in self._markers if marker[1] in regions]
        self._markers = [marker for marker in self._markers if marker not in now]
        for name, region, body in now:
            self._publish(name, region, body, FrameKind.JOIN)
        return bool(now)

    def read(self, name: str, regions: str) -> bool:
        """Have a subscriber read regions once; return whether there was anything to read."""
        found = False
        for region, read in self[name].reads().items():
            if region not in regions:
                continue
            stream = self.nodes[read.node].egress.get((read.epoch, region), [])
            if read.after is None:
                self._take(name, self[name].found_ends([(region, read.epoch, stream[-1] if stream else None)]))
                found = True
            elif frames := [frame for frame in stream if frame.last > read.after]:
                self._take(name, self[name].receive(frames))
                found = True
        return found

    def rest(self, names: str = "") -> None:
        """Have everybody, or some, mark and read until there is nothing to do."""
        while any([self.mark("abcde"), *(self.read(name, "abcde") for name in names.split() or self.told)]):
            pass

    def trim(self, region: str) -> None:
        """Do what retention does: only the newest three frames stay."""
        del self.egress(self.plan.epoch_of(region), region)[:-3]

    def egress(self, epoch: int, region: str) -> list[StampedFrame]:
        """The stream that subscribers read of a region."""
        return self.nodes[self.plan.egresses[region]].egress[epoch, region]

    def is_agreed(self) -> bool:
        """Return whether all pairs of subscribers were handed out what they share in one order."""
        return all(
            [event for event in mine if event in theirs] == [event for event in theirs if event in mine]
            for mine in self.told.values()
            for theirs in self.told.values()
        )

    def _publish(self, publisher: str, region: str, body: bytes, kind: FrameKind) -> None:
        self._numbers[publisher, region] += 1
        number = self._numbers[publisher, region]
        frame = PublishedFrame(region, self.plan.epoch_of(region), publisher, 1, number, 1, body, kind)
        [answer] = self.node.publish([frame])
        assert answer.verdict == "ok"
        self._pass_on()

    def _pass_on(self) -> None:
        for target, linked in self.node.links.items():
            self.node.acknowledge(target, self.nodes[target].transfer("n1", linked).accepted)

    def _take(self, name: str, items: Iterable[Ready | Missing]) -> None:
        for item in items:
            if isinstance(item, Missing):
                self.told[name].append(item)
            elif item.meta.kind == FrameKind.EVENTS:
                self.told[name].append(item.frame.body.decode())
        self._markers += ((name, region, body) for region, body in self[name].marks())


def joined(ordering: Ordering, plan: Callable[..., Plan], **regions: str) -> Net:
    """Return a net whose subscribers have joined regions."""
    net = Net(ordering, plan, " ".join(regions))
    for name, mine in regions.items():
        net.subscribe(name, mine)
    net.follow()
    net.rest()
    assert all(net[name].joined == set(mine) for name, mine in regions.items())
    return net


def test_a_shadow_that_is_wanted_again_is_handed_out_once_an_atom_orders_it() -> None:
    net = joined("overlap", sparing, me="abcde", s1="cde", s2="abc")
    epoch = net.plan.epoch
    net.unsubscribe("me", "abc")
    assert set(net["me"].reads()) == set("cde"), "c is followed: it orders d and e"
    net.subscribe("me", "a")
    net.follow()
    net.rest()
    assert net["me"].joined == set("ade")
    net.subscribe("me", "c")
    net.follow()
    assert net.plan.epoch == epoch
    net.publish("p", "a1 c1")
    net.read("me", "c")
    net.rest()
    assert net["me"].joined == set("acde")
    net.publish("p", "a2 c2")
    net.rest()
    assert net.told["s2"] == ["a1", "c1", "a2", "c2"]
    assert net.told["me"][-2:] == ["a2", "c2"]
    assert net.is_agreed(), net.told


def test_a_shadow_that_is_wanted_again_on_its_way_into_an_epoch_is_ordered() -> None:
    net = joined("acyclic", planned, me="abc", s1="abc")
    net.add("s2")
    net.subscribe("s2", "ab")
    net.follow(meanwhile=lambda: net.unsubscribe("me", "b"))
    epoch = net.plan.epoch
    net.read("me", "a")
    net.rest("s1 s2")
    assert {region: read.epoch for region, read in net["me"].reads().items()} == {
        "a": epoch,
        "b": epoch - 1,
        "c": epoch - 1,
    }
    net.unsubscribe("me", "a")
    net.subscribe("me", "b")
    net.follow()
    assert net.plan.epoch == epoch
    net.publish("p", "b1 c1")
    for regions in ("bc", "c", "b"):
        net.read("me", regions)
    net.rest()
    net.publish("p", "b2 c2")
    net.rest()
    assert net["me"].joined == set("bc")
    assert net.told["s1"] == ["b1", "c1", "b2", "c2"]
    assert net.told["me"][-2:] == ["b2", "c2"]
    assert net.is_agreed(), net.told


def test_what_is_held_back_stays_so_when_another_atom_takes_over() -> None:
    net = joined("overlap", sparing, me="abcd", s1="abc", s2="abd")
    assert sorted(atom.regions for atom in net.plan.atoms) == [("a", "b", "c"), ("a", "b", "d")]
    net.unsubscribe("me", "abcd")
    net.subscribe("me", "ab")
    net.follow()
    net.read("me", "abcde")
    [shadow] = net["me"].reads().keys() - set("ab")
    [other] = set("cd") - {shadow}
    net.mark("ab")
    net.read("me", "ab")
    net.subscribe("me", other)  # before the shadow is marked, which is of no use any more
    net.follow()
    assert set(net["me"].reads()) == {"a", "b", other}
    net.publish("p", "b1 a1")
    net.read("me", "a")
    net.read("me", "b")
    net.rest()
    net.publish("p", "b2 a2")
    net.rest()
    assert net["me"].joined == {"a", "b", other}
    assert net.told["s1"] == net.told["s2"] == ["b1", "a1", "b2", "a2"]
    assert net.told["me"][-2:] == ["b2", "a2"]
    assert net.is_agreed(), net.told


def test_a_region_that_was_followed_in_the_shadow_begins_where_it_is_handed_out() -> None:
    net = joined("acyclic", planned, me="abc", s1="abc")
    net.publish("p", "c1 c2 c3")
    net.rest()
    net.unsubscribe("me", "c")
    assert set(net["me"].reads()) == set("abc")
    net.publish("p", "c4 c5 c6")
    net.rest()
    net.subscribe("me", "c")
    net.follow()
    net.rest()
    epoch, begin = net["me"].begin("c")
    net.publish("p", "c7")
    net.rest()
    assert net.told["me"] == ["c1", "c2", "c3", "c7"]
    last = {frame.body.decode(): frame.last for frame in net.egress(epoch, "c")}
    assert last["c6"] <= begin < last["c7"], "whoever asked for history gets the rest of it"


def test_a_marker_that_retention_took_is_published_again() -> None:
    net = joined("acyclic", planned, me="ab", s1="ab")
    net.unsubscribe("me", "b")
    net.subscribe("me", "b")
    net.follow()
    net.read("me", "b")
    assert net.mark("b")
    net.publish("p", " ".join(f"b{number}" for number in range(10)))
    net.trim("b")
    for number in range(10, 20):
        net.publish("p", f"b{number} a{number}")
        net.rest()
    assert (net["me"].joined, net["me"].held_frames) == (set("ab"), 0)
    assert net.told["me"][-2:] == ["b19", "a19"]


def test_what_follows_a_gap_does_not_wait_for_a_region_that_stays_quiet() -> None:
    net = joined("acyclic", planned, me="ab", s1="ab")
    net.publish("p", " ".join(f"a{number}" for number in range(10)))
    net.trim("a")
    net.rest("me")
    missing, *events = net.told["me"]
    assert isinstance(missing, Missing)
    assert events == ["a7", "a8", "a9"]
    net.publish("p", "b0 a10")
    net.rest("me")
    assert net.told["me"][-2:] == ["b0", "a10"]
    assert net["me"].held_frames == 0


@pytest.mark.parametrize("answer_first", [True, False])
def test_a_causal_publisher_does_not_wait_for_what_it_was_told_is_missing(answer_first: bool) -> None:
    net = joined("causal", planned, me="ab", s1="ab")
    me = net["me"]
    me.returns.passed()
    publisher: Publisher[str] = Publisher("me", 2, causal=True)
    publisher.assign(net.plan)
    for event in ("a mine", "b next"):
        publisher.add(event[0], event.encode(), True, 0, event)
    answers = net.node.publish(publisher.take("n1"))
    if answer_first:
        publisher.answered("n1", answers)
        assert publisher.take("n1") == [], "the next one waits for mine"
    net.publish("p", "a0 a1 a2 a3 a4")
    net.trim("a")
    net.publish("p", "b0 a5")
    net.rest()
    assert any(isinstance(item, Missing) for item in net.told["me"])
    assert "a" not in me.returns.passed()
    for region, (epoch, last) in me.returns.gone().items():
        publisher.gone(region, epoch, last)
    if not answer_first:
        publisher.answered("n1", answers)
    assert [frame.region for frame in publisher.take("n1")] == ["b"]
