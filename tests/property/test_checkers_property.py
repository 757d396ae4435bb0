"""The fast checkers hold to the definitions, spelled out here pair by pair."""

from __future__ import annotations

from itertools import combinations, pairwise

import networkx as nx
from hypothesis import given, settings
from hypothesis import strategies as st

from sequencing.checkers import DeliverySequence, Published, compare_pairs, judge

Log = dict[str, list[str]]
"""Subscriber → event ids in delivery order; an event is named by its region's letter and a number."""


def first_deliveries(events: list[str]) -> list[str]:
    return list(dict.fromkeys(events))


def inverted_pairs(log: Log) -> set[frozenset[str]]:
    ahead = {subscriber: set(combinations(first_deliveries(events), 2)) for subscriber, events in log.items()}
    return {
        frozenset((one, other))
        for first, second in combinations(log, 2)
        for one, other in ahead[first]
        if (other, one) in ahead[second]
    }


def cyclic_components(log: Log) -> list[set[str]]:
    graph: nx.DiGraph[str] = nx.DiGraph()
    for events in log.values():
        graph.add_edges_from(combinations(first_deliveries(events), 2))
    return [component for component in nx.strongly_connected_components(graph) if len(component) > 1]


def sequences(log: Log) -> list[DeliverySequence]:
    return [
        DeliverySequence(subscriber, events, [event[0] for event in events], ["someone"] * len(events))
        for subscriber, events in log.items()
    ]


@st.composite
def logs(draw: st.DrawFn) -> Log:
    """Subscribers of some regions; from perfect agreement to each its own shuffle; with losses and repetitions."""
    regions = "ABCDE"[: draw(st.integers(1, 5))]
    events = [f"{region}{number}" for region in regions for number in range(draw(st.integers(0, 5)))]
    agreed = draw(st.permutations(events))
    log: Log = {}
    for subscriber in range(draw(st.integers(1, 5))):
        mine = draw(st.sets(st.sampled_from(regions)))
        delivered = [event for event in agreed if event[0] in mine]
        disorder = draw(st.sampled_from(["none", "swap", "regions apart", "shuffle"]))
        if disorder == "shuffle":
            delivered = draw(st.permutations(delivered))
        elif disorder == "regions apart":
            # Each region keeps its order, as over one Pub/Sub server a region; the regions are merged anew.
            merged = draw(st.permutations([event[0] for event in delivered]))
            queues = {region: iter([event for event in delivered if event[0] == region]) for region in mine}
            delivered = [next(queues[region]) for region in merged]
        elif disorder == "swap" and len(delivered) > 1:
            place = draw(st.integers(0, len(delivered) - 2))
            delivered[place], delivered[place + 1] = delivered[place + 1], delivered[place]
        if draw(st.booleans()):
            lost = draw(st.sets(st.sampled_from(events))) if events else set()
            delivered = [event for event in delivered if event not in lost]
        for event in draw(st.lists(st.sampled_from(delivered), max_size=2)) if delivered else ():
            delivered.insert(draw(st.integers(0, len(delivered))), event)
        log[f"s{subscriber}"] = delivered
    return log


@given(logs())
@settings(max_examples=400, deadline=None)
def test_inversions_are_counted_exactly(log: Log) -> None:
    expected = inverted_pairs(log)
    verdict = judge(sequences(log))
    assert verdict.inversions == len(expected)
    if expected:
        assert verdict.first is not None
        assert verdict.first.kind == "inversion"
        assert frozenset(verdict.first.events) in expected
        one, other = verdict.first.events
        first, second = (first_deliveries(log[subscriber]) for subscriber in verdict.first.subscribers)
        assert first.index(one) < first.index(other)
        assert second.index(other) < second.index(one)


@given(logs())
@settings(max_examples=400, deadline=None)
def test_cycles_are_the_components_of_the_union_of_all_orders(log: Log) -> None:
    components = cyclic_components(log)
    verdict = judge(sequences(log))
    assert verdict.cycles == len(components)
    if components and not verdict.inversions:
        assert verdict.first is not None
        assert verdict.first.kind == "cycle"
        events, subscribers = verdict.first.events, verdict.first.subscribers
        assert len(set(events)) == len(events) == len(subscribers) >= 3
        for subscriber, one, other in zip(subscribers, events, [*events[1:], events[0]], strict=True):
            delivered = first_deliveries(log[subscriber])
            assert delivered.index(one) < delivered.index(other)


@given(logs())
@settings(max_examples=200, deadline=None)
def test_each_pair_of_subscribers_is_compared_exactly(log: Log) -> None:
    for pair in compare_pairs(sequences(log)):
        both = {subscriber: log[subscriber] for subscriber in pair.subscribers}
        assert pair.inversions == len(inverted_pairs(both))
        assert pair.common == len(set.intersection(*map(set, both.values())))


@given(logs(), st.data())
@settings(max_examples=200, deadline=None)
def test_losses_and_repetitions_are_what_is_missing_and_what_is_too_much(log: Log, data: st.DataObject) -> None:
    delivered = {event for events in log.values() for event in events}
    never_delivered = {f"{region}{number}" for region in "ABC" for number in (8, 9)}
    published = sorted(delivered | data.draw(st.sets(st.sampled_from(sorted(never_delivered)))))
    membership = {s: {event[0] for event in events} for s, events in log.items()}
    expected = sum(
        event[0] in membership[s] and event not in events for event in published for s, events in log.items()
    )
    given_membership = data.draw(st.sampled_from([None, membership]))
    verdict = judge(
        sequences(log), published=[Published(event, event[0]) for event in published], membership=given_membership
    )
    assert verdict.lost == expected
    assert verdict.unexpected == 0
    assert verdict.duplicated == sum(len(events) - len(set(events)) for events in log.values())


@given(logs(), st.permutations([f"{region}{number}" for region in "ABCDE" for number in range(5)]))
@settings(max_examples=200, deadline=None)
def test_publisher_order_is_violated_at_each_adjacent_descent_within_a_region(log: Log, order: list[str]) -> None:
    expected = 0
    for events in log.values():
        for region in "ABCDE":
            places = [order.index(event) for event in first_deliveries(events) if event[0] == region]
            expected += sum(later < earlier for earlier, later in pairwise(places))
    verdict = judge(sequences(log), publication_order={"someone": order})
    assert verdict.publisher_order_violations == expected
    assert verdict.publishers_unchecked == ()
