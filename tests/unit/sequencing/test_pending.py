"""Keys of events that several nodes decide: pending until the last of them has, and then as everywhere."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from sequencing.keyed import Condition, Heads, Position
from sequencing.node import Answer, Node, Verdict
from sequencing.pending import Judgement, Passing, PendingWrites, Write, are_awaited, lost_by
from sequencing.plan import Plan
from sequencing.publisher import Publisher
from sequencing.relay import Relay
from sequencing.transition import Close
from tests.unit.sequencing.test_landing import NODES, carry, connected, nodes, offer, plan

OWNER = "owner:troll"


def say(
    publisher: Publisher[str],
    regions: str,
    event: str,
    *conditions: tuple[str, Position | None],
    key: str | None = OWNER,
    deletes: bool = False,
) -> None:
    """Publish an event that names a key; ``conditions``: (region, head) each, of the same key."""
    wanted = tuple(Condition(OWNER, head, regions.index(region)) for region, head in conditions)
    about = {"key": key, "deletes": deletes, "conditions": wanted}
    if len(regions) == 1:
        publisher.add_keyed(regions, event.encode(), True, 0, event, **about)  # type: ignore[arg-type]
    else:
        publisher.add_joint(tuple(regions), event.encode(), True, 0, event, **about)  # type: ignore[arg-type]


def judge(there: Mapping[str, Node], *links: tuple[str, str]) -> None:
    """Bring verdicts back over some links, as relays do."""
    for source, target in links or (("n2", "n3"), ("n1", "n2")):
        known = there[target].verdicts(source)
        there[source].resolve(known)
        there[target].settle(known)


def head(node: Node, region: str) -> Position | None:
    return node.heads.get(region, Heads()).head(OWNER)


def settled(there: Mapping[str, Node]) -> bool:
    return all(node.pending == PendingWrites() for node in there.values())


@pytest.mark.parametrize("way", ["ab", "ba"])
def test_a_handover_over_a_border_goes_both_ways_and_is_pending_until_the_last_node_has_decided(way: str) -> None:
    there, publisher = nodes(plan()), connected(plan())
    say(publisher, way[0], "here")
    offer(publisher, there, "n1", "n2")
    say(publisher, way, "over", (way[0], (1, 1)), (way[1], None))
    offer(publisher, there, "n1")
    assert there["n1"].snapshots([("a", 1)]) is None
    assert there["n1"].snapshots([("d", 1)]) is not None
    before = head(there["n1"], "a")
    assert before == ((1, 1) if way == "ab" else None)
    carry(there, ("n1", "n2"))
    assert offer(publisher, there, "n2") == [(["over"], "2")]
    assert head(there["n1"], "a") == before
    judge(there, ("n1", "n2"))
    assert head(there["n1"], "a") == (1, 2 if way == "ab" else 1)
    assert head(there["n2"], "b") == (1, 1 if way == "ab" else 2)
    assert settled(there)
    found = there["n1"].snapshots([("a", 1)])
    assert found is not None
    assert found["a"].values[OWNER].payload == b"over"


def test_a_later_ingress_whose_condition_does_not_hold_refuses_it_for_all() -> None:
    there, publisher, other = nodes(plan()), connected(plan()), connected(plan(), "q")
    say(other, "b", "taken")
    offer(other, there, "n2")
    say(publisher, "ab", "mine", ("b", None))
    offer(publisher, there, "n1")
    carry(there)
    assert offer(publisher, there, "n2") == [(["mine"], "Conflict")]
    judge(there)
    assert head(there["n1"], "a") is None
    assert head(there["n2"], "b") == (1, 1)
    assert settled(there)
    say(publisher, "ab", "then", ("a", None), ("b", (1, 1)))
    offer(publisher, there, "n1")
    carry(there)
    assert offer(publisher, there, "n2") == [(["then"], "2")]


def test_what_depends_on_a_pending_key_is_tried_again_and_what_does_not_goes_on() -> None:
    there, publisher, other = nodes(plan()), connected(plan()), connected(plan(), "q")
    say(publisher, "ab", "first")
    offer(publisher, there, "n1")
    say(other, "a", "second", ("a", None))
    [frame] = other.take("n1")
    assert there["n1"].publish([frame]) == [Answer(Verdict.PENDING, (0,))]
    assert other.answered("n1", [Answer(Verdict.PENDING, (0,))]) == []
    carry(there)
    judge(there)
    assert offer(other, there, "n1") == [(["second"], "Conflict")]
    offer(publisher, there, "n2")
    say(publisher, "ab", "third")
    offer(publisher, there, "n1")
    say(other, "a", "plain")
    assert offer(other, there, "n1") == [(["plain"], "3")]
    carry(there)
    judge(there)
    assert head(there["n1"], "a") == (1, 3), "what was decided later stays"
    assert settled(there)


def test_a_pending_key_at_a_later_ingress_refuses_it_and_it_goes_out_again() -> None:
    there, publisher, other = nodes(plan()), connected(plan()), connected(plan(), "q")
    say(other, "bc", "first")
    offer(other, there, "n2")
    say(publisher, "ab", "second", ("b", (1, 1)))
    offer(publisher, there, "n1")
    carry(there, ("n1", "n2"))
    assert offer(publisher, there, "n2") == []
    judge(there, ("n1", "n2"))
    assert publisher.buffered.events == 1
    carry(there)
    judge(there)
    offer(publisher, there, "n1")
    carry(there)
    assert offer(publisher, there, "n2") == [(["second"], "2")]
    judge(there)
    assert settled(there)


def test_verdicts_come_back_over_nodes_that_only_pass_it_on() -> None:
    there, publisher = nodes(plan()), connected(plan())
    say(publisher, "ac", "far")
    offer(publisher, there, "n1")
    carry(there)
    assert there["n3"].verdicts("n2") == {"p\n1\n1 a\n1 c": Judgement.OK}
    judge(there, ("n1", "n2"))
    assert head(there["n1"], "a") is None
    judge(there)
    assert head(there["n1"], "a") == (1, 1)
    assert settled(there)


@pytest.mark.parametrize("closes", ["b", "c"])
def test_one_that_is_refused_on_its_way_is_undone_everywhere(closes: str) -> None:
    there, publisher = nodes(plan()), connected(plan())
    say(publisher, "abc", "no")
    offer(publisher, there, "n1")
    there["n2" if closes == "b" else "n3"].close([(closes, 1, 2)])
    carry(there)
    judge(there)
    assert not any(node.heads for node in there.values())
    assert settled(there)


def test_an_ingress_is_closed_once_its_keys_are_decided() -> None:
    there, publisher = nodes(plan()), connected(plan())
    say(publisher, "ab", "late")
    offer(publisher, there, "n1")
    close = Close("n1", (("a", 1, 2),))
    assert close.perform(there["n1"]) is False
    carry(there)
    judge(there)
    closed = close.perform(there["n1"])
    assert isinstance(closed, dict)
    heads = closed["a", 1].heads
    assert heads is not None
    assert heads.head(OWNER) == (1, 1)


def test_keys_count_as_lost_where_a_node_on_the_way_has_lost_what_became_of_them() -> None:
    runs = dict.fromkeys(NODES, "1")
    there, publisher = nodes(plan(runs=runs)), connected(plan(runs=runs))
    say(publisher, "a", "before")
    offer(publisher, there, "n1")
    say(publisher, "ac", "lost")
    offer(publisher, there, "n1")
    closed = Close("n1", (("a", 1, 7),), ("n3",), 7).perform(there["n1"])
    assert isinstance(closed, dict)
    heads = closed["a", 1].heads
    assert heads is not None
    assert heads.head(OWNER) == (7, 0)
    assert not heads.values
    assert settled(there)


def test_a_key_that_ends_ends_once_that_is_decided() -> None:
    there, publisher = nodes(plan()), connected(plan())
    say(publisher, "a", "it")
    offer(publisher, there, "n1")
    say(publisher, "ab", "gone", deletes=True)
    offer(publisher, there, "n1")
    carry(there)
    assert head(there["n1"], "a") == (1, 1)
    judge(there)
    assert head(there["n1"], "a") is None
    assert settled(there)


def test_verdicts_of_several_writes_of_one_key_keep_their_order() -> None:
    pending, heads = PendingWrites(), dict[str, Heads]()
    for number, of in enumerate("xyz", 1):
        pending.passing[of] = Passing("", "n2", 1, ("n1", "n2"), ("a",))
        pending.writes.setdefault(("a", "k"), []).append(Write(of, (1, number), of.encode()))
    pending.resolve("y", Judgement.OK, heads)
    assert heads["a"].known == {"k": (1, 2)}
    pending.resolve("x", Judgement.OK, heads)
    assert heads["a"].known == {"k": (1, 2)}, "what is later has been decided"
    pending.resolve("z", Judgement.NO, heads)
    assert heads["a"].values == {"k": b"y"}
    pending.resolve("z", Judgement.OK, heads)
    assert pending == PendingWrites()
    assert heads["a"].known == {"k": (1, 2)}


def test_what_passes_is_stored_as_it_was() -> None:
    for passing in (Passing("", "n2#1", 3, ("n1", "n2"), ("a", "b c")), Passing("n1", "n2", 3, ("n1",), ())):
        assert Passing.decode(passing.encode()) == passing
    there = {"f": Passing("", "n2", 3, ("n1", "n2"), ("a",))}
    assert lost_by(there, ["n2"], 4) == ["f"]
    assert lost_by(there, ["n2"], 3) == lost_by(there, ["n3"], 4) == []
    assert are_awaited(there, [("a", 3, 4)])
    assert not are_awaited(there, [("a", 2, 3), ("b", 3, 4)])


def test_a_relay_waits_for_no_verdict_at_first() -> None:
    assert not Relay().awaits_verdicts


def test_a_network_that_decides_at_one_node_has_nothing_pending() -> None:
    now = Plan(1, 1, "acyclic", dict.fromkeys(NODES, ""), {"a": ("n1",), "b": ("n1",)}, (), joint=frozenset({"a\nb"}))
    there, publisher = nodes(now), connected(now)
    say(publisher, "ab", "both")
    assert offer(publisher, there, "n1") == [(["both"], "1")]
    assert settled(there)
    assert not there["n1"].has_pending
