"""Events of several regions that enter at several nodes: numbered on their way by all, or refused and void."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest

from sequencing.conditions import violations
from sequencing.errors import PublishUncertain, Superseded
from sequencing.frames import FrameKind, LinkedFrame, PublishedFrame, joint_parts, own_number, parse_meta
from sequencing.joint import set_name, way_of
from sequencing.keyspace import link_words, linked_of
from sequencing.landing import asking
from sequencing.membership import Membership
from sequencing.node import Answer, Node, TransferVerdict, Verdict
from sequencing.outbox import Fate
from sequencing.plan import Plan
from sequencing.publisher import Publisher

PATHS = {"a": ("n1", "n2", "n3"), "b": ("n2", "n3"), "c": ("n3",), "d": ("n1", "n2")}
NODES = ("n1", "n2", "n3")
AB, ABC = set_name("ab"), set_name("abc")
OK, LANDING = Verdict.OK, Answer(Verdict.LANDING, ())


def plan(epoch: int = 1, paths: Mapping[str, tuple[str, ...]] = PATHS, runs: Mapping[str, str] | None = None) -> Plan:
    sets = frozenset({AB, ABC, set_name("ac"), set_name("bc")})
    return Plan(epoch, 1, "acyclic", dict.fromkeys(NODES, ""), paths, (), runs=runs or {}, joint=sets)


def nodes(now: Plan) -> dict[str, Node]:
    found = {name: Node(name) for name in NODES}
    for name, node in found.items():
        node.install(now.epoch, now.version, now.steps(name))
    return found


def connected(now: Plan, name: str = "p", incarnation: int = 1) -> Publisher[str]:
    publisher: Publisher[str] = Publisher(name, incarnation)
    publisher.assign(now)
    return publisher


def add(publisher: Publisher[str], event: str) -> str | None:
    regions = tuple(event.rstrip("0123456789"))
    if len(regions) == 1:
        return publisher.add(regions[0], event.encode(), True, 0, event)
    return publisher.add_joint(regions, event.encode(), True, 0, event)


def carry(there: Mapping[str, Node], *links: tuple[str, str]) -> None:
    """Move everything over some links, twice: a relay may repeat itself."""
    for source, target in links or (("n1", "n2"), ("n2", "n3")):
        linked = there[source].links.get(target, [])
        there[target].transfer(source, linked)
        answer = there[target].transfer(source, [linked_of_words(each) for each in linked])
        assert answer.verdict is TransferVerdict.OK
        there[source].acknowledge(target, answer.accepted)


def linked_of_words(linked: LinkedFrame) -> LinkedFrame:
    read = linked_of(linked.sequence, *link_words(linked).values())
    assert read == linked
    return read


def offer(publisher: Publisher[str], there: Mapping[str, Node], *at: str) -> list[tuple[list[str], str]]:
    """Have nodes answer what a publisher has for them; return the events whose fate is known, and which."""
    found = []
    for node in at:
        publisher.ask_again(node)
        frames = publisher.take(node)
        for resolved in publisher.answered(node, there[node].publish(frames)) if frames else ():
            fate = type(resolved.error).__name__ if resolved.error else str(resolved.first_sequence)
            found.append((list(resolved.tokens), fate))
    return found


def kinds(node: Node, region: str, epoch: int = 1) -> list[tuple[int, FrameKind]]:
    return [(each.last, FrameKind(parse_meta(each.meta).kind)) for each in node.egress.get((epoch, region), [])]


@pytest.mark.parametrize(
    ("regions", "way"),
    [("ab", ("n1", "n2")), ("bc", ("n2", "n3")), ("cba", ("n1", "n2", "n3")), ("cd", ()), ("c", ("n3",))],
)
def test_the_lead_is_the_region_whose_path_visits_the_ingresses_of_all(regions: str, way: tuple[str, ...]) -> None:
    assert way_of(PATHS, regions) == way


def test_c5_wants_a_lead_in_one_epoch() -> None:
    def broken(regions: Iterable[str], epochs: Mapping[str, int]) -> str | None:
        name = set_name(regions)
        membership = Membership.of({"s": regions}, PATHS, frozenset({name}))
        now = Plan(2, 1, "overlap", dict.fromkeys(NODES, ""), PATHS, (), dict(epochs), joint=frozenset({name}))
        return violations(now, membership).get("C5")

    assert broken("cd", {}) is not None
    assert broken("cdx", {}) is not None
    assert broken("aa", {}) is None


def test_each_region_numbers_it_where_it_begins_and_every_copy_names_all_numbers() -> None:
    there, publisher = nodes(plan()), connected(plan())
    for event in ("a1", "c2", "c3", "cab4"):
        add(publisher, event)
    offer(publisher, there, "n1", "n3")
    assert offer(publisher, there, "n1") == []
    assert publisher.landing("n3")
    assert offer(publisher, there, "n3") == []
    assert not there["n1"].egress
    carry(there)
    assert offer(publisher, there, "n3") == [(["cab4"], "3")]
    assert not publisher.landing("n3")
    assert not publisher.buffered.events
    copies = [there["n3"].egress[1, region][-1] for region in "abc"]
    assert {tuple(joint_parts(copy.meta)) for copy in copies} == {(("c", 3, 3), ("a", 2, 2), ("b", 1, 1))}
    assert [copy.last for copy in copies] == [2, 1, 3]
    assert {copy.body for copy in copies} == {copies[0].body}


def test_it_is_one_entry_of_each_link_until_it_is_decided() -> None:
    there, publisher = nodes(plan()), connected(plan())
    add(publisher, "abc1")
    offer(publisher, there, "n1")
    [first] = there["n1"].links["n2"]
    assert [(copy.region, copy.last, copy.stamp) for copy in first.copies] == [
        ("a", 1, b""),
        ("b", 0, b"n2"),
        ("c", 0, b"n3"),
    ]
    carry(there, ("n1", "n2"))
    [second] = there["n2"].links["n3"]
    assert [(copy.region, copy.last, copy.stamp) for copy in second.copies] == [
        ("a", 1, b""),
        ("b", 1, b""),
        ("c", 0, b"n3"),
    ]


def test_a_region_that_is_closed_refuses_it_and_it_goes_out_again_in_the_next_epoch() -> None:
    there, publisher = nodes(plan()), connected(plan())
    add(publisher, "abc1")
    add(publisher, "b2")
    offer(publisher, there, "n1")
    there["n2"].close([("b", 1, 2)])
    carry(there)
    assert offer(publisher, there, "n3") == []
    assert publisher.stale
    assert publisher.take("n1") == publisher.take("n2") == []
    assert kinds(there["n3"], "a") == [(1, FrameKind.VOID)]
    assert kinds(there["n3"], "b") == [(1, FrameKind.TICK)]
    assert kinds(there["n3"], "c") == []
    [void] = there["n3"].egress[1, "a"]
    assert void.body == b""
    assert own_number(void.meta, 1, "a") == 1
    following = plan(2)
    for name, node in there.items():
        node.prepare(2, 1, following.steps(name), {})
    publisher.assign(following)
    assert offer(publisher, there, "n1") == []
    carry(there)
    assert offer(publisher, there, "n3") == [(["abc1"], "1")]
    assert offer(publisher, there, "n2") == [(["b2"], "2")]
    [part, *_] = joint_parts(there["n3"].egress[2, "a"][0].meta)
    assert part.first == 2, "a's number was used up"


def test_a_later_ingress_fences_the_superseded_and_knows_the_forgotten() -> None:
    there = nodes(plan())
    older, newer = connected(plan()), connected(plan(), incarnation=5)
    add(older, "ab1")
    offer(older, there, "n1")
    add(newer, "b2")
    offer(newer, there, "n2")
    carry(there, ("n1", "n2"))
    assert offer(older, there, "n2") == [(["ab1"], Superseded.__name__)]
    carry(there)
    assert kinds(there["n3"], "b") == [(1, FrameKind.EVENTS)]
    assert kinds(there["n3"], "a") == [(1, FrameKind.VOID)]
    there["n2"].forget_publishers([("b", "p")], 7)
    late = connected(plan(), incarnation=6)
    add(late, "ab3")
    offer(late, there, "n1")
    carry(there)
    assert offer(late, there, "n2") == []
    assert (late.doubtful(), late.forgotten) == (["a", "b"], 7)
    late.renew(late.doubtful(), 8)
    offer(late, there, "n1")
    carry(there)
    assert offer(late, there, "n2") == [(["ab3"], "3")]


def test_what_entered_before_is_known_also_when_its_epoch_is_over() -> None:
    there, publisher = nodes(plan()), connected(plan())
    add(publisher, "ab1")
    [frame] = publisher.take("n1")
    there["n1"].publish([frame])
    publisher.unanswered("n1")
    there["n1"].close([("a", 1, 2)])
    following = plan(2, {**PATHS, "a": ("n2", "n3")})
    for name, node in there.items():
        node.prepare(2, 1, following.steps(name), {})
    publisher.assign(following)
    assert offer(publisher, there, "n1") == []
    carry(there)
    assert offer(publisher, there, "n2") == [(["ab1"], "1")], "decided where it was sent"
    assert len(there["n3"].egress[1, "b"]) == 1


def test_a_node_without_a_number_of_it_is_not_asked_to_guess_what_begins_there() -> None:
    """A plan that was prepared and never announced may have left an open ingress."""
    there, publisher = nodes(plan()), connected(plan())
    there["n1"].prepare(1, 2, Plan(1, 2, "acyclic", {"n1": ""}, {"b": ("n1",)}, ()).steps("n1"), {})
    add(publisher, "ab1")
    offer(publisher, there, "n1")
    carry(there)
    assert offer(publisher, there, "n2") == [(["ab1"], "1")]
    assert (1, "b") not in there["n1"].region_last


@pytest.mark.parametrize("elsewhere", [((1, "n3"),), ((0, "n1"), (1, "n2")), ((1, "n9"),)])
def test_no_publisher_invents_a_way(elsewhere: tuple[tuple[int, str], ...]) -> None:
    there, publisher = nodes(plan(paths={**PATHS, "a": ("n1", "n2")})), connected(plan())
    add(publisher, "ab1")
    [frame] = publisher.take("n1")
    odd = PublishedFrame(
        *("a", 1, "p", 1, 1, 1, frame.body, FrameKind.JOINT),
        type(frame.extras)(also=frame.extras.also, elsewhere=elsewhere),
    )
    [answer] = there["n1"].publish([odd])
    carry(there)
    carry(there)
    events = [kind for region in "ab" for node in there.values() for _, kind in kinds(node, region)]
    assert FrameKind.JOINT not in events
    assert answer.verdict in (OK, Verdict.STALE)


def test_an_outcome_is_of_one_frame_and_asking_changes_nothing() -> None:
    there, publisher = nodes(plan()), connected(plan())
    add(publisher, "ab1")
    [frame] = publisher.take("n1")
    publisher.answered("n1", there["n1"].publish([frame]))
    question = asking(frame)
    assert there["n2"].publish([question]) == [LANDING]
    carry(there)
    assert there["n2"].publish([question]) == [Answer(OK, (1, 1, 1))]
    other = PublishedFrame("a", 1, "p", 1, 2, 1, b"2 a\n2 b", FrameKind.ASK)
    assert there["n2"].publish([other]) == [LANDING]
    newer = PublishedFrame("a", 1, "p", 0, 1, 1, b"1 a\n1 b", FrameKind.ASK)
    assert there["n2"].publish([newer]) == [Answer(Verdict.FENCED, (1,))]
    there["n2"].forget_publishers([("a", "p")], 4)
    assert there["n2"].publish([question]) == [Answer(Verdict.FORGOTTEN, (4,))]
    [resolved] = publisher.answered("n2", [Answer(Verdict.FORGOTTEN, (4,))]) if publisher.take("n2") else [None]
    assert resolved is not None
    assert isinstance(resolved.error, PublishUncertain)


@pytest.mark.parametrize("when", ["landing", "sent"])
def test_a_node_on_the_way_that_is_reset_leaves_it_uncertain(when: str) -> None:
    runs = dict.fromkeys(NODES, "1")
    there, publisher = nodes(plan(runs=runs)), connected(plan(runs=runs))
    add(publisher, "abc1")
    frames = publisher.take("n1")
    if when == "landing":
        publisher.answered("n1", there["n1"].publish(frames))
    publisher.assign(plan(2, runs={**runs, "n3": "2"}))
    if when == "sent":
        assert publisher.abandoned() == []
        [resolved] = publisher.answered("n1", there["n1"].publish(frames))
    else:
        [resolved] = publisher.abandoned()
    assert isinstance(resolved.error, PublishUncertain)
    assert not publisher.landing("n3")
    assert not publisher.buffered.events


def test_what_is_given_up_while_it_lands_is_uncertain_and_its_regions_need_a_new_incarnation() -> None:
    there, publisher = nodes(plan()), connected(plan())
    add(publisher, "ab1")
    offer(publisher, there, "n1")
    [given_up] = publisher.give_up_landing("n2", publisher.landing("n2"), PublishUncertain("too long"))
    assert isinstance(given_up.error, PublishUncertain)
    assert publisher.doubtful() == ["a", "b"]
    carry(there)
    publisher.renew(publisher.doubtful(), 2)
    add(publisher, "ab2")
    offer(publisher, there, "n1")
    carry(there)
    assert offer(publisher, there, "n2") == [(["ab2"], "2")]


def test_the_fate_of_what_lands() -> None:
    there, publisher = nodes(plan()), connected(plan())
    add(publisher, "ab1")
    add(publisher, "a2")
    offer(publisher, there, "n1")
    assert {publisher._regions[region].fate for region in "ab"} == {Fate.LANDING}
    assert publisher.take("n1") == [], "a's next event waits"
    carry(there)
    offer(publisher, there, "n2")
    assert offer(publisher, there, "n1") == [(["a2"], "2")]
