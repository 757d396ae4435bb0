"""What to merge, split and move, from figures that make it obvious."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from analytics.jobs.advice import advise
from analytics.jobs.moves import Move, Trip, moves

EVERYBODY = frozenset({"s1", "s2", "s3"})
PLAN = {"a": ["n1"], "b": ["n1"], "hot": ["n1", "n2"], "far": ["n2"]}


def kinds(**changed: Any) -> list[tuple[str, tuple[str, ...]]]:
    arguments: dict[str, Any] = {
        "subscribers_of": {
            "a": EVERYBODY,
            "b": EVERYBODY,
            "hot": frozenset({"s1", "s2"}),
            "far": frozenset({"s4", "s5"}),
        },
        "events_per_s": {"a": 1.0, "b": 2.0, "hot": 50.0, "far": 2.0},
        "worth_moving": [Move("far", "n2", "n1", 84.0, 31.0, (95.0, 40.0), 212)],
        "overloaded": {"n1": 2.0},
        "plan": PLAN,
    }
    return [(each.do, each.regions) for each in advise(**(arguments | changed))]


def test_each_kind_of_advice_names_the_regions_that_it_is_for() -> None:
    assert kinds() == [("merge", ("a", "b")), ("split", ("hot",)), ("move", ("far",))]


def test_a_hot_region_on_idle_nodes_may_stay_whole() -> None:
    assert ("split", ("hot",)) not in kinds(overloaded={})


# Hosts on a line, by their place in ms; the delay by way of a node is to there and back.
PLACES = {"s1": 0.0, "s2": 10.0, "s3": 60.0, "s4": 62.0, "n1": 5.0, "n2": 61.0}


def trips(region: str, node: str, names: Sequence[str], *, busy_ms: float = 1.0, scale: float = 1.0) -> list[Trip]:
    def way(one: str, other: str) -> float:
        return abs(PLACES[one] - PLACES[other]) * scale

    return [
        Trip(region, one, other, 100, way(one, node) + way(node, other) + busy_ms, way(one, other))
        for one in names
        for other in names
    ]


SEEN = (*trips("a", "n1", ("s1", "s2", "s3", "s4")), *trips("b", "n2", ("s1", "s2", "s3", "s4")))
AT = {"a": ["n1"], "b": ["n2"], "c": ["n1"], "d": ["n1", "n2"]}


def test_a_region_is_moved_to_where_its_servers_are_and_the_delay_there_is_told() -> None:
    found = moves([*SEEN, *trips("c", "n1", ("s3", "s4"))], AT)
    assert [(each.region, each.source, each.target, each.subscribers) for each in found] == [("c", "n1", "n2", 2)]
    [move] = found
    assert move.now_ms == pytest.approx(55 + 57 + 1)
    assert move.then_ms == pytest.approx(1 + 1 + 1)
    assert str(move) == (
        "from n1 to n2: its events would take 3 ms instead of 113 in the mean, and 3 instead of 113 to the farthest of "
        "2 subscribers"
    )


@pytest.mark.parametrize(
    "more",
    [
        trips("c", "n1", ("s1", "s2")),  # it is where its servers are
        [each._replace(subscriber="s9") for each in trips("c", "n1", ("s3", "s4"))],  # not seen at the other node
        trips("d", "n2", ("s3", "s4")),  # it ends there already
    ],
)
def test_nothing_else_is_moved(more: list[Trip]) -> None:
    assert moves([*SEEN, *more], AT) == []


def test_hosts_that_are_seen_apart_at_a_node_say_nothing_of_each_other() -> None:
    pairs = {"s3": "s1", "s2": "s4", "s4": "s2", "s1": "s3"}
    all_pairs = trips("b", "n2", ("s1", "s2", "s3", "s4"))
    apart = [each for each in all_pairs if pairs[each.publisher] == each.subscriber]
    ties = [each for each in all_pairs if {each.publisher, each.subscriber} == {"s3", "s4"}]
    far = trips("c", "n1", ("s3", "s4"))
    assert moves([*apart, *far], AT) == []
    assert [each.region for each in moves([*apart, *ties, *far], AT)] == ["c"]


def test_where_all_are_at_one_place_nothing_is_moved_however_slow_it_is() -> None:
    near = 0.001
    slow = trips("c", "n1", ("s3", "s4"), busy_ms=80.0, scale=near)
    seen = [*trips("a", "n1", ("s3", "s4"), scale=near), *trips("b", "n2", ("s3", "s4"), scale=near)]
    assert moves([*seen, *slow], AT) == []


def test_a_gain_of_few_milliseconds_is_no_reason() -> None:
    assert moves([*SEEN, *trips("c", "n1", ("s2", "s3"))], AT) == []


def test_regions_of_a_single_subscriber_need_no_merging() -> None:
    alone = dict.fromkeys(("a", "b", "hot", "far"), frozenset({"s1"}))
    assert "merge" not in [do for do, _ in kinds(subscribers_of=alone)]
