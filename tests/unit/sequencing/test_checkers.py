"""Planted faults, one of each kind: found, counted and named."""

from __future__ import annotations

import pytest

from sequencing.checkers import DeliverySequence, Offence, Published, compare_pairs, judge
from sequencing.errors import InvalidInput, UsageError

REGION_OF = {"a": "forest", "b": "river", "c": "castle"}


def sequence(subscriber: str, delivered: str, *, sent_at_ns: list[int | None] | None = None) -> DeliverySequence:
    """Make a sequence of events like ``a1``: the letter stands for the region, and ``ann`` sends to all."""
    events = delivered.split()
    regions = [REGION_OF[event[0]] for event in events]
    return DeliverySequence(subscriber, events, regions, ["ann"] * len(events), sent_at_ns or ())


def published(events: str) -> list[Published]:
    return [Published(event, REGION_OF[event[0]]) for event in events.split()]


def test_agreement_is_fine() -> None:
    verdict = judge([sequence("s1", "a1 b1 a2 b2"), sequence("s2", "a1 b1 a2 b2"), sequence("s3", "b1 b2")])
    assert verdict.fine
    assert verdict.first is None
    assert (verdict.subscribers, verdict.deliveries, verdict.regions) == (3, 10, 2)
    assert (verdict.inversions, verdict.cycles, verdict.duplicated) == (0, 0, 0)


def test_no_deliveries_at_all_are_fine() -> None:
    assert judge([]).fine
    assert judge([sequence("s1", "")]).subscribers == 1


def test_one_swapped_pair_across_regions_is_found_and_named() -> None:
    verdict = judge([sequence("s1", "a1 b1 a2 b2"), sequence("s2", "a1 b1 b2 a2"), sequence("s3", "a1 a2")])
    assert (verdict.inversions, verdict.cycles) == (1, 1)
    assert verdict.first == Offence("inversion", ("a2", "b2"), ("forest", "river"), ("s1", "s2"))
    assert (
        verdict.first.describe()
        == "s1 delivered a2 (forest) before b2 (river), s2 delivered b2 (river) before a2 (forest)"
    )


def test_one_swapped_pair_inside_a_region_is_found_and_named() -> None:
    verdict = judge([sequence("s1", "a1 a2 a3 b1"), sequence("s2", "a1 a3 a2 b1")])
    assert (verdict.inversions, verdict.cycles) == (1, 1)
    assert verdict.first == Offence("inversion", ("a2", "a3"), ("forest", "forest"), ("s1", "s2"))


def test_a_pair_that_several_subscribers_invert_counts_once() -> None:
    reverse = [sequence(f"s{number}", "b1 a1") for number in range(2, 6)]
    assert judge([sequence("s1", "a1 b1"), *reverse]).inversions == 1


def test_inversions_across_a_loss_are_still_found() -> None:
    # s2 missed b1 and b3, so only b2 can be compared with a1.
    verdict = judge([sequence("s1", "a1 b1 b2 b3"), sequence("s2", "b2 a1")])
    assert verdict.inversions == 1
    assert verdict.first is not None
    assert verdict.first.events == ("a1", "b2")


def test_a_three_way_cycle_over_single_overlaps_is_found_without_an_inversion() -> None:
    # No two of the subscribers share two regions, so no two of them can contradict each other.
    verdict = judge([sequence("s1", "a0 a1 b1 b2"), sequence("s2", "b0 b1 b2 c1"), sequence("s3", "c1 a1 a2")])
    assert (verdict.inversions, verdict.cycles) == (0, 1)
    assert verdict.first is not None
    assert verdict.first.kind == "cycle"
    assert len(verdict.first.events) == 3
    steps = set(zip(verdict.first.subscribers, verdict.first.events, strict=True))
    assert steps in ({("s1", "a1"), ("s2", "b1"), ("s3", "c1")}, {("s1", "a1"), ("s2", "b2"), ("s3", "c1")})


def test_separate_cycles_are_counted_separately() -> None:
    assert judge([sequence("s1", "a1 b1 c1 a2 b2"), sequence("s2", "b1 a1 c1 b2 a2")]).cycles == 2


def test_a_repeated_delivery_is_a_duplicate_and_its_first_place_counts() -> None:
    verdict = judge([sequence("s1", "a1 b1 a1"), sequence("s2", "a1 b1")])
    assert (verdict.duplicated, verdict.inversions) == (1, 0)
    assert verdict.deliveries == 5
    assert verdict.first == Offence("duplicate", ("a1",), ("forest",), ("s1",))


def test_a_lost_event_is_found_and_named_when_it_is_known_what_was_published() -> None:
    sequences = [sequence("s1", "a1 b1 a2"), sequence("s2", "a1 a2")]
    assert judge(sequences).lost is None
    verdict = judge(sequences, published=published("a1 b1 a2 a3"))
    assert verdict.lost == 2
    assert verdict.first == Offence("lost", ("a3",), ("forest",), ("s1",))


def test_a_whole_region_is_missed_only_if_the_membership_is_given() -> None:
    sequences = [sequence("s1", "a1"), sequence("s2", "a1 b1")]
    membership = {"s1": {"forest", "river"}, "s2": {"forest", "river"}, "s3": {"river"}}
    assert judge(sequences, published=published("a1 b1")).lost == 0
    verdict = judge(sequences, published=published("a1 b1"), membership=membership)
    assert verdict.lost == 2
    assert verdict.first == Offence("lost", ("b1",), ("river",), ("s1",))


def test_deliveries_of_what_was_never_published_or_not_to_the_subscriber_are_unexpected() -> None:
    sequences = [sequence("s1", "a1 a9"), sequence("s2", "a1 b1")]
    verdict = judge(sequences, published=published("a1 b1"), membership={"s1": {"forest"}, "s2": {"forest"}})
    assert (verdict.lost, verdict.unexpected) == (0, 2)
    assert verdict.first == Offence("unexpected", ("a9",), ("forest",), ("s1",))


def test_publisher_order_is_checked_against_the_order_that_is_given() -> None:
    sequences = [sequence("s1", "a1 a2 a3"), sequence("s2", "a1 a3 a2 b1")]
    verdict = judge(sequences, publication_order={"ann": ["b1", "a1", "a2", "a3"]})
    assert verdict.publisher_order_violations == 1
    assert verdict.publishers_unchecked == ()
    assert verdict.examples[1] == Offence("publisher_order", ("a2", "a3"), ("forest", "forest"), ("s2",), "ann")


def test_publisher_order_is_checked_by_times_of_sending_and_only_inside_a_region() -> None:
    verdict = judge([sequence("s1", "b1 a1 a2 b2", sent_at_ns=[20, 10, 5, 21])])
    assert verdict.publisher_order_violations == 1
    assert verdict.first == Offence("publisher_order", ("a2", "a1"), ("forest", "forest"), ("s1",), "ann")


def test_a_publisher_without_all_times_of_sending_is_reported_as_unchecked() -> None:
    verdict = judge([sequence("s1", "a2 a1", sent_at_ns=[2, None])])
    assert verdict.publisher_order_violations == 0
    assert verdict.publishers_unchecked == ("ann",)
    assert verdict.fine


def test_equal_times_of_sending_are_in_no_order() -> None:
    assert judge([sequence("s1", "a2 a1", sent_at_ns=[7, 7])]).publisher_order_violations == 0


def test_the_gravest_violation_comes_first_and_each_kind_has_an_example() -> None:
    verdict = judge(
        [sequence("s1", "a1 a2 b1 b1"), sequence("s2", "a2 a1 b9")],
        published=published("a1 a2 b1"),
        publication_order={"ann": ["a1", "a2", "b1"]},
    )
    kinds = [example.kind for example in verdict.examples]
    assert kinds == ["inversion", "publisher_order", "duplicate", "lost", "unexpected"]
    assert verdict.as_dict()["first"] == {
        "kind": "inversion",
        "events": ["a1", "a2"],
        "regions": ["forest", "forest"],
        "subscribers": ["s1", "s2"],
        "says": "s1 delivered a1 (forest) before a2 (forest), s2 delivered a2 (forest) before a1 (forest)",
    }


def test_what_is_not_known_is_left_out_of_the_dictionary() -> None:
    known = judge([sequence("s1", "a1")]).as_dict()
    assert "lost" not in known
    assert known["first"] is None
    assert judge([sequence("s1", "a1")], published=published("a1")).as_dict()["lost"] == 0


def test_each_pair_of_subscribers_can_be_compared() -> None:
    pairs = compare_pairs([sequence("s1", "a1 b1 a2"), sequence("s2", "a2 b1 a1"), sequence("s3", "b1 a2")])
    found = {pair.subscribers: (pair.common, pair.inversions) for pair in pairs}
    assert found == {("s1", "s2"): (3, 3), ("s1", "s3"): (2, 0), ("s2", "s3"): (2, 1)}


def test_an_event_in_two_regions_cannot_be_judged() -> None:
    with pytest.raises(InvalidInput, match=r"event x has the region river in a delivery of s2 and forest in another"):
        judge([DeliverySequence("s1", ["x"], ["forest"], ["ann"]), DeliverySequence("s2", ["x"], ["river"], ["ann"])])


def test_an_event_from_two_senders_cannot_be_judged() -> None:
    with pytest.raises(InvalidInput, match="event x has the sender ann in a delivery of s1 and bob in another"):
        judge([DeliverySequence("s1", ["x", "x"], ["forest"] * 2, ["ann", "bob"])])


def test_an_event_that_was_published_to_two_regions_cannot_be_judged() -> None:
    with pytest.raises(InvalidInput, match="event a1 was published to forest and river"):
        judge([sequence("s1", "a1")], published=[Published("a1", "forest"), Published("a1", "river")])


def test_two_sequences_of_one_subscriber_are_refused() -> None:
    with pytest.raises(UsageError, match="two delivery sequences of s1"):
        judge([sequence("s1", "a1"), sequence("s1", "a2")])


def test_columns_of_different_lengths_are_refused() -> None:
    with pytest.raises(UsageError, match="differ in length"):
        DeliverySequence("s1", ["x", "y"], ["forest"], ["ann"])
