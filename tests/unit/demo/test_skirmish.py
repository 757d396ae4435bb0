"""The made-up match has the shape of a recorded one, and is the same for the same seed."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import numpy as np
import pytest

from demo.match.hosting import build_workload
from demo.match.skirmish import generate_skirmish
from sequencing.errors import UsageError


def test_the_same_seed_makes_the_same_skirmish() -> None:
    one, other = generate_skirmish(7, duration_s=120), generate_skirmish(7, duration_s=120)
    assert one.events == other.events
    assert one.players == other.players
    assert list(one.positions.player) == list(other.positions.player)
    assert np.array_equal(one.positions.x_m, other.positions.x_m)
    assert generate_skirmish(8, duration_s=120).events != one.events


@pytest.mark.parametrize("seed", range(4))
def test_a_skirmish_is_several_thousand_events_of_tens_of_players(seed: int) -> None:
    match = generate_skirmish(seed)
    placed = [event for event in match.events if event.x_m is not None]
    assert 3_000 < len(placed) < 15_000
    assert 20 <= len(match.players) <= 100
    kinds = Counter(event.kind for event in match.events)
    assert {"spawn", "kit", "shot", "hurt", "kill", "down", "vehicle_enter", "vehicle_exit", "flag_owner"} <= set(kinds)
    assert len(match.events) > len(placed), "some events are nowhere, as in recordings"


def test_events_and_positions_are_by_time_and_on_the_map() -> None:
    match = generate_skirmish(1)
    times = [event.t_s for event in match.events]
    assert times == sorted(times)
    assert bool((np.diff(match.positions.t_s) >= 0).all())
    assert float(np.abs(match.positions.x_m).max()) < 2000
    assert float(np.abs(match.positions.z_m).max()) < 2000
    assert set(match.positions.player) == {player.name for player in match.players}


def test_health_is_never_lost_by_the_dead() -> None:
    health: dict[str, int] = {}
    for event in generate_skirmish(2).events:
        if event.kind == "spawn":
            assert health.get(event.actor, 0) == 0
            health[event.actor] = 100
        elif event.kind == "hurt":
            health[event.target] -= int(event.detail)
            assert health[event.target] >= 0
        elif event.kind == "down":
            assert health[event.actor] == 0


@pytest.mark.parametrize("seed", range(4))
def test_servers_of_a_skirmish_overlap(seed: int) -> None:
    workload = build_workload(generate_skirmish(seed))
    shared = [
        len(workload.membership[one] & workload.membership[other]) for one, other in combinations(workload.servers, 2)
    ]
    assert len(workload.servers) == 8
    assert min(len(regions) for regions in workload.membership.values()) >= 2
    assert sum(common >= 2 for common in shared) >= len(shared) / 2


def test_a_skirmish_without_a_second_is_refused() -> None:
    with pytest.raises(UsageError, match="at least 1 s"):
        generate_skirmish(0, duration_s=0)
