"""What a node accepts, what it refuses, and what it keeps."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sequencing import node as node_module
from sequencing.frames import UNKNOWN_END, LinkedFrame, PublishedFrame, node_number
from sequencing.keyspace import keyspace
from sequencing.node import TICK_META, Answer, Node, TransferAnswer, TransferVerdict, Verdict
from sequencing.plan import Atom, AtomId, Plan, Step

PLAN = Plan(
    1,
    1,
    "overlap",
    {"n1": "", "n2": ""},
    {"a": ("n1", "n2"), "b": ("n1",), "c": ("n2",)},
    (Atom(AtomId(1), ("a", "b"), "n1"), Atom(AtomId(2), ("a", "c"), "n2")),
)


def network(plan: Plan = PLAN) -> tuple[Node, Node]:
    found = Node("n1"), Node("n2")
    for node in found:
        assert node.install(plan.epoch, plan.version, plan.steps(node.name))
    return found


def frame(region: str, first: int = 1, count: int = 1, *, incarnation: int = 1, epoch: int = 1) -> PublishedFrame:
    return PublishedFrame(region, epoch, "p", incarnation, first, count, b"%d" % first)


def test_regions_count_events_and_atoms_count_frames() -> None:
    n1, n2 = network()
    answers = n1.publish([frame("a", 1, 3), frame("b", 1, 2), frame("a", 4, 2)])
    assert [answer.encode() for answer in answers] == [b"ok 1 3", b"ok 1 2", b"ok 1 5"]
    assert [(linked.sequence, linked.frame.last, linked.frame.stamp) for linked in n1.links["n2"]] == [
        (1, 3, b"1,1"),
        (2, 5, b"1,3"),
    ]
    assert [(out.last, out.stamp) for out in n1.egress[1, "b"]] == [(2, b"0,1,1,2")]
    assert n2.transfer("n1", n1.links["n2"]) == TransferAnswer(TransferVerdict.OK, 2)
    assert [(out.last, out.stamp) for out in n2.egress[1, "a"]] == [(3, b"0,1,1,1,2,1"), (5, b"0,2,1,3,2,2")]


ENDS = Plan(1, 1, "overlap", {"n1": "", "n2": ""}, {"a": ("n1", "n2"), "b": ("n2",), "c": ("n2",), "d": ("n1",)}, ())


def numbers(node: Node) -> dict[str, list[int]]:
    """Region → the node's own numbers of what has ended there."""
    streams = sorted(node.egress.items())
    return {region: [node_number(out.stamp) for out in stream] for (_, region), stream in streams}


def test_a_node_numbers_what_ends_there_and_nothing_else() -> None:
    n1, n2 = network(ENDS)
    n1.publish([frame("a"), frame("d"), frame("a", 2), frame("d", 3)])
    n2.publish([frame("b")])
    n2.transfer("n1", n1.links["n2"])
    n2.publish([frame("c")])
    assert (numbers(n1), numbers(n2)) == ({"d": [1]}, {"a": [2, 3], "b": [1], "c": [4]})
    assert [linked.frame.stamp for linked in n1.links["n2"]] == [b"", b""]


def test_a_number_is_negative_where_the_call_has_ended_something_in_another_stream_before() -> None:
    n1, n2 = network(ENDS)
    n1.publish([frame("a"), frame("a", 2)])
    n2.publish([frame("b"), frame("b", 2), frame("c"), frame("b", 1), frame("b", 3), frame("c", 2)])
    assert numbers(n2) == {"b": [1, 2, -4], "c": [-3, -5]}
    n2.transfer("n1", n1.links["n2"])
    n2.publish([frame("c", 3)])
    assert numbers(n2) == {"a": [6, 7], "b": [1, 2, -4], "c": [-3, -5, 8]}
    assert n2.close([("b", 1, 2), ("unknown", 1, 2), ("c", 1, 2)]) == [
        Answer(Verdict.OK, (1, 4)),
        Answer(Verdict.STALE, (1,)),
        Answer(Verdict.OK, (1, 4)),
    ]
    assert numbers(n2) == {"a": [6, 7], "b": [1, 2, -4, 9], "c": [-3, -5, 8, -10]}


def test_a_tick_that_an_event_draws_out_comes_first_and_two_epochs_of_a_region_are_two_streams() -> None:
    _, n2 = network(ENDS)
    n2.prepare(2, 1, replace(ENDS, epoch=2).steps("n2"), {"b": 1})
    n2.publish([frame("b", epoch=2), frame("b", 2, epoch=2)])
    assert [(key, [node_number(out.stamp) for out in stream]) for key, stream in sorted(n2.egress.items())] == [
        ((1, "b"), [1]),
        ((2, "b"), [-2, -3]),
    ]


def test_a_seal_has_no_number_and_a_new_run_begins_to_number_anew() -> None:
    _, n2 = network(ENDS)
    n2.publish([frame("b"), frame("b", 2)])
    n2.seal("b", 1, 0)
    assert numbers(n2) == {"b": [1, 2, 0]}
    n2.admit("second")
    n2.prepare(2, 1, replace(ENDS, epoch=2).steps("n2"), {})
    n2.publish([frame("c", epoch=2)])
    assert numbers(n2) == {"b": [1, 2, 0], "c": [1]}


@pytest.mark.parametrize(
    ("offered", "answer"),
    [
        (frame("a", 4, 2), Answer(Verdict.SEEN, (1, 5))),
        (frame("a", 1, 3), Answer(Verdict.PAST, (5,))),
        (frame("a", 5, 2), Answer(Verdict.PAST, (5,))),
        (frame("a", 7), Answer(Verdict.GAP, (5,))),
        (frame("a", 6, incarnation=1), Answer(Verdict.OK, (1, 6))),
        (frame("a", 1, incarnation=2), Answer(Verdict.FENCED, (3,))),
        (frame("a", 1, incarnation=4), Answer(Verdict.OK, (1, 6))),
        (frame("a", 6, incarnation=4), Answer(Verdict.OK, (1, 6))),
        (frame("a", 6, epoch=2), Answer(Verdict.STALE, (1,))),
        (frame("c", 1), Answer(Verdict.STALE, (1,))),
        (frame("unknown", 1), Answer(Verdict.STALE, (1,))),
    ],
)
def test_only_the_next_events_of_the_newest_incarnation_are_accepted(offered: PublishedFrame, answer: Answer) -> None:
    n1, _ = network()
    incarnation = 3 if answer.verdict is Verdict.FENCED else 1
    n1.publish([frame("a", 1, 3, incarnation=incarnation), frame("a", 4, 2, incarnation=incarnation)])
    assert n1.publish([offered]) == [answer]
    assert Answer.decode(answer.encode()) == answer
    assert len(n1.links["n2"]) == (3 if answer.verdict is Verdict.OK else 2)


def test_a_transfer_accepts_each_frame_once_and_in_order() -> None:
    n1, n2 = network()
    n1.publish([frame("a", number) for number in range(1, 6)])
    link = list(n1.links["n2"])
    assert n2.transfer("n1", link[1:]) == TransferAnswer(TransferVerdict.GAP, 0)
    assert n2.transfer("n1", [*link[:2], *link[3:]]) == TransferAnswer(TransferVerdict.GAP, 2)
    n1.acknowledge("n2", 2)
    assert n1.links["n2"] == link[2:]
    assert n2.transfer("n1", link) == TransferAnswer(TransferVerdict.OK, 5)
    assert n2.transfer("n1", link) == TransferAnswer(TransferVerdict.OK, 5)
    assert [out.stamp for out in n2.egress[1, "a"]] == [b"0,%d,1,%d,2,%d" % (n, n, n) for n in range(1, 6)]


def test_a_transfer_waits_for_the_plan_that_its_frames_belong_to() -> None:
    n1, _ = network()
    n1.publish([frame("a")])
    behind = Node("n2")
    assert behind.transfer("n1", n1.links["n2"]) == TransferAnswer(TransferVerdict.UNKNOWN, 0)
    behind.install(1, 1, PLAN.steps("n2"))
    assert behind.transfer("n1", n1.links["n2"]) == TransferAnswer(TransferVerdict.OK, 1)


def test_a_new_epoch_closes_the_old_ingress_and_lets_pass_what_is_under_way() -> None:
    n1, n2 = network()
    n1.publish([frame("a")])
    for node in (n1, n2):
        assert node.install(2, 1, replace(PLAN, epoch=2).steps(node.name))
        assert not node.install(1, 9, PLAN.steps(node.name))
    assert n1.publish([frame("a", 2)]) == [Answer(Verdict.STALE, (2,))]
    assert n1.publish([frame("a", 2, epoch=2)]) == [Answer(Verdict.OK, (2, 1))]
    assert n2.transfer("n1", n1.links["n2"]) == TransferAnswer(TransferVerdict.OK, 2)
    assert [(out.epoch, out.last) for epoch in (1, 2) for out in n2.egress[epoch, "a"]] == [(1, 1), (2, 1)]


def test_an_egress_stream_is_trimmed_now_and_then_and_keeps_what_it_promises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_module, "TRIM_EVERY_EVENTS", 10)
    n1 = Node("n1", retention_events=7)
    n1.install(1, 1, PLAN.steps("n1"))
    for number in range(3):
        n1.publish([frame("b", 1 + 3 * number, 3)])
    assert [out.last for out in n1.egress[1, "b"]] == [3, 6, 9]
    n1.publish([frame("b", 10, 3)])
    # The frame that ends at 6 holds the oldest of the seven events that are kept.
    assert [out.last for out in n1.egress[1, "b"]] == [6, 9, 12]
    n1.publish([frame("b", 13, 3), frame("b", 16, 3)])
    assert [out.last for out in n1.egress[1, "b"]] == [6, 9, 12, 15, 18]
    n1.publish([frame("b", 19, 2)])
    assert [out.last for out in n1.egress[1, "b"]] == [15, 18, 20]


def test_a_node_keeps_a_million_events_of_a_region_unless_it_is_told_otherwise() -> None:
    assert Node("n1").retention_events == 1_000_000


def live(closing: dict[str, int]) -> tuple[Node, Node]:
    """A network in epoch 1 whose nodes have the steps of epoch 2 beside those in use."""
    n1, n2 = network()
    for node in (n1, n2):
        assert node.prepare(2, 1, replace(PLAN, epoch=2).steps(node.name), closing)
    return n1, n2


def test_a_prepared_plan_changes_nothing_until_an_ingress_is_closed() -> None:
    n1, _ = live({"a": 1, "b": 1})
    assert n1.publish([frame("a")]) == [Answer(Verdict.OK, (1, 1))]
    assert n1.close([("a", 1, 2)]) == [Answer(Verdict.OK, (1, 2))]
    assert n1.close([("a", 1, 2), ("c", 1, 2)]) == [Answer(Verdict.SEEN, (1, 2)), Answer(Verdict.STALE, (2,))]
    assert n1.publish([frame("a", 2)]) == [Answer(Verdict.STALE, (2,))]
    assert n1.publish([frame("a", 2, epoch=2)]) == [Answer(Verdict.OK, (2, 1))]
    assert n1.publish([frame("b")]) == [Answer(Verdict.OK, (1, 1))]
    assert [(linked.frame.epoch, linked.frame.last, linked.frame.meta) for linked in n1.links["n2"]] == [
        (1, 1, b"0 1 1 1 p"),
        (1, 2, TICK_META),
        (2, 1, b"0 1 1 2 p"),
    ]


def test_an_event_of_the_new_epoch_closes_the_old_one_at_its_ingress() -> None:
    n1, n2 = live({"a": 1, "b": 1})
    assert n1.publish([frame("a"), frame("a", 2, epoch=2), frame("a", 3)]) == [
        Answer(Verdict.OK, (1, 1)),
        Answer(Verdict.OK, (2, 1)),
        Answer(Verdict.STALE, (2,)),
    ]
    assert not n2.ended("a", 1)
    n2.transfer("n1", n1.links["n2"])
    assert n2.ended("a", 1)
    assert [out.last for out in n2.egress[1, "a"]] == [1, 2]
    assert [out.last for out in n2.egress[2, "a"]] == [1]


def test_an_ingress_that_moves_opens_with_what_the_old_one_had_accepted() -> None:
    n1, n2 = live({})
    moved = Plan(3, 1, "overlap", PLAN.nodes, {"a": ("n2",)}, (), {})
    n1.publish([frame("a", 1, 3)])
    for node in (n1, n2):
        node.prepare(3, 1, moved.steps(node.name), {"a": 0})
    repeated = frame("a", 1, 3, epoch=3)
    assert n2.publish([repeated]) == [Answer(Verdict.WAIT, (3,))]
    n1.close([("a", 1, 3)])
    n2.open("a", 3, n1.accepted("a"))
    assert n2.publish([repeated]) == [Answer(Verdict.SEEN, (1, 3))]
    assert n2.publish([frame("a", 4, epoch=3)]) == [Answer(Verdict.OK, (3, 1))]
    n2.open("a", 3, n1.accepted("a"))
    assert n2.publish([frame("a", 5, epoch=3)]) == [Answer(Verdict.OK, (3, 2))]


def test_what_is_prepared_twice_stays_as_it_is() -> None:
    n1, _ = live({"a": 1, "b": 1})
    n1.close([("b", 1, 2)])
    n1.publish([frame("b", epoch=2)])
    assert n1.prepare(2, 1, replace(PLAN, epoch=2).steps("n1"), {"a": 1, "b": 1})
    assert n1.publish([frame("b", 2, epoch=2)]) == [Answer(Verdict.OK, (2, 2))]
    assert not n1.prepare(1, 9, PLAN.steps("n1"), {})


def test_frames_of_a_forgotten_epoch_are_dropped_and_do_not_jam_their_link() -> None:
    n1, n2 = live({"a": 1, "b": 1})
    n1.publish([frame("a"), frame("a", 2, epoch=2)])
    n2.forget([(1, "a")])
    assert n2.transfer("n1", n1.links["n2"]) == TransferAnswer(TransferVerdict.OK, 3)
    assert [out.last for out in n2.egress[2, "a"]] == [1]
    assert (1, "a") not in n2.egress


def test_a_publishers_first_frame_in_an_epoch_may_follow_on_what_is_lost() -> None:
    n1, _ = network()
    assert n1.publish([frame("a", 7), frame("a", 9), frame("a", 8)]) == [
        Answer(Verdict.OK, (1, 1)),
        Answer(Verdict.GAP, (7,)),
        Answer(Verdict.OK, (1, 2)),
    ]
    both, _ = live({})
    assert both.publish([frame("a", 7, epoch=2), frame("a", 9), frame("a", 11)]) == [
        Answer(Verdict.OK, (2, 1)),
        Answer(Verdict.OK, (1, 1)),
        Answer(Verdict.GAP, (9,)),
    ]


def test_a_node_in_a_new_run_keeps_its_streams_and_nothing_else() -> None:
    n1, _ = network()
    n1.publish([frame("a", 1), frame("b", 1)])
    kept = n1.egress.copy()
    n1.admit("second")
    assert (n1.egress, n1.links, n1.epoch, n1.accepted("a")) == (kept, {}, 0, {})
    assert n1.publish([frame("a", 2)]) == [Answer(Verdict.STALE, (0,))]
    n1.prepare(2, 1, [Step("a", 2, True, "n2", (AtomId(9),))], {})
    assert n1.publish([frame("a", 2, epoch=2)]) == [Answer(Verdict.OK, (2, 1))]
    n1.admit("second")
    assert n1.publish([frame("a", 3, epoch=2)]) == [Answer(Verdict.OK, (2, 2))]


def test_what_is_sealed_ends_with_the_tick_that_its_ingress_gave_and_takes_nothing_more() -> None:
    n1, n2 = network()
    n1.publish([frame("a", 1), frame("a", 2)])
    first, second = n1.links["n2"]
    n2.transfer("n1", [first])
    n2.seal("a", 1, 3)
    n2.seal("a", 1, 3)
    assert n2.transfer("n1", [second]) == TransferAnswer(TransferVerdict.OK, 2)
    assert [out.last for out in n2.egress[1, "a"]] == [1, 3]
    assert n2.ended("a", 1)


def test_a_seal_without_a_number_comes_after_whatever_there_was() -> None:
    n1, _ = network()
    n1.seal("never seen", 1, 0)
    n1.publish([frame("b", 1)])
    n1.seal("b", 1, 1)
    assert [out.last for out in n1.egress[1, "never seen"]] == [UNKNOWN_END]
    assert [out.last for out in n1.egress[1, "b"]] == [1, 2]


def test_links_to_what_has_begun_anew_are_dropped() -> None:
    n1, n2 = network()
    n1.publish([frame("a", 1)])
    n2.transfer("n1", n1.links["n2"])
    n1.forget([], ["n2"])
    n2.forget([], ["n1"])
    assert n1.links == {}
    assert n2.transfer("n1", [LinkedFrame(1, n2.egress[1, "a"][0])]) == TransferAnswer(TransferVerdict.OK, 1)


def test_a_node_that_was_told_nothing_has_stored_nothing() -> None:
    assert keyspace(Node("n1")) == {}


def test_a_publisher_that_is_forgotten_is_never_taken_for_a_new_one() -> None:
    n1, n2 = Node("n1"), Node("n2")
    before = Plan(1, 1, "acyclic", {"n1": "", "n2": ""}, {"b": ("n1",), "d": ("n1",)}, ())
    after = Plan(2, 1, "acyclic", {"n1": "", "n2": ""}, {"b": ("n2",), "d": ("n2",)}, ())
    for node in (n1, n2):
        assert node.install(1, 1, before.steps(node.name))
    n1.publish(
        [frame("b", incarnation=5), replace(frame("b", incarnation=6), publisher="q"), frame("d", incarnation=9)]
    )
    n1.forget_publishers([("b", "p"), ("d", "p")], upto=7)
    assert n1.accepted("b").keys() == {"", "q"}
    late, young = frame("b", incarnation=5), frame("b", incarnation=8)
    assert n1.publish([late]) == [Answer(Verdict.FORGOTTEN, (7,))]
    assert n1.publish([replace(late, publisher="unheard of")]) == [Answer(Verdict.FORGOTTEN, (7,))]
    assert n1.publish([replace(late, publisher="q", incarnation=6, first=2)]) == [Answer(Verdict.OK, (1, 3))]
    assert n1.publish([replace(late, region="d")]) == [Answer(Verdict.FENCED, (9,))], "9 is later than 7"
    # The next ingress is told.
    assert n2.prepare(2, 1, after.steps("n2"), {"b": 0, "d": 0})
    n1.close([("b", 1, 2)])
    n2.open("b", 2, n1.accepted("b"))
    assert n2.publish([replace(late, epoch=2)]) == [Answer(Verdict.FORGOTTEN, (7,))]
    assert n2.publish([replace(young, epoch=2)]) == [Answer(Verdict.OK, (2, 1))]
    n2.forget_publishers([("b", "p")], upto=6)
    assert n2.accepted("b")[""].incarnation == 7, "8 is later than 6"


def test_what_was_forgotten_elsewhere_is_forgotten_where_a_region_comes_back_to() -> None:
    n1, n2 = Node("n1"), Node("n2")
    for epoch, node, other in ((1, n2, n1), (2, n1, n2), (3, n2, n1)):
        plan = Plan(epoch, 1, "acyclic", {"n1": "", "n2": ""}, {"a": (node.name,)}, ())
        for each in (node, other):
            assert each.prepare(epoch, 1, plan.steps(each.name), {"a": 0} if epoch > 1 else {})
        if epoch > 1:
            other.close([("a", epoch - 1, epoch)])
            node.open("a", epoch, other.accepted("a"))
        sent = frame("a", min(epoch, 2), incarnation=5, epoch=epoch)
        verdict = node.publish([sent])[0].verdict
        assert verdict is (Verdict.OK if epoch < 3 else Verdict.FORGOTTEN), epoch
        assert (
            node.publish([replace(frame("a", epoch, incarnation=6, epoch=epoch), publisher="q")])[0].verdict
            is Verdict.OK
        )
        if epoch == 2:
            n1.forget_publishers([("a", "p")], upto=9)
    assert n2.accepted("a").keys() == {"", "q"}
