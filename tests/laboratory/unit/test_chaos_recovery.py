"""Recovery times and stalls, from notes of servers that are made up."""

from __future__ import annotations

import pytest

from laboratory.chaos.faults import Struck
from laboratory.chaos.notes import Life, Notes
from laboratory.chaos.recovery import Recovery, measure
from laboratory.chaos.schedule import Kind
from laboratory.simulation.server import Delivered, Diary

S = 1_000_000_000
END = 100 * S


def notes(*deliveries: list[int], opened: int = 0, closed: int | None = None) -> Notes:
    """Servers that are handed an event at each of some seconds, which was published just then."""
    found = Notes()
    for number, seconds in enumerate(deliveries, start=1):
        life = Life(
            f"server-{number}", Diary(f"server-{number}#1"), opened, closed or seconds[-1] * S, closed is not None
        )
        life.stays.append(("a", opened, float("inf")))
        for at in seconds:
            event = f"{number}/{at}"
            life.session.deliveries.append(Delivered(event, "a", "x", at * 1000.0))
            life.delivered_ns.append(at * S)
            found.published_ns[event] = at * S
        found.lives.append(life)
    return found


def fault(kind: Kind, begin: int, end: int, whom: str = "n1") -> Struck:
    return Struck(kind, whom, begin * S, end * S)


def measured(found: Notes, *struck: Struck) -> Recovery:
    return measure(found, struck, begin_ns=0, end_ns=END)


def test_a_network_has_recovered_when_the_last_server_is_served_again() -> None:
    recovery = measured(notes([1, 9, 13, 100], [1, 9, 17, 100]), fault(Kind.REDIS_KILLED, 10, 12))
    assert recovery.by_kind() == {"redis_killed": {"median": 5.0, "max": 5.0}}
    assert recovery.unrecovered == 0


def test_a_fault_that_comes_before_all_have_recovered_begins_the_count_anew() -> None:
    found = notes([1, 9, 13, 30, 100], [1, 9, 27, 100])
    recovery = measured(found, fault(Kind.REDIS_KILLED, 10, 12), fault(Kind.MEMORY_FULL, 15, 20))
    assert recovery.by_kind() == {
        "memory_full": {"median": 10.0, "max": 10.0},
        "redis_killed": {"median": 10.0, "max": 10.0},
    }


def test_a_clock_that_jumps_is_no_excuse_for_a_recovery_that_takes_long() -> None:
    found = notes([1, 9, 13, 30, 100], [1, 9, 27, 100])
    recovery = measured(found, fault(Kind.REDIS_KILLED, 10, 12), fault(Kind.CLOCK_JUMPED, 15, 20))
    assert recovery.by_kind() == {
        "clock_jumped": {"median": 10.0, "max": 10.0},
        "redis_killed": {"median": 15.0, "max": 15.0},
    }


def test_who_stays_away_is_not_waited_for() -> None:
    found = notes([1, 9, 13, 30, 100], [1, 50, 100])
    recovery = measured(found, fault(Kind.SERVER_AWAY, 2, 40, "server-2"), fault(Kind.MEMORY_FULL, 10, 12))
    assert recovery.seconds[Kind.MEMORY_FULL] == [1.0]
    assert recovery.seconds[Kind.SERVER_AWAY] == [60.0]


def test_a_server_that_is_never_served_again_is_told() -> None:
    recovery = measured(notes([1, 9, 100], [1, 9]), fault(Kind.RELAY_KILLED, 10, 12))
    assert recovery.unrecovered == 1
    assert recovery.longest_stall.seconds == 88.0
    assert recovery.longest_stall.session == "server-1#1" or recovery.longest_stall.session == "server-2#1"


def test_the_slowest_delivery_of_what_was_published_during_a_fault_is_told() -> None:
    found = notes([1, 11, 20], [1, 12, 30])
    slow = found.lives[1].session.deliveries[1]
    found.published_ns[slow.event] = 10 * S
    found.published_ns[found.lives[1].session.deliveries[2].event] = 14 * S  # at a server that is struck itself
    struck = fault(Kind.REDIS_KILLED, 10, 15), fault(Kind.SERVER_STOPPED, 16, 17, "server-2")
    assert measured(found, *struck).waits_by_kind() == {"redis_killed": {"median": 2.0, "max": 2.0}}


@pytest.mark.parametrize(
    ("struck", "stall", "silence"),
    [
        ((), 50, 50),
        ((fault(Kind.REDIS_STOPPED, 20, 30),), 30, 50),
        ((fault(Kind.SERVER_STOPPED, 20, 50, "server-1"),), 10, 10),
        ((fault(Kind.SERVER_STOPPED, 20, 50, "server-2"),), 10, 50),
        ((fault(Kind.SERVER_AWAY, 20, 50, "server-2"),), 37, 50),
        ((fault(Kind.CLOCK_JUMPED, 20, 50),), 50, 50),
        ((fault(Kind.CLOCK_JUMPED, 15, 50), fault(Kind.REDIS_STOPPED, 20, 30)), 30, 50),
    ],
)
def test_a_stall_is_counted_without_the_time_of_faults(struck: tuple[Struck, ...], stall: int, silence: int) -> None:
    seconds = [*range(1, 11), *range(60, 101)]
    recovery = measured(notes(seconds), *struck)
    assert recovery.longest_stall.seconds == stall
    assert recovery.longest_silence.seconds == silence


def test_a_server_without_regions_does_not_wait() -> None:
    found = notes([*range(1, 11), *range(60, 101)])
    found.lives[0].stays[:] = [("a", 0, 12 * S), ("b", 8 * S, 15 * S), ("b", 58 * S, float("inf"))]
    assert measured(found).longest_stall.seconds == 5.0


def test_a_session_ends_when_its_server_is_killed() -> None:
    seconds = list(range(1, 11))
    assert measured(notes(seconds)).longest_stall.seconds == 90.0
    assert measured(notes(seconds), fault(Kind.SERVER_KILLED, 12, 99, "server-1")).longest_stall.seconds == 2.0
    assert measured(notes(seconds, closed=11 * S)).longest_stall.seconds == 1.0
