"""Logs of the size that matches have are judged in seconds, and one fault in a million deliveries is found."""

from __future__ import annotations

import random
import time

from sequencing.checkers import DeliverySequence, judge

EVENTS = 100_000
REGIONS = 300
SUBSCRIBERS = 8
SECONDS_MAX = 60.0
"""Ten times what two busy cores take; counting pairs one by one would take an hour."""


def world(seed: int) -> tuple[list[int], dict[str, list[int]]]:
    """Return the region of each event, and what each subscriber delivers in the agreed order."""
    chance = random.Random(seed)
    region_of = [chance.randrange(REGIONS) for _ in range(EVENTS)]
    delivered = {}
    for number in range(SUBSCRIBERS):
        mine = [chance.random() < 0.85 for _ in range(REGIONS)]
        delivered[f"s{number}"] = [event for event in range(EVENTS) if mine[region_of[event]]]
    return region_of, delivered


def sequences(region_of: list[int], delivered: dict[str, list[int]]) -> list[DeliverySequence]:
    regions = [f"cell:{region}" for region in range(REGIONS)]
    return [
        DeliverySequence(s, [f"e{e}" for e in events], [regions[region_of[e]] for e in events], ["x"] * len(events))
        for s, events in delivered.items()
    ]


def test_one_swap_among_hundreds_of_thousands_of_deliveries_is_named() -> None:
    region_of, delivered = world(1)
    events = delivered["s3"]
    # A pair that another subscriber delivered as well.
    shared = set(delivered["s4"])
    place = next(p for p in range(50_000, len(events)) if events[p] in shared and events[p + 1] in shared)
    events[place], events[place + 1] = events[place + 1], events[place]
    verdict = judge(sequences(region_of, delivered))
    assert (verdict.inversions, verdict.cycles) == (1, 1)
    assert verdict.first is not None
    assert set(verdict.first.events) == {f"e{events[place]}", f"e{events[place + 1]}"}
    assert "s3" in verdict.first.subscribers


def test_a_log_in_which_most_regions_disagree_is_counted_in_seconds() -> None:
    region_of, delivered = world(2)
    chance = random.Random(3)
    for subscriber, events in delivered.items():
        lag = [chance.uniform(0, 500) for _ in range(REGIONS)]
        late = {event: event + lag[region_of[event]] for event in events}
        delivered[subscriber] = sorted(events, key=late.__getitem__)
    judged = sequences(region_of, delivered)
    begun_s = time.process_time()
    verdict = judge(judged)
    assert verdict.inversions > 1_000_000
    assert time.process_time() - begun_s < SECONDS_MAX
