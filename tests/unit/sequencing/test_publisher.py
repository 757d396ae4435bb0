"""The publisher: frames by turns, the same frame again until it is answered, a receipt for each event."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sequencing import publisher as publisher_module
from sequencing.errors import NotConnected, OutOfMemory, PublishUncertain, Refused, Superseded
from sequencing.frames import FrameKind, PublishedFrame, decode_body
from sequencing.node import Answer, Node, Verdict
from sequencing.plan import Plan
from sequencing.publisher import FRAME_EVENTS_MAX, FRAME_FILL_BYTES, REQUEST_FILL_BYTES, Publisher
from sequencing.resolved import Resolved

UNDER_WAY, WAITING = PublishUncertain("lost"), NotConnected("closed")


def plan(places: dict[str, str], epoch: int = 1) -> Plan:
    nodes = dict.fromkeys(places.values(), "")
    return Plan(epoch, 1, "acyclic", nodes, {region: (node,) for region, node in places.items()}, ())


def assigned(regions: str = "ab", node: str = "n1") -> Publisher[str]:
    found: Publisher[str] = Publisher("p", 1)
    found.assign(plan(dict.fromkeys(regions, node)))
    return found


def add(publisher: Publisher[str], events: str) -> None:
    """Add events like ``a1 b1``: the letter is the region, and the whole is the token and the payload."""
    for event in events.split():
        publisher.add(event[0], b'"%b"' % event.encode(), binary=False, sent_at_ns=0, token=event)


def ok(*numbers: int) -> Answer:
    return Answer(Verdict.OK, numbers)


def numbered(frames: list[PublishedFrame]) -> list[tuple[str, int, int]]:
    return [(frame.region, frame.first, frame.count) for frame in frames]


def test_a_request_carries_at_most_one_frame_of_each_region() -> None:
    publisher = assigned("abc")
    add(publisher, "a1 b1 a2")
    assert numbered(publisher.take("n1")) == [("a", 1, 2), ("b", 1, 1)]
    add(publisher, "a3 c1 a4")
    publisher.answered("n1", [ok(1, 2), ok(1, 1)])
    assert publisher.waiting_events("n1") == 3
    assert sorted(numbered(publisher.take("n1"))) == [("a", 3, 2), ("c", 1, 1)]


def test_a_request_is_the_same_again_until_it_is_answered() -> None:
    publisher = assigned()
    add(publisher, "a1 b1")
    frames = publisher.take("n1")
    before = list(frames)
    add(publisher, "a2 b2")
    assert publisher.take("n1") == before == frames
    assert decode_body(frames[0].body) == ([0], ["a1"])
    publisher.answered("n1", [ok(1, 1), ok(1, 1)])
    assert sorted(numbered(publisher.take("n1"))) == [("a", 2, 1), ("b", 2, 1)]
    publisher.answered("n1", [ok(1, 2), ok(1, 2)])
    assert publisher.take("n1") == []


@pytest.mark.parametrize("verdict", [Verdict.OK, Verdict.SEEN])
def test_each_event_gets_its_own_number_whether_it_was_accepted_now_or_before(verdict: Verdict) -> None:
    publisher = assigned()
    add(publisher, "a1 a2 a3 b1")
    publisher.take("n1")
    three, one = publisher.answered("n1", [Answer(verdict, (7, 12)), ok(7, 1)])
    assert (three.region, three.tokens, three.epoch, three.first_sequence) == ("a", ["a1", "a2", "a3"], 7, 10)
    assert (one.region, one.tokens, one.epoch, one.first_sequence) == ("b", ["b1"], 7, 1)
    assert (publisher.buffered.events, publisher.buffered.bytes) == (0, 0)


def test_json_and_bytes_do_not_share_a_frame_and_keep_their_order() -> None:
    publisher = assigned("a")
    for token, payload in enumerate([b"1", b"2", b"\x00", b"3"]):
        publisher.add("a", payload, binary=payload == b"\x00", sent_at_ns=100 + token, token=str(token))
    bodies = []
    for last in (2, 3, 4):
        [frame] = publisher.take("n1")
        bodies.append(decode_body(frame.body))
        publisher.answered("n1", [ok(1, last)])
    assert bodies == [([100, 101], [1, 2]), ([102], [b"\x00"]), ([103], [3])]


def test_a_full_frame_takes_no_more_events() -> None:
    publisher = assigned("a")
    add(publisher, " ".join(["a0"] * (FRAME_EVENTS_MAX + 1)))
    assert numbered(publisher.take("n1")) == [("a", 1, FRAME_EVENTS_MAX)]
    publisher.answered("n1", [ok(1, FRAME_EVENTS_MAX)])
    assert numbered(publisher.take("n1")) == [("a", FRAME_EVENTS_MAX + 1, 1)]


def test_a_heavy_event_travels_alone() -> None:
    publisher = assigned("a")
    for size in (FRAME_FILL_BYTES - 1, 1, 1, 2 * FRAME_FILL_BYTES, 1):
        publisher.add("a", b"x" * size, binary=True, sent_at_ns=0, token="")
    counts = []
    while frames := publisher.take("n1"):
        counts.append(frames[0].count)
        publisher.answered("n1", [ok(1, sum(counts))])
    assert counts == [2, 1, 1, 1]


def test_events_wait_for_their_region_to_get_a_place() -> None:
    publisher: Publisher[str] = Publisher("p", 1)
    assert publisher.add("a", b"1", binary=False, sent_at_ns=0, token="a1") is None
    assert publisher.unassigned() == ["a"]
    publisher.woken()
    publisher.assign(plan({"a": "n1", "b": "n2"}, 3))
    assert publisher.woken() == {"n1"}
    assert publisher.unassigned() == []
    assert publisher.add("b", b"1", binary=False, sent_at_ns=0, token="b1") == "n2"
    assert [frame.epoch for node in ("n1", "n2") for frame in publisher.take(node)] == [3, 3]
    # Told again, what is under way does not become ready a second time.
    publisher.woken()
    publisher.assign(plan({"a": "n1", "b": "n2"}, 3))
    assert publisher.woken() == set()


def test_nodes_do_not_wait_for_each_other() -> None:
    publisher: Publisher[str] = Publisher("p", 1)
    publisher.assign(plan({"a": "n1", "b": "n2"}))
    add(publisher, "a1 b1")
    publisher.take("n1")
    publisher.take("n2")
    publisher.answered("n2", [ok(1, 1)])
    add(publisher, "a2 b2")
    assert numbered(publisher.take("n2")) == [("b", 2, 1)]
    assert numbered(publisher.take("n1")) == [("a", 1, 1)]


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (Answer(Verdict.FENCED, (4,)), Superseded),
        (Answer(Verdict.GAP, (0,)), Refused),
        (Answer(Verdict.PAST, (9,)), Refused),
    ],
)
def test_refused_events_fail_for_certain_and_their_numbers_are_free_again(
    answer: Answer, error: type[Refused | Superseded]
) -> None:
    publisher = assigned()
    add(publisher, "a1 a2 b1")
    publisher.take("n1")
    refused, fine = publisher.answered("n1", [answer, ok(1, 1)])
    assert type(refused.error) is error
    assert refused.error.definite
    assert refused.tokens == ["a1", "a2"]
    assert fine.error is None
    add(publisher, "a3")
    assert numbered(publisher.take("n1")) == [("a", 1, 1)]


def test_giving_up_tells_what_was_under_way_from_what_only_waited() -> None:
    publisher = assigned("ab")
    add(publisher, "a1 b1")
    publisher.take("n1")
    add(publisher, "a2 a3")
    publisher.add("a", b"\x00", binary=True, sent_at_ns=0, token="a4")
    publisher.add("c", b"1", binary=False, sent_at_ns=0, token="c1")
    failed = publisher.failed(publisher.regions(), under_way=UNDER_WAY, waiting=WAITING)
    assert [(one.tokens, one.error) for one in failed] == [
        (["a1"], UNDER_WAY),
        (["a2", "a3"], WAITING),
        (["a4"], WAITING),
        (["b1"], UNDER_WAY),
        (["c1"], WAITING),
    ]
    assert (publisher.buffered.events, publisher.buffered.bytes) == (0, 0)
    assert publisher.answered("n1", [ok(1, 1), ok(1, 1)]) == []
    assert publisher.take("n1") == []


def test_after_uncertainty_new_numbers_keep_a_new_frame_from_passing_for_the_lost_one() -> None:
    plan = Plan(1, 1, "overlap", {"n1": ""}, {"a": ("n1",)}, ())
    node = Node("n1")
    node.install(1, 1, plan.steps("n1"))
    publisher = assigned("a")
    add(publisher, "a1")
    publisher.answered("n1", node.publish(publisher.take("n1")))
    add(publisher, "a2")
    lost = publisher.take("n1")
    node.publish(lost)  # and the answer never comes
    failed = publisher.give_up("n1", under_way=UNDER_WAY, waiting=WAITING)
    assert ([each.tokens for each in failed], publisher.doubtful()) == ([["a2"]], ["a"])
    add(publisher, "a3")
    assert publisher.take("n1") == []
    publisher.renew(["a"], 2)
    [again] = publisher.take("n1")
    assert (again.first, again.incarnation) == (3, 2)
    [resolved] = publisher.answered("n1", node.publish([again]))
    assert (resolved.tokens, resolved.first_sequence, resolved.error) == (["a3"], 3, None)
    assert node.publish(lost) == [Answer(Verdict.FENCED, (2,))]
    assert publisher.incarnation == 2


@pytest.mark.parametrize("ending", ["given up", "refused", "failed"])
def test_what_was_sent_and_not_answered_stays_uncertain_wherever_it_goes_then(ending: str) -> None:
    """Its first ingress accepted it, the answer was lost, the region has moved, and the second one takes nothing."""
    publisher = assigned("a", "n1")
    add(publisher, "a1")
    publisher.take("n1")
    publisher.unanswered("n1")
    assert publisher.answered("n1", [Answer(Verdict.STALE, (2,))]) == []
    publisher.assign(plan({"a": "n2"}, epoch=2))
    assert numbered(publisher.take("n2")) == [("a", 1, 1)]
    add(publisher, "a2")
    full = OutOfMemory("full")
    if ending == "given up":
        under_way, waiting = publisher.give_up("n2", under_way=full, waiting=full)
        assert (waiting.tokens, waiting.error) == (["a2"], full)
    elif ending == "failed":
        under_way, waiting = publisher.failed(["a"], under_way=full, waiting=full)
        assert (waiting.tokens, waiting.error) == (["a2"], full)
    else:
        [under_way] = publisher.answered("n2", [Answer(Verdict.GAP, (7,))])
    assert under_way.tokens == ["a1"]
    assert isinstance(under_way.error, PublishUncertain)
    assert publisher.doubtful() == ["a"], "its number must not be used for another event"


@pytest.mark.parametrize("gives_up", ["the node", "the regions"])
def test_giving_up_leaves_nothing_to_take_of_what_waited_for_each_other(gives_up: str) -> None:
    publisher: Publisher[str] = Publisher("p", 1, causal=True)
    publisher.assign(plan(dict.fromkeys("abc", "n1")))
    add(publisher, "a1 b1 c1 a2 b2")  # each waits until the one before is delivered
    assert numbered(publisher.take("n1")) == [("a", 1, 1)]
    definite = NotConnected("stopped")
    if gives_up == "the node":
        failed = publisher.give_up("n1", under_way=UNDER_WAY, waiting=definite)
    else:
        failed = publisher.failed(publisher.regions(), under_way=UNDER_WAY, waiting=definite)
        assert publisher.answered("n1", [ok(1, 1)]) == [], "nobody waits for it any more"
    assert sorted(token for each in failed for token in each.tokens) == ["a1", "a2", "b1", "b2", "c1"]
    assert publisher.waiting_events("n1") == 0
    assert publisher.take("n1") == []
    publisher.renew(publisher.doubtful(), 2)
    add(publisher, "c2")
    assert numbered(publisher.take("n1")) == [("c", 1, 1)]


def test_giving_a_node_up_does_not_touch_what_is_under_way_elsewhere_since_it_was_given_up_there() -> None:
    """a1 may be lost at n1, which begins anew while a1 hangs at n2; a2 is under way at n3 when n2 answers at last."""

    def moved(version: int, node: str, run: str) -> Plan:
        return Plan(version, 1, "acyclic", dict.fromkeys(["n1", "n2", "n3"], ""), {"a": (node,)}, (), {}, {"n1": run})

    publisher: Publisher[str] = Publisher("p", 1)
    publisher.assign(moved(1, "n1", "first"))
    add(publisher, "a1")
    publisher.take("n1")
    publisher.unanswered("n1")
    publisher.assign(moved(2, "n2", "first"))
    publisher.answered("n1", [Answer(Verdict.STALE, ())])
    assert numbered(publisher.take("n2")) == [("a", 1, 1)]
    publisher.assign(moved(3, "n2", "second"))
    assert [each.tokens for each in publisher.abandoned()] == [["a1"]]
    add(publisher, "a2")
    publisher.assign(moved(4, "n3", "second"))
    assert numbered(publisher.take("n3")) == [("a", 2, 1)]
    full = OutOfMemory("full")
    assert publisher.give_up("n2", under_way=full, waiting=full) == []
    [accepted] = publisher.answered("n3", [ok(4, 1)])
    assert (accepted.tokens, accepted.error) == (["a2"], None)
    add(publisher, "a3")
    assert numbered(publisher.take("n3")) == [("a", 3, 1)]


def test_what_was_answered_each_time_fails_for_certain() -> None:
    publisher = assigned("a", "n1")
    add(publisher, "a1")
    publisher.take("n1")
    publisher.unanswered("n1")
    publisher.answered("n1", [ok(1, 1)])
    add(publisher, "a2")
    publisher.take("n1")
    full = OutOfMemory("full")
    assert [each.error for each in publisher.give_up("n1", under_way=full, waiting=full)] == [full]
    assert publisher.doubtful() == []


def test_giving_up_a_node_gives_up_what_was_sent_there_and_nothing_that_is_under_way_elsewhere() -> None:
    publisher: Publisher[str] = Publisher("p", 1)
    publisher.assign(plan({"a": "n1", "b": "n2"}))
    add(publisher, "a1 b1")
    [sent] = publisher.take("n1")
    publisher.take("n2")
    publisher.assign(Plan(2, 1, "acyclic", dict.fromkeys(("n1", "n2"), ""), {"a": ("n2",), "b": ("n2",)}, (), {"b": 1}))
    failed = publisher.give_up("n2", under_way=UNDER_WAY, waiting=WAITING)
    assert ([each.tokens for each in failed], publisher.doubtful()) == ([["b1"]], ["b"])
    [answered] = publisher.answered("n1", [ok(1, 1)])
    assert (answered.tokens, answered.error) == (["a1"], None)
    assert sent.region == "a"
    assert publisher.buffered.events == 0


def test_what_moves_away_from_a_node_that_is_given_up_is_given_up_there() -> None:
    publisher = assigned("ab")
    add(publisher, "a1 b1")
    publisher.take("n1")
    publisher.assign(Plan(2, 1, "acyclic", dict.fromkeys(("n1", "n2"), ""), {"a": ("n2",), "b": ("n1",)}, (), {"b": 1}))
    failed = publisher.give_up("n1", under_way=UNDER_WAY, waiting=WAITING)
    assert ([each.tokens for each in failed], publisher.doubtful()) == ([["a1"], ["b1"]], ["a", "b"])
    add(publisher, "a2")
    assert publisher.take("n2") == []
    publisher.renew(publisher.doubtful(), 2)
    assert numbered(publisher.take("n2")) == [("a", 2, 1)]


def test_buffered_bytes_are_those_of_the_payloads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publisher_module, "FRAME_EVENTS_MAX", 1)
    publisher = assigned("a")
    add(publisher, "a1 a22 a333")
    assert (publisher.buffered.events, publisher.buffered.bytes) == (3, len('"a1""a22""a333"'))
    publisher.take("n1")
    assert publisher.buffered.events == 3
    publisher.answered("n1", [ok(1, 1)])
    assert (publisher.buffered.events, publisher.buffered.bytes) == (2, len('"a22""a333"'))


def test_a_request_carries_no_more_than_it_should_and_the_rest_follows() -> None:
    publisher = assigned("abc")
    for region in "abc":
        publisher.add(region, b"x" * (REQUEST_FILL_BYTES // 2), True, 0, region)
    assert [frame.region for frame in publisher.take("n1")] == ["a", "b"]
    publisher.answered("n1", [ok(1, 1), ok(1, 1)])
    assert [frame.region for frame in publisher.take("n1")] == ["c"]


def test_what_an_ingress_no_longer_takes_goes_with_its_numbers_to_where_the_next_plan_says() -> None:
    publisher = assigned("a")
    add(publisher, "a1 a2")
    [before] = publisher.take("n1")
    add(publisher, "a3")
    assert publisher.answered("n1", [Answer(Verdict.STALE, (1,))]) == []
    assert (publisher.stale, publisher.take("n1"), publisher.buffered.events) == ({"a": 1}, [], 3)
    publisher.woken()
    publisher.assign(plan({"a": "n2"}, 2))
    assert publisher.woken() == {"n2"}
    [again] = publisher.take("n2")
    assert again == replace(before, epoch=2)
    [resolved] = publisher.answered("n2", [Answer(Verdict.SEEN, (1, 2))])
    assert (resolved.tokens, resolved.epoch, resolved.first_sequence) == (["a1", "a2"], 1, 1)
    assert numbered(publisher.take("n2")) == [("a", 3, 1)]


def test_an_ingress_that_is_not_open_yet_is_asked_again() -> None:
    publisher = assigned("a")
    add(publisher, "a1")
    before = publisher.take("n1")
    assert publisher.answered("n1", [Answer(Verdict.WAIT, (1,))]) == []
    assert publisher.take("n1") == before


def test_a_plan_that_comes_while_a_frame_is_under_way_does_not_offer_it_twice() -> None:
    publisher = assigned("a")
    add(publisher, "a1")
    frames = publisher.take("n1")
    publisher.woken()
    publisher.assign(plan({"a": "n2"}, 2))
    assert publisher.woken() == set()
    assert publisher.take("n2") == []
    assert publisher.take("n1") == frames
    publisher.answered("n1", [Answer(Verdict.STALE, (1,))])
    assert publisher.stale == {}
    assert [frame.epoch for frame in publisher.take("n2")] == [2]


def test_a_marker_goes_before_the_events_that_wait() -> None:
    publisher = assigned("a")
    add(publisher, "a1")
    publisher.mark("a", b"here", "mark")
    [marker] = publisher.take("n1")
    assert (marker.kind, marker.body, marker.first, marker.count) == (FrameKind.JOIN, b"here", 1, 1)
    publisher.answered("n1", [ok(1, 1)])
    assert numbered(publisher.take("n1")) == [("a", 2, 1)]


def causal(regions: str = "ab") -> Publisher[str]:
    found: Publisher[str] = Publisher("p", 1, causal=True)
    found.assign(plan(dict.fromkeys(regions, "n1")))
    return found


def test_an_event_waits_until_what_was_published_before_to_other_regions_is_delivered() -> None:
    publisher = causal()
    add(publisher, "a1 a2 b1 b2 a3")
    assert numbered(publisher.take("n1")) == [("a", 1, 2)]
    publisher.answered("n1", [ok(1, 2)])
    assert publisher.take("n1") == []
    publisher.woken()
    publisher.passed("a", 1)
    assert publisher.woken() == set()
    publisher.passed("a", 2)
    assert publisher.woken() == {"n1"}
    assert numbered(publisher.take("n1")) == [("b", 1, 2)]
    publisher.answered("n1", [ok(1, 2)])
    assert publisher.take("n1") == []
    publisher.woken()
    publisher.passed("b", 2)
    assert publisher.woken() == {"n1"}
    assert numbered(publisher.take("n1")) == [("a", 3, 1)]


def test_events_to_one_region_need_not_wait_for_each_other() -> None:
    publisher = causal("a")
    add(publisher, "a1")
    publisher.take("n1")
    publisher.answered("n1", [ok(1, 1)])
    add(publisher, "a2")
    assert numbered(publisher.take("n1")) == [("a", 2, 1)]


def test_events_that_failed_are_not_waited_for() -> None:
    publisher = causal()
    add(publisher, "a1 b1")
    publisher.take("n1")
    publisher.answered("n1", [Answer(Verdict.GAP, (0,))])
    assert numbered(publisher.take("n1")) == [("b", 1, 1)]


def in_run(run: str, paths: dict[str, str], epoch: int) -> Plan:
    return replace(plan(paths, epoch), runs={"n1": run})


@pytest.mark.parametrize("refused", [False, True])
def test_what_was_under_way_at_an_ingress_that_begins_anew_is_not_sent_again(refused: bool) -> None:
    publisher: Publisher[str] = Publisher("p", 1)
    publisher.assign(in_run("x", {"a": "n1", "b": "n1"}, 1))
    add(publisher, "a1 a2")
    publisher.take("n1")
    publisher.take("n1")
    add(publisher, "a3 b1")
    if refused:  # of what was sent twice, a refusal tells one fate only
        publisher.answered("n1", [Answer(Verdict.WAIT, (1,))])
    publisher.woken()
    publisher.assign(in_run("y", {"a": "n2", "b": "n1"}, 2))
    assert publisher.woken() == {"n1", "n2"}
    [abandoned] = publisher.abandoned()
    assert (abandoned.tokens, type(abandoned.error)) == (["a1", "a2"], PublishUncertain)
    assert publisher.answered("n1", [ok(1, 2)]) == []
    assert (numbered(publisher.take("n2")), numbered(publisher.take("n1"))) == ([("a", 3, 1)], [("b", 1, 1)])
    assert (publisher.abandoned(), publisher.buffered.events) == ([], 2)


def test_what_an_ingress_that_begins_anew_refused_once_goes_to_the_next() -> None:
    publisher: Publisher[str] = Publisher("p", 1)
    publisher.assign(in_run("x", {"a": "n1"}, 1))
    add(publisher, "a1")
    publisher.take("n1")
    publisher.answered("n1", [Answer(Verdict.STALE, (1,))])
    publisher.woken()
    publisher.assign(in_run("y", {"a": "n2"}, 2))
    assert publisher.woken() == {"n2"}
    assert (publisher.abandoned(), numbered(publisher.take("n2"))) == ([], [("a", 1, 1)])


def uncertain_at(node: str) -> Publisher[str]:
    """Of a1, an answer was lost at a node; n1 may lose something."""
    publisher: Publisher[str] = Publisher("p", 1)
    publisher.assign(in_run("x", {"a": node, "b": "n2"}, 1))
    add(publisher, "a1")
    publisher.take(node)
    publisher.unanswered(node)
    return publisher


def test_a_node_that_is_found_to_have_lost_something_has_forgotten_what_is_uncertain() -> None:
    """It was registered to keep everything; the plan names a run for it from now on. It would take a1 again for new."""
    publisher = assigned("a")
    add(publisher, "a1")
    publisher.take("n1")
    publisher.unanswered("n1")
    publisher.assign(in_run("x", {"a": "n1"}, 2))
    [abandoned] = publisher.abandoned() or publisher.answered("n1", [Answer(Verdict.STALE, (2,))])
    assert (abandoned.tokens, type(abandoned.error)) == (["a1"], PublishUncertain)
    assert publisher.take("n1") == []


def test_what_is_forsaken_is_not_taken_where_it_had_moved_to() -> None:
    publisher = uncertain_at("n1")
    add(publisher, "b1")
    publisher.take("n2")  # so a1 waits for its turn there
    publisher.assign(in_run("x", {"a": "n2", "b": "n2"}, 2))
    assert publisher.answered("n1", [Answer(Verdict.STALE, (2,))]) == []
    publisher.assign(in_run("y", {"a": "n2", "b": "n2"}, 3))
    assert [each.tokens for each in publisher.abandoned()] == [["a1"]]
    publisher.answered("n2", [ok(1, 1)])
    assert publisher.take("n2") == []


@pytest.mark.parametrize("heard", ["each plan", "the last plan", "no answer until then"])
def test_a_node_that_begins_anew_forgets_what_the_one_before_told_it(heard: str) -> None:
    """n3 may have accepted a1, and told n1 so; n1 begins anew. n2 would take a1 for new."""
    publisher = uncertain_at("n3")
    if heard == "no answer until then":
        publisher = Publisher("p", 1)
        publisher.assign(in_run("x", {"a": "n3", "b": "n2"}, 1))
        add(publisher, "a1")
        publisher.take("n3")
    if heard != "the last plan":
        publisher.assign(in_run("x", {"a": "n1", "b": "n2"}, 2))
    publisher.assign(in_run("y", {"a": "n2", "b": "n2"}, 3))
    told = publisher.abandoned()
    if not told:
        publisher.unanswered("n3")
        told = publisher.answered("n3", [Answer(Verdict.STALE, (2,))])
    [abandoned] = told
    assert (abandoned.tokens, type(abandoned.error)) == (["a1"], PublishUncertain)
    add(publisher, "a2")
    assert numbered(publisher.take("n2")) == [("a", 2, 1)]


def test_what_was_refused_for_certain_goes_on_though_a_node_began_anew() -> None:
    publisher: Publisher[str] = Publisher("p", 1)
    publisher.assign(in_run("x", {"a": "n3"}, 1))
    add(publisher, "a1")
    publisher.take("n3")
    publisher.assign(in_run("x", {"a": "n1"}, 2))
    publisher.assign(in_run("y", {"a": "n2"}, 3))
    assert publisher.answered("n3", [Answer(Verdict.STALE, (2,))]) == []
    assert (publisher.abandoned(), numbered(publisher.take("n2"))) == ([], [("a", 1, 1)])
    publisher.unanswered("n2")
    assert publisher.answered("n2", [Answer(Verdict.WAIT, (3,))]) == [], "only n2 can have accepted it, and knows"


@pytest.mark.parametrize("late", [False, True])
def test_what_is_lost_is_not_waited_for_once_its_epoch_has_ended(late: bool) -> None:
    publisher = causal()
    add(publisher, "a1 b1")
    publisher.take("n1")
    if late:
        publisher.woken()
        publisher.ended("a", 1)
        assert publisher.woken() == set()
        publisher.answered("n1", [ok(1, 1)])
        assert publisher.woken() == {"n1"}
    else:
        publisher.answered("n1", [ok(1, 1)])
        publisher.woken()
        publisher.ended("a", 1)
        assert publisher.woken() == {"n1"}
    assert numbered(publisher.take("n1")) == [("b", 1, 1)]


def test_what_was_delivered_and_then_forsaken_counts_once() -> None:
    publisher: Publisher[str] = Publisher("p", 1, causal=True)
    publisher.assign(in_run("x", {"a": "n1", "b": "n2"}, 1))
    add(publisher, "a1")
    publisher.take("n1")
    add(publisher, "a2")
    publisher.passed("a", 1)
    add(publisher, "b1")
    publisher.assign(in_run("y", {"a": "n1", "b": "n2"}, 2))
    assert publisher.take("n2") == []
    assert numbered(publisher.take("n1")) == [("a", 2, 1)]
    publisher.answered("n1", [ok(2, 1)])
    publisher.woken()
    publisher.passed("a", 2)
    assert publisher.woken() == {"n2"}


def test_markers_do_not_wait_for_deliveries() -> None:
    publisher = causal()
    add(publisher, "a1 b1")
    publisher.mark("b", b"here", "mark")
    assert sorted(numbered(publisher.take("n1"))) == [("a", 1, 1), ("b", 1, 1)]


def test_frames_carry_the_incarnation_which_never_goes_back() -> None:
    publisher: Publisher[str] = Publisher("p", 5)
    publisher.assign(plan({"a": "n1", "b": "n1"}))
    add(publisher, "a1 b1")
    assert ([frame.incarnation for frame in publisher.take("n1")], publisher.incarnation) == ([5, 5], 5)
    publisher.renew(["a"], 7)
    assert publisher.incarnation == 7
    publisher.renew(["b"], 6)
    assert publisher.incarnation == 7


def test_what_failed_has_no_number_and_neither_payloads_nor_times_are_told_of_what_became_of_it() -> None:
    publisher = assigned("a")
    publisher.add("a", b"secret", binary=True, sent_at_ns=12345, token="a1")
    [failed] = publisher.failed("a", under_way=UNDER_WAY, waiting=WAITING)
    assert (failed.epoch, failed.first_sequence, failed.sent_at_ns, failed.payloads) == (0, 0, [12345], [b"secret"])
    assert failed == Resolved("a", ["a1"], error=WAITING)
    assert "secret" not in repr(failed)
    assert "12345" not in repr(failed)


def test_errors_tell_which_events_of_whom_were_refused_where_and_why() -> None:
    publisher = assigned("a")
    add(publisher, "a1 a2")
    publisher.take("n1")
    [refused] = publisher.answered("n1", [Answer(Verdict.GAP, (7,))])
    assert str(refused.error) == (
        "the ingress of region 'a' refused events 1…2 of 'p': "
        f"{Answer(Verdict.GAP, (7,)).encode().decode()} (sent in epoch 1)"
    )


def test_markers_are_counted_like_events_and_need_no_event_before_them() -> None:
    publisher = assigned("a")
    assert (publisher.mark("a", b"here", "mark"), publisher.woken()) == ("n1", {"n1"})
    assert publisher.mark("b", b"there", "other") is None
    assert (publisher.buffered.events, publisher.buffered.bytes) == (2, len(b"herethere"))
    publisher.take("n1")
    publisher.answered("n1", [ok(1, 1)])
    assert (publisher.buffered.events, publisher.buffered.bytes) == (1, len(b"there"))


def test_nothing_wakes_a_node_for_a_region_that_no_plan_has_given_a_place() -> None:
    publisher = assigned("b")
    add(publisher, "c1 b1")
    assert (publisher.woken(), publisher.unassigned()) == ({"n1"}, ["c"])
    publisher.assign(plan({"b": "n2"}, 2))
    assert (publisher.unassigned(), numbered(publisher.take("n2"))) == (["c"], [("b", 1, 1)])
    publisher.failed("c", under_way=UNDER_WAY, waiting=WAITING)
    assert publisher.unassigned() == [], "it has no events any more"


def test_a_plan_that_leaves_a_region_where_it_is_wakes_nobody() -> None:
    publisher = assigned("ab")
    add(publisher, "a1 b1")
    publisher.woken()
    publisher.assign(replace(plan({"a": "n1", "b": "n2"}, 2), epochs={"a": 1}))
    assert publisher.woken() == {"n2"}
    assert (numbered(publisher.take("n1")), numbered(publisher.take("n2"))) == ([("a", 1, 1)], [("b", 1, 1)])


def test_it_tells_what_is_under_way_and_how_much_a_request_would_carry() -> None:
    publisher = assigned("a")
    add(publisher, "a1 a2")
    assert (bool(publisher.under_way("n1")), publisher.waiting_events("n1")) == (False, 2)
    publisher.take("n1")
    add(publisher, "a3 a4 a5")
    assert (bool(publisher.under_way("n1")), publisher.waiting_events("n1")) == (True, 0)
    publisher.answered("n1", [Answer(Verdict.WAIT, (1,))])
    assert (bool(publisher.under_way("n1")), publisher.waiting_events("n1")) == (False, 2), "the same again"


@pytest.mark.parametrize(("fill_bytes", "regions"), [(4, "a"), (5, "ab"), (8, "ab"), (9, "abc")])
def test_a_request_takes_frames_until_it_is_full(
    fill_bytes: int, regions: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publisher_module, "REQUEST_FILL_BYTES", fill_bytes)
    publisher = assigned("abc")
    for region in "abc":
        publisher.mark(region, b"four", region)
    assert [frame.region for frame in publisher.take("n1")] == list(regions)


def test_an_answer_that_is_lost_says_nothing_of_what_is_under_way_elsewhere_since() -> None:
    publisher = assigned("a")
    add(publisher, "a1")
    publisher.take("n1")
    publisher.failed("a", under_way=OutOfMemory("full"), waiting=WAITING)
    publisher.assign(plan({"a": "n2"}, 2))
    add(publisher, "a2")
    publisher.take("n2")
    publisher.unanswered("n1")
    full = OutOfMemory("full")
    assert [each.error for each in publisher.give_up("n2", under_way=full, waiting=full)] == [full]


def test_what_is_given_up_is_not_offered_again() -> None:
    publisher = assigned("ab")
    add(publisher, "a1 b1")
    full = OutOfMemory("full")
    assert len(publisher.give_up("n1", under_way=full, waiting=full)) == 2
    assert (publisher.take("n1"), publisher.buffered.events) == ([], 0)
    add(publisher, "a2 b2")
    assert len(publisher.failed("ab", under_way=full, waiting=full)) == 2
    assert (publisher.take("n1"), publisher.buffered.events) == ([], 0)


def test_what_waits_to_be_offered_again_is_given_up_with_its_node_and_with_no_other() -> None:
    publisher: Publisher[str] = Publisher("p", 1)
    publisher.assign(plan({"a": "n1", "b": "n2"}))
    add(publisher, "a1 b1")
    publisher.take("n1")
    publisher.answered("n1", [Answer(Verdict.WAIT, (1,))])
    assert [each.tokens for each in publisher.give_up("n2", under_way=UNDER_WAY, waiting=WAITING)] == [["b1"]]
    assert [each.error for each in publisher.give_up("n1", under_way=UNDER_WAY, waiting=WAITING)] == [UNDER_WAY]
    assert publisher.doubtful() == ["a"]


@pytest.mark.parametrize("all_at_once", [False, True])
def test_only_regions_whose_fate_is_open_need_a_new_incarnation(all_at_once: bool) -> None:
    """The answers of n1 to b were lost, and c … h hang there; full says for certain what becomes of a."""
    publisher: Publisher[str] = Publisher("p", 1)
    publisher.assign(plan(dict.fromkeys("bcdefgh", "n1") | {"a": "n2"}))
    add(publisher, "a1 b1 c1 d1 e1 f1 g1 h1")
    publisher.take("n1")
    publisher.take("n2")
    publisher.unanswered("n1")
    full = OutOfMemory("full")
    if all_at_once:
        publisher.failed("abcdefgh", under_way=full, waiting=full)
    else:
        publisher.give_up("n2", under_way=full, waiting=full)
        publisher.give_up("n1", under_way=full, waiting=full)
    assert publisher.doubtful() == list("bcdefgh")


def test_of_one_node_too_only_regions_whose_fate_is_open_need_a_new_incarnation() -> None:
    publisher = assigned("a")
    publisher.assign(plan({"a": "n1", "b": "n2"}))
    add(publisher, "a1 b1")
    publisher.take("n2")
    publisher.unanswered("n2")
    publisher.answered("n2", [Answer(Verdict.STALE, (2,))])
    publisher.assign(Plan(2, 1, "acyclic", {"n1": "", "n2": ""}, {"a": ("n1",), "b": ("n1",)}, (), {"a": 1}))
    assert sorted(numbered(publisher.take("n1"))) == [("a", 1, 1), ("b", 1, 1)]
    full = OutOfMemory("full")
    publisher.give_up("n1", under_way=full, waiting=full)
    assert publisher.doubtful() == ["b"]


def test_what_waits_where_a_region_has_moved_to_goes_when_its_old_node_is_given_up() -> None:
    publisher = assigned("a")
    add(publisher, "a1")
    publisher.take("n1")
    publisher.assign(plan({"a": "n2"}, 2))
    add(publisher, "a2")
    assert publisher.take("n2") == []
    full = OutOfMemory("full")
    assert [each.tokens for each in publisher.give_up("n1", under_way=full, waiting=full)] == [["a1"]]
    assert numbered(publisher.take("n2")) == [("a", 1, 1)]


def test_what_was_stale_and_is_given_up_keeps_nothing_from_going() -> None:
    publisher = assigned("a")
    add(publisher, "a1")
    publisher.take("n1")
    publisher.answered("n1", [Answer(Verdict.STALE, (1,))])
    full = OutOfMemory("full")
    publisher.failed("a", under_way=full, waiting=full)
    add(publisher, "a2")
    assert (publisher.stale, numbered(publisher.take("n1"))) == ({}, [("a", 1, 1)])


@pytest.mark.parametrize(("before", "after"), [("x", "y"), ("y", "x"), ("x", None)])
def test_a_node_begins_anew_when_its_run_is_another_one(before: str, after: str | None) -> None:
    publisher: Publisher[str] = Publisher("p", 1)
    publisher.assign(in_run(before, {"a": "n1"}, 1))
    add(publisher, "a1")
    publisher.take("n1")
    publisher.assign(plan({"a": "n2"}, 2) if after is None else in_run(after, {"a": "n2"}, 2))
    [abandoned] = publisher.abandoned()
    assert str(abandoned.error) == (
        "a node on the path of 'a' was reset. It may have accepted 1 event(s) and "
        "lost them; some subscribers may have delivered them"
    )


@pytest.mark.parametrize(
    ("epoch", "before", "after", "abandoned"),
    [(3, "x", "x", True), (3, "x", "", True), (3, "", "x", True), (3, "", "", False), (2, "x", "x", False)],
)
def test_where_nodes_may_begin_anew_each_may_have_done_so_between_plans_that_were_not_told(
    epoch: int, before: str, after: str, abandoned: bool
) -> None:
    publisher: Publisher[str] = Publisher("p", 1)
    publisher.assign(replace(plan({"a": "n1"}, 1), runs={"n9": before} if before else {}))
    add(publisher, "a1")
    publisher.take("n1")
    publisher.unanswered("n1")
    publisher.assign(replace(plan({"a": "n1"}, 1), runs={"n9": before} if before else {}))
    assert publisher.abandoned() == [], "that is the same plan"
    publisher.assign(replace(plan({"a": "n1"}, epoch), runs={"n9": after} if after else {}))
    assert bool(publisher.abandoned()) == abandoned


def test_what_is_forsaken_makes_room_for_what_waits_also_where_its_region_stays() -> None:
    """a1 may have been accepted by n1; its region has moved to n2 and stays there when n1 begins anew."""
    publisher = uncertain_at("n1")
    publisher.assign(in_run("x", {"a": "n2", "b": "n2"}, 2))
    publisher.answered("n1", [Answer(Verdict.STALE, (2,))])
    anew = replace(in_run("y", {"a": "n2", "b": "n2"}, 3), epochs={"a": 2, "b": 2})
    publisher.assign(anew)
    assert ([each.tokens for each in publisher.abandoned()], publisher.take("n2")) == ([["a1"]], [])
    publisher = uncertain_at("n1")
    publisher.assign(in_run("x", {"a": "n2", "b": "n2"}, 2))
    publisher.answered("n1", [Answer(Verdict.STALE, (2,))])
    add(publisher, "a2")
    publisher.assign(anew)
    assert numbered(publisher.take("n2")) == [("a", 2, 1)]


def test_who_does_not_wait_need_not_be_told_what_was_delivered() -> None:
    publisher = assigned("a")
    add(publisher, "a1")
    publisher.take("n1")
    publisher.passed("a", 1)
    publisher.ended("a", 1)
    publisher.gone("a", 1, 1)
    assert publisher.awaited() == set()
    assert len(publisher.answered("n1", [ok(1, 1)])) == 1


def test_it_tells_in_which_regions_it_has_yet_to_deliver_its_own_events() -> None:
    publisher = causal()
    add(publisher, "a1 b1")
    publisher.take("n1")
    publisher.answered("n1", [ok(1, 1)])
    assert publisher.awaited() == {"a", "b"}
    publisher.passed("a", 1)
    assert publisher.awaited() == {"b"}


@pytest.mark.parametrize(
    ("epoch", "last", "free"), [(1, 4, False), (1, 5, True), (1, 6, True), (2, 1, True), (0, 9, False)]
)
@pytest.mark.parametrize("told_first", [False, True])
def test_what_was_accepted_up_to_where_something_is_missing_is_not_waited_for(
    epoch: int, last: int, free: bool, told_first: bool
) -> None:
    publisher = causal()
    add(publisher, "a1 b1")
    publisher.take("n1")
    if told_first:
        publisher.gone("a", epoch, last)
    publisher.answered("n1", [ok(1, 5)])
    if not told_first:
        publisher.gone("a", epoch, last)
    assert numbered(publisher.take("n1")) == ([("b", 1, 1)] if free else [])


def test_an_epoch_that_has_ended_says_nothing_of_what_was_accepted_in_a_later_one_or_not_yet() -> None:
    publisher: Publisher[str] = Publisher("p", 1, causal=True)
    publisher.assign(plan({"a": "n1", "b": "n2"}))
    add(publisher, "a1")
    publisher.take("n1")
    publisher.answered("n1", [ok(2, 1)])
    add(publisher, "a2 b1")
    publisher.ended("a", 1)
    publisher.passed("a", 1)
    assert (numbered(publisher.take("n1")), publisher.take("n2")) == ([("a", 2, 1)], [])
    publisher.ended("a", 2)
    assert publisher.take("n2") == [], "nobody knows where a2 will be accepted"


def test_an_epoch_that_has_ended_frees_nothing_that_was_accepted_in_the_next_one() -> None:
    publisher = causal()
    add(publisher, "a1 b1")
    publisher.take("n1")
    publisher.answered("n1", [ok(2, 1)])
    publisher.ended("a", 1)
    assert publisher.take("n1") == []
    publisher.ended("a", 2)
    assert numbered(publisher.take("n1")) == [("b", 1, 1)]


def test_no_event_joins_the_frame_of_a_marker() -> None:
    publisher = assigned("a")
    publisher.mark("a", b"here", "mark")
    publisher.add("a", b"bytes", binary=True, sent_at_ns=0, token="a1")
    [marker] = publisher.take("n1")
    assert (marker.kind, marker.body, marker.count) == (FrameKind.JOIN, b"here", 1)
    publisher.answered("n1", [ok(1, 1)])
    assert numbered(publisher.take("n1")) == [("a", 2, 1)]


def test_what_is_sent_twice_is_delivered_once() -> None:
    publisher = causal()
    add(publisher, "a1")
    publisher.take("n1")
    publisher.answered("n1", [Answer(Verdict.WAIT, (1,))])
    publisher.take("n1")
    add(publisher, "a2 b1")
    publisher.answered("n1", [ok(1, 1)])
    publisher.passed("a", 1)
    assert numbered(publisher.take("n1")) == [("a", 2, 1)], "b1 waits for a2"


def test_markers_wait_for_no_event_and_no_event_waits_for_them() -> None:
    publisher = causal()
    publisher.mark("b", b"here", "first")
    assert [frame.kind for frame in publisher.take("n1")] == [FrameKind.JOIN]
    publisher.answered("n1", [ok(1, 1)])
    add(publisher, "a1 b1")
    publisher.take("n1")
    publisher.answered("n1", [ok(1, 5)])
    publisher.mark("a", b"here", "second")
    publisher.take("n1")
    publisher.answered("n1", [ok(1, 7)])
    publisher.passed("b", 1)
    publisher.mark("b", b"there", "third")
    full = OutOfMemory("full")
    assert [each.tokens for each in publisher.failed("b", under_way=full, waiting=full)] == [["third"], ["b1"]]
    add(publisher, "b2")
    publisher.gone("a", 1, 5)
    assert numbered(publisher.take("n1")) == [("b", 2, 1)], "the marker behind it does not matter"


def test_events_that_are_given_up_before_they_were_sent_are_not_waited_for() -> None:
    publisher = causal("abc")
    add(publisher, "a1 b1 b2 c1")
    publisher.take("n1")
    full = OutOfMemory("full")
    publisher.failed("b", under_way=full, waiting=full)
    publisher.answered("n1", [ok(1, 1)])
    assert publisher.take("n1") == []
    publisher.passed("a", 1)
    assert numbered(publisher.take("n1")) == [("c", 1, 1)]


def test_what_is_under_way_is_waited_for_though_what_followed_it_was_given_up() -> None:
    publisher: Publisher[str] = Publisher("p", 1, causal=True)
    publisher.assign(plan({"a": "n1", "b": "n3"}))
    add(publisher, "a1")
    publisher.take("n1")
    publisher.assign(Plan(2, 1, "acyclic", dict.fromkeys(["n1", "n2", "n3"], ""), {"a": ("n2",), "b": ("n3",)}, ()))
    add(publisher, "a2 b1")
    full = OutOfMemory("full")
    assert [each.tokens for each in publisher.give_up("n2", under_way=full, waiting=full)] == [["a2"]]
    assert publisher.take("n3") == []
    publisher.answered("n1", [ok(1, 1)])
    publisher.passed("a", 1)
    assert numbered(publisher.take("n3")) == [("b", 1, 1)]


def test_what_a_node_has_forgotten_the_publisher_of_goes_out_as_another_incarnation_if_it_is_certain() -> None:
    publisher = assigned()
    add(publisher, "a1 b1")
    forgotten = Answer(Verdict.FORGOTTEN, (7,))
    publisher.take("n1")
    assert publisher.answered("n1", [forgotten, ok(1, 1)]) == [Resolved("b", ["b1"], 1, 1)]
    add(publisher, "a2")
    assert publisher.doubtful() == ["a"]
    assert publisher.take("n1") == []
    publisher.renew(["a"], 8)
    [again] = publisher.take("n1")
    assert (again.incarnation, again.first, decode_body(again.body)) == (8, 1, ([0], ["a1"]))
    publisher.unanswered("n1")
    [failed] = publisher.answered("n1", [forgotten])
    assert isinstance(failed.error, PublishUncertain)
    assert publisher.doubtful() == ["a"]
    publisher.renew(["a"], 9)
    [later] = publisher.take("n1")
    assert (later.incarnation, later.first, decode_body(later.body)) == (9, 2, ([0], ["a2"]))


def test_what_no_node_has_taken_is_not_uncertain_when_it_is_given_up() -> None:
    publisher = assigned()
    add(publisher, "a1")
    publisher.take("n1")
    publisher.answered("n1", [Answer(Verdict.FORGOTTEN, (7,))])
    assert publisher.forgotten == 7
    [failed] = publisher.failed(["a"], under_way=UNDER_WAY, waiting=WAITING)
    assert failed == Resolved("a", ["a1"], error=WAITING)


def test_what_was_published_before_is_not_answered_when_an_event_of_several_regions_behind_it_is_given_up() -> None:
    publisher = assigned()
    add(publisher, "a1")
    publisher.add_joint(("a", "b"), b"1", False, 0, "both")
    before = publisher.last_own("a")
    assert before is not None
    frames = publisher.take("n1")
    publisher.failed(["b"], under_way=UNDER_WAY, waiting=WAITING)
    assert numbered(frames) == [("a", 1, 1)]
    assert not publisher.is_answered("a", before)
    publisher.answered("n1", [ok(1, 1)])
    assert publisher.is_answered("a", before)
