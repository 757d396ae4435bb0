"""An event that nothing is in the way of is published by one call, and as it would be by two."""

from __future__ import annotations

from dataclasses import asdict
from random import Random
from typing import Any

import pytest

from sequencing.errors import PublishUncertain, Unreachable
from sequencing.frames import FrameKind, PublishedFrame
from sequencing.node import Answer, Verdict
from sequencing.plan import Plan
from sequencing.publisher import Publisher
from sequencing.resolved import Resolved

PLAN = Plan(1, 1, "acyclic", {"n1": "", "n2": ""}, {"a": ("n1",), "b": ("n1",), "c": ("n2",)}, ())


def anywhere(_: str) -> bool:
    return True


def publisher(*, plan: Plan | None = PLAN, causal: bool = False) -> Publisher[Any]:
    made: Publisher[Any] = Publisher("p", 7, causal=causal)
    if plan is not None:
        made.assign(plan)
    for region in "ab":
        made.can_be_together([region])  # so that it is known
    return made


def lone(made: Publisher[Any], region: str, event: str) -> tuple[str, PublishedFrame] | None:
    return made.take_lone(region, event.encode(), True, 5, event, anywhere)


def by_two_calls(made: Publisher[Any], region: str, event: str) -> tuple[str, PublishedFrame]:
    node = made.add(region, event.encode(), True, 5, event)
    assert node is not None
    [frame] = made.take(node)
    return node, frame


def state(made: Publisher[Any]) -> Any:
    regions = {region: asdict(outbox) for region, outbox in made._regions.items()}
    for each in regions.values():
        if each["taken"] is not None:
            each["taken"]["room"] = 0  # nothing is added to what is taken
    return regions, made._in_flight, asdict(made.buffered), made.stale, made._doubtful


def told(resolved: Resolved[Any] | None) -> Any:
    return asdict(resolved) if resolved is not None else None


def test_it_leaves_what_two_calls_leave() -> None:
    one, other = publisher(), publisher()
    for number in range(1, 4):
        assert lone(one, "a", f"e{number}") == by_two_calls(other, "a", f"e{number}")
        assert state(one) == state(other)
        answer = Answer(Verdict.OK, (1, 40 + number))
        assert [told(one.answered_lone("n1", answer))] == [*map(told, other.answered("n1", [answer]))]
        assert state(one) == state(other)
    assert one.accepted_up_to("a") == (1, 43)


@pytest.mark.parametrize("seed", range(40))
def test_whatever_comes_between_both_ways_leave_the_same(seed: int) -> None:
    """The one takes the short way where it can, the other never does."""
    random, one, other = Random(seed), publisher(), publisher()
    under_way: set[str] = set()
    numbers = dict.fromkeys("abc", 0)
    short = 0
    for step in range(120):
        region, event = random.choice("abc"), f"e{step}"
        node = PLAN.paths[region][0]
        what = random.random()
        if what < 0.35:
            if (sent := lone(one, region, event)) is not None:
                short += 1
                under_way.add(node)
                assert sent == by_two_calls(other, region, event)
            else:
                assert one.add(region, event.encode(), True, 5, event) == other.add(
                    region, event.encode(), True, 5, event
                )
        elif what < 0.38:
            one.add_joint(("a", "b"), event.encode(), True, 5, event)
            other.add_joint(("a", "b"), event.encode(), True, 5, event)
        elif what < 0.55 and node not in under_way:
            if frames := one.take(node):
                under_way.add(node)
            assert frames == other.take(node)
        elif what < 0.58 and node in under_way:
            one.unanswered(node)
            other.unanswered(node)
        elif node in under_way:
            answers = []
            for frame in one.under_way(node):
                lasts = []
                for name, _ in frame.parts:
                    numbers[name] += frame.count
                    lasts.append(numbers[name])
                verdict = random.choice([Verdict.OK, Verdict.OK, Verdict.SEEN])
                answers.append(Answer(verdict, (1, *lasts)))
            expected = [*map(told, other.answered(node, answers))]
            resolved = one.answered_lone(node, answers[0]) if len(answers) == 1 else None
            found = [told(resolved)] if resolved is not None else [*map(told, one.answered(node, answers))]
            assert found == expected
            under_way.discard(node)
        assert state(one) == state(other)
    assert short


@pytest.mark.parametrize(
    "hindrance",
    [
        lambda made: made.add("a", b"x", True, 1, "x"),
        lambda made: made.add("b", b"x", True, 1, "x"),
        lambda made: made.mark("a", b"marker", None),
        lambda made: made.add_joint(("b", "a"), b"x", True, 1, "x"),
        lambda made: (made.add("b", b"x", True, 1, "x"), made.take("n1")),
        lambda made: made.stale.update({"a": 1}),
        lambda made: made._doubtful.add("a"),
        lambda made: (
            made.add("a", b"x", True, 1, "x"),
            made.take("n1"),
            made.unanswered("n1"),
            made.give_up("n1", under_way=PublishUncertain("gone"), waiting=Unreachable("gone")),
        ),
        lambda made: (
            made.add("a", b"x", True, 1, "x"),
            made.take("n1"),
            made.answered("n1", [Answer(Verdict.STALE, (1,))]),
        ),
    ],
)
def test_where_something_is_in_the_way_it_leaves_all_as_it_is(hindrance: Any) -> None:
    made = publisher()
    hindrance(made)
    before = state(made)
    assert lone(made, "a", "e") is None
    assert state(made) == before


def test_who_has_no_place_waits_for_its_own_or_may_not_go_takes_the_other_way() -> None:
    assert lone(publisher(plan=None), "a", "e") is None
    assert lone(publisher(causal=True), "a", "e") is None
    assert lone(publisher(), "never seen", "e") is None
    made = publisher()
    assert made.take_lone("a", b"x", True, 1, "x", {"n2"}.__contains__) is None
    assert made.buffered.events == 0


@pytest.mark.parametrize("verdict", [verdict for verdict in Verdict if verdict is not Verdict.OK])
def test_any_other_answer_goes_the_other_way(verdict: Verdict) -> None:
    made = publisher()
    lone(made, "a", "e")
    before = state(made)
    assert made.answered_lone("n1", Answer(verdict, (1, 1))) is None
    assert state(made) == before


def test_what_has_come_meanwhile_is_offered_by_the_other_way() -> None:
    made = publisher()
    lone(made, "a", "e")
    made.add("a", b"next", True, 1, "next")
    assert made.answered_lone("n1", Answer(Verdict.OK, (1, 1))) is None
    [resolved] = made.answered("n1", [Answer(Verdict.OK, (1, 1))])
    assert resolved.tokens == ["e"]
    assert made.woken() == {"n1"}
    assert made.take("n1")[0].kind is FrameKind.EVENTS


def test_what_was_reset_meanwhile_is_not_taken_for_accepted() -> None:
    made = publisher()
    lone(made, "a", "e")
    again = Plan(2, 1, "acyclic", {"n1": "", "n2": ""}, PLAN.paths, (), runs={"n1": "again"})
    made.assign(again)
    assert made.answered_lone("n1", Answer(Verdict.OK, (1, 1))) is None
    [abandoned] = made.abandoned()
    assert isinstance(abandoned.error, PublishUncertain)
