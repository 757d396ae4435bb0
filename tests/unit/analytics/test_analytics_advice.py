"""What to merge, split and place anew, from figures that make it obvious."""

from __future__ import annotations

from typing import Any

from analytics.jobs.advice import advise

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
        "stretch_of": {"a": 1.0, "b": 1.1, "hot": 1.2, "far": 4.0},
        "overloaded": {"n1": 2.0},
        "plan": PLAN,
    }
    return [(each.do, each.regions) for each in advise(**(arguments | changed))]


def test_each_kind_of_advice_names_the_regions_that_it_is_for() -> None:
    assert kinds() == [("merge", ("a", "b")), ("split", ("hot",)), ("re-place", ("far",))]


def test_a_region_that_is_far_from_all_is_placed_anew_even_if_all_are() -> None:
    far = dict.fromkeys(("a", "b", "hot", "far"), 3.5)
    assert next(regions for do, regions in kinds(stretch_of=far) if do == "re-place") == ("hot",)


def test_a_hot_region_on_idle_nodes_may_stay_whole() -> None:
    assert ("split", ("hot",)) not in kinds(overloaded={})


def test_without_stretch_nothing_is_placed_anew() -> None:
    assert [do for do, _ in kinds(stretch_of={})] == ["merge", "split"]


def test_regions_of_a_single_subscriber_need_no_merging() -> None:
    alone = dict.fromkeys(("a", "b", "hot", "far"), frozenset({"s1"}))
    assert "merge" not in [do for do, _ in kinds(subscribers_of=alone)]
