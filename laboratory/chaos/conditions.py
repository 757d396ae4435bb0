"""The histories of keys: what servers published on conditions, and whether that is linearizable key by key.

A key is a register. Its state is the position that set it last, and positions only grow. An accepted event reads the
state that it required, and writes its own position; a refused one reads the state that its error told.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from laboratory.chaos.notes import Notes
from sequencing.checkers.linear import Operation, first_stuck
from sequencing.keyed import Position

Head = Position | None


class Attempt(NamedTuple):
    """A publish that names a key. ``requires``: what its head was to be, nothing in an empty tuple; ``at``: the
    position that it got; ``found``: for one that was refused, the head."""

    event: str
    requires: tuple[Head, ...]
    at: Position | None = None
    found: Head = None


class Register(NamedTuple):
    """The state of a key."""

    head: Head = None


def step(state: Register, attempt: Attempt) -> Register | None:
    """Return the state after an attempt, None if it cannot have happened in this state."""
    if attempt.at is None:
        return state if state.head == attempt.found and state.head not in attempt.requires else None
    if attempt.requires and attempt.requires != (state.head,):
        return None
    return Register(attempt.at) if state.head is None or state.head < attempt.at else None


Histories = Mapping[tuple[str, str], Sequence[Operation[Attempt]]]


def histories(notes: Notes, positions: Mapping[tuple[str, str], Position]) -> Histories:
    """Return (region, key) → what was attempted. ``positions``: (region, event) → where it is, of all that were
    accepted.

    An attempt without an answer happened if it has a position, at any time since.
    """
    found: dict[tuple[str, str], list[Operation[Attempt]]] = {}
    for life in notes.lives:
        for (event, region), tried in life.attempts.items():
            at, ended = positions.get((region, event)), tried.ended_ns
            if at is None and not tried.is_refused:
                continue  # it has not happened
            what = Attempt(event, tried.requires, at, tried.found)
            found.setdefault((region, tried.key), []).append(Operation(tried.began_ns, ended or math.inf, what))
    return found


def conflicts_of(told: Histories) -> int:
    """Return how many attempts were refused."""
    return sum(each.what.at is None for operations in told.values() for each in operations)


def not_linearizable(told: Histories) -> Iterator[str]:
    """Yield what is to be said about each key whose history no order explains."""
    for (region, key), operations in sorted(told.items()):
        try:
            stuck = first_stuck(operations, Register(), step)
        except TimeoutError as error:
            yield f"conditions: key {key} of {region} could not be judged: {error}"
            continue
        if stuck is not None:
            yield f"conditions: the history of key {key} of {region} is not linearizable: {stuck.what}"
