"""State tables: which event takes what from which state to which. Diagrams in docs/states.md are drawn from them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

State = TypeVar("State", bound=StrEnum)
Event = TypeVar("Event", bound=StrEnum)


class IllegalTransition(RuntimeError):
    """An event came in a state that does not allow it: a defect of the caller, and never bad input."""


def after(table: Mapping[tuple[State, Event], State], state: State, event: Event) -> State:
    """Return the state after an event. Raises `IllegalTransition` if the table does not have it."""
    try:
        return table[state, event]
    except KeyError:
        raise IllegalTransition(f"{type(state).__name__}: {state.name} does not allow {event.name}") from None
