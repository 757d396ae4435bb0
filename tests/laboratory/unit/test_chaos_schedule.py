"""The schedule of faults is drawn from its seed and nothing else, is dense, and leaves quiet times."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from laboratory.chaos.schedule import (
    BACK_S,
    DEALT,
    DEALT_WITH_REPLICAS,
    FIRST_S,
    JUMPS_S,
    LEADER,
    OF_GROUPS,
    QUIET_S,
    WHOLE_S,
    Fault,
    Kind,
    make_schedule,
)

NODES = ("n1", "n2", "n3")
RELAYS = ("relay-n1", "relay-n2", "relay-n3")
MANAGERS = ("manager-1", "manager-2")
SERVERS = tuple(f"server-{number}" for number in range(1, 9))
SEEDS = range(30)
CARDS = sum(dealt.cards for dealt in DEALT.values())


def schedule(seed: int, seconds: float, without: tuple[Kind, ...] = ()) -> list[Fault]:
    return make_schedule(seed, seconds, nodes=NODES, relays=RELAYS, managers=MANAGERS, servers=SERVERS, without=without)


def test_a_seed_gives_one_schedule_and_another_seed_another() -> None:
    assert schedule(7, 60) == schedule(7, 60)
    assert schedule(7, 60) != schedule(8, 60)


@pytest.mark.parametrize("seed", SEEDS)
def test_there_are_twenty_faults_a_minute_or_more_and_each_kind_comes_up(seed: int) -> None:
    ten_minutes = schedule(seed, 600)
    assert len(ten_minutes) >= 200
    counts = Counter(fault.kind for fault in ten_minutes)
    assert counts.keys() == DEALT.keys()
    for kind, dealt in DEALT.items():
        assert counts[kind] / dealt.cards == pytest.approx(len(ten_minutes) / CARDS, rel=0.3), kind


@pytest.mark.parametrize("seed", SEEDS)
def test_a_minute_has_almost_every_kind(seed: int) -> None:
    assert len(schedule(seed, 60)) >= 20
    assert len({fault.kind for fault in schedule(seed, 60)}) >= len(DEALT) - 3


@pytest.mark.parametrize("seed", SEEDS)
def test_faults_befall_whom_they_can_lie_within_the_run_and_leave_their_targets_alone_for_a_while(seed: int) -> None:
    faults = schedule(seed, 120)
    whom = {"node": NODES, "relay": RELAYS, "manager": MANAGERS, "server": SERVERS, LEADER: (LEADER,)}
    assert faults == sorted(faults, key=lambda fault: fault.at_s)
    for fault in faults:
        dealt = DEALT[fault.kind]
        assert fault.target in whom[dealt.befalls]
        assert dealt.shortest_s <= fault.duration_s <= dealt.longest_s
        assert fault.at_s >= FIRST_S
        assert fault.end_s <= 120
    for target in {fault.target for fault in faults}:
        for one, next_one in pairwise(fault for fault in faults if fault.target == target):
            assert next_one.at_s >= one.end_s + BACK_S


@pytest.mark.parametrize("seed", SEEDS)
def test_there_are_quiet_times_between_rounds(seed: int) -> None:
    faults = [fault for fault in schedule(seed, 120) if fault.kind is not Kind.SERVER_AWAY]
    over, quiet = 0.0, 0
    for fault in faults:
        quiet += fault.at_s - over >= QUIET_S[0]
        over = max(over, fault.end_s)
    assert quiet >= 20


def test_a_kind_that_cannot_be_done_is_left_out() -> None:
    assert {fault.kind for fault in schedule(1, 300, without=(Kind.DISK_FULL,))} == DEALT.keys() - {Kind.DISK_FULL}


@pytest.mark.parametrize("seed", SEEDS)
def test_clocks_and_nothing_else_jump_ahead_and_back(seed: int) -> None:
    faults = schedule(seed, 600)
    jumps = [fault.jump_s for fault in faults if fault.kind is Kind.CLOCK_JUMPED]
    assert all(JUMPS_S[0] <= abs(jump) <= JUMPS_S[1] for jump in jumps)
    assert min(jumps) < 0 < max(jumps)
    assert not any(fault.jump_s for fault in faults if fault.kind is not Kind.CLOCK_JUMPED)


@pytest.mark.parametrize("seed", SEEDS)
def test_with_replicas_masters_are_struck_and_a_group_is_left_alone_until_it_is_whole(seed: int) -> None:
    faults = make_schedule(
        seed, 1200, nodes=NODES, relays=RELAYS, managers=MANAGERS, servers=SERVERS, deal=DEALT_WITH_REPLICAS
    )
    assert {fault.kind for fault in faults} == DEALT_WITH_REPLICAS.keys()
    assert not OF_GROUPS & DEALT.keys()
    masters = [
        fault for fault in faults if fault.kind in OF_GROUPS and DEALT_WITH_REPLICAS[fault.kind].back_s == WHOLE_S
    ]
    assert len(masters) >= 1200 / 20
    for node in NODES:
        for one, next_one in pairwise(fault for fault in faults if fault.target == node):
            assert next_one.at_s >= one.end_s + DEALT_WITH_REPLICAS[one.kind].back_s


def test_a_run_that_is_too_short_has_no_faults() -> None:
    assert schedule(1, FIRST_S) == []
