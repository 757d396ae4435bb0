"""Whether a history of operations is linearizable: there is one order of all of them that agrees with time and model.

Wing and Gong's search with Lowe's memory of what was tried (Lowe, *Testing for linearizability*, 2017, section 3).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

State = TypeVar("State", bound=Hashable)
Op = TypeVar("Op")

STEPS_MAX = 1_000_000


@dataclass(frozen=True, slots=True)
class Operation(Generic[Op]):
    """What somebody did, and when, by one clock: it took effect after ``began`` and before ``ended``, which may be
    infinite."""

    began: float
    ended: float
    what: Op


def first_stuck(
    operations: Sequence[Operation[Op]], initial: State, step: Callable[[State, Op], State | None]
) -> Operation[Op] | None:
    """Return None if a history is linearizable, else an operation that no order gets past.

    ``step``: the state after an operation, None where that is impossible. Raises `TimeoutError` after many steps.
    """
    ordered = sorted(operations, key=lambda each: each.began)
    everything, taken, state = (1 << len(ordered)) - 1, 0, initial
    tried: set[tuple[int, State]] = set()
    path: list[tuple[int, State, list[int]]] = []
    deepest, stuck = -1, None
    candidates = _candidates(ordered, taken)
    for _ in range(STEPS_MAX):
        if taken == everything:
            return None
        if candidates:
            place = candidates.pop()
            after = step(state, ordered[place].what)
            if after is not None and (key := (taken | 1 << place, after)) not in tried:
                tried.add(key)
                path.append((taken, state, candidates))
                taken, state = key
                candidates = _candidates(ordered, taken)
            continue
        if len(path) > deepest:
            deepest, stuck = len(path), ordered[_first_open(taken)]
        if not path:
            return stuck
        taken, state, candidates = path.pop()
    raise TimeoutError(f"{len(operations)} operations: given up after {STEPS_MAX:,} steps")


def _first_open(taken: int) -> int:
    return (~taken & (taken + 1)).bit_length() - 1


def _candidates(ordered: Sequence[Operation[Op]], taken: int) -> list[int]:
    """Return the operations that may be next: they began before any that is not taken ended. The first is the last."""
    places: list[int] = []
    soonest = math.inf
    for place in range(_first_open(taken), len(ordered)):
        if ordered[place].began > soonest:
            break
        if not taken >> place & 1:
            places.append(place)
            soonest = min(soonest, ordered[place].ended)
    return places[::-1]
