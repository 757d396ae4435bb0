"""A network of one node: a plan that lists no region, and the first one that does."""

from __future__ import annotations

import pytest

from sequencing.errors import PlanError
from sequencing.everywhere import Everywhere, everywhere
from sequencing.frames import PublishedFrame
from sequencing.listing import listed, listing
from sequencing.node import Answer, Node, Verdict
from sequencing.plan import Plan, first_plan, sole_plan
from sequencing.planchange import NOTHING, change_between, changed
from sequencing.publisher import Publisher
from sequencing.record import Interest, Record
from sequencing.session import Session
from sequencing.sole import BeginAny, BeginNoMore, begin_listed, first_listed

PLAN = sole_plan("acyclic", "n1", "redis://one", 7)
RECORD = Record(PLAN)
WANTED = {"s": Interest(3, 5, {"a": 4, "b": 5}), "t": Interest(4, 1, {"b": 1}), "idle": Interest(5, 2)}


def test_a_plan_of_one_node_has_a_place_for_every_region_and_lists_none() -> None:
    assert "whatever is named" in PLAN.paths
    assert PLAN.paths["whatever is named"] == ("n1",)
    assert not list(PLAN.paths)
    assert PLAN.ingresses == {"n1"}
    assert not PLAN.links
    assert (PLAN.epoch_of("a"), PLAN.first_epoch) == (7, 7)
    assert everywhere("n1") is PLAN.paths


def test_it_is_read_back_as_it_was() -> None:
    assert changed(NOTHING, change_between(NOTHING, PLAN)) == PLAN
    assert isinstance(Plan.from_json(PLAN.to_json()).paths, Everywhere)


@pytest.mark.parametrize("other", [{"sole": "n2"}, {"sole": 3}, {"regions": {"a": {"path": ["n1"]}}}])
def test_a_text_that_contradicts_itself_is_refused(other: dict[str, object]) -> None:
    with pytest.raises(PlanError):
        Plan.from_document({**PLAN.head(), "regions": {}, "atoms": [], **other})


def test_what_is_listed_is_what_has_begun_and_what_subscribers_have() -> None:
    found = listed(RECORD, WANTED, frozenset("bc"))
    assert found.plan.paths == dict.fromkeys("abc", ("n1",))
    assert (found.plan.epoch, found.plan.version, found.plan.sole) == (7, 1, "")
    assert found.members == {"s": frozenset("ab"), "t": frozenset("b")}
    assert found.heard["s"] == Interest(3, 5, {"a": 4, "b": 5})
    assert listing(found.plan, "xyz") is found.plan


def test_the_first_plan_keeps_epochs_and_begins_one_for_other_regions() -> None:
    plan = first_listed(RECORD, WANTED, frozenset("bc")).plan
    assert (plan.epoch, plan.version) == (8, 1)
    assert {region: plan.epoch_of(region) for region in "abcd"} == {"a": 7, "b": 7, "c": 7, "d": 8}


def frame(region: str, epoch: int = 7) -> PublishedFrame:
    return PublishedFrame(region, epoch, "p", 1, 1, 1, b"[0,[0],[1]]")


def test_a_node_begins_what_is_joined_before_it_begins_no_more() -> None:
    node = Node("n1")
    assert BeginAny("n1", PLAN).perform(node)
    assert [answer.verdict for answer in node.publish([frame("c"), frame("c", 6)])] == [Verdict.OK, Verdict.STALE]
    assert begin_listed(RECORD, WANTED).perform(node)
    assert BeginNoMore("n1", 7).perform(node) == frozenset("abc")
    verdicts = [answer.verdict for answer in node.publish([frame("a"), frame("b"), frame("d")])]
    assert verdicts == [Verdict.OK, Verdict.OK, Verdict.STALE]
    assert not BeginAny("n1", PLAN).perform(node), "a plan that lists regions is there"


def test_what_was_refused_between_the_two_plans_is_published_once_it_has_a_place() -> None:
    publisher: Publisher[int] = Publisher("p", 1)
    publisher.assign(PLAN)
    assert publisher.add("d", b"1", False, 0, 1) == "n1"
    [sent] = publisher.take("n1")
    assert publisher.answered("n1", [Answer(Verdict.STALE, (7,))]) == []
    following = first_listed(RECORD, WANTED, frozenset()).plan
    publisher.assign(following)
    assert publisher.unassigned() == ["d"]
    publisher.assign(following.with_regions(["d"], {"n2": ""}))
    [again] = publisher.take("n2")
    assert (again.region, again.epoch, again.body) == ("d", 8, sent.body)
    [resolved] = publisher.answered("n2", [Answer(Verdict.OK, (8, 1))])
    assert (resolved.tokens, resolved.epoch) == ([1], 8)


def test_a_connection_asks_for_what_has_changed_and_has_joined_with_the_end_of_the_stream() -> None:
    session: Session[int] = Session("s", 3)
    session.changed(RECORD)
    session.subscribe(["a", "b"])
    request = session.request()
    assert request is not None
    assert (dict(request.changes), request.said, request.whole) == ({"a": 1, "b": 1}, 1, False)
    session.unsubscribe(["b"])
    session.granted(request)
    assert session.reads().keys() == {"a"}, "b was left while the request was under way"
    assert session.found_ends([("a", 7, None)]).joined == ["a"]
    left = session.request()
    assert left is not None
    assert dict(left.changes) == {"b": 0}
    session.granted(left)
    assert session.request() is None
    whole = session.request(whole=True)
    assert whole is not None
    assert (dict(whole.changes), whole.whole) == ({"a": 1}, True)


def test_who_asks_of_a_network_that_makes_plans_takes_its_grants_from_these() -> None:
    session: Session[int] = Session("s", 3)
    session.changed(RECORD)
    session.subscribe(["a"])
    request = session.request()
    assert request is not None
    session.changed(first_listed(RECORD, {"s": Interest(3, 1, {"a": 1})}, frozenset()))
    session.granted(request)  # its answer was late
    assert session.request() is None
    assert session.reads()["a"].epoch == 7
    session.subscribe(["b"])
    more = session.request()
    assert more is not None
    assert dict(more.changes) == {"b": 2}
    session.noted(more)
    assert session.request() is None
    assert session.reads().keys() == {"a"}, "no plan has granted it"


def test_the_plan_of_several_nodes_is_as_ever() -> None:
    assert first_plan("acyclic", {"n1": ""}, 7).sole == ""
