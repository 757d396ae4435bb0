"""Installed steps: what a node does with the frames of a region in an epoch, and the states that this goes through.

At most one node has a region's open ingress at a time. The next epoch's ingress waits until the one before is closed,
so the numbers of an epoch begin after the last number of the epoch before was drawn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from sequencing.plan import AtomId
from sequencing.states import after as state_after


class StepState(StrEnum):
    """What passes through a step. The values stand in Redis."""

    OPEN = "I"
    """An ingress that accepts published frames."""
    CLOSED = "C"
    """An ingress that has drawn its TICK: it accepts nothing more."""
    WAITING = "W"
    """An ingress that opens when the one of the epoch before is closed."""
    TRANSIT = "T"
    """No ingress: frames come over links."""
    SEALED = "S"
    """Nothing passes any more."""


class StepEvent(StrEnum):
    """What changes the state of a step."""

    CLOSE = "its TICK is drawn"
    OPEN = "the epoch before is closed"
    REPLACE = "a later epoch is installed"
    SEAL = "its stream is ended by the manager"


STEPS: Mapping[tuple[StepState, StepEvent], StepState] = MappingProxyType(
    {
        (StepState.WAITING, StepEvent.OPEN): StepState.OPEN,
        (StepState.WAITING, StepEvent.CLOSE): StepState.CLOSED,
        (StepState.OPEN, StepEvent.CLOSE): StepState.CLOSED,
        (StepState.OPEN, StepEvent.REPLACE): StepState.CLOSED,
        **{(state, StepEvent.SEAL): StepState.SEALED for state in StepState},
    }
)
"""The table of transitions. A step starts as `OPEN`, `WAITING` or `TRANSIT`."""


@dataclass(slots=True)
class InstalledStep:
    """What a node does with the frames of a region in an epoch."""

    state: StepState
    next: str | None
    """The next node of the region's path; None at its last."""
    atoms: tuple[AtomId, ...]
    after: int = 0
    """The epoch whose ingress here must close before this one opens; 0 if that ingress is at another node."""

    def move(self, event: StepEvent) -> None:
        """Go on to the state after an event. Raises `IllegalTransition`."""
        self.state = state_after(STEPS, self.state, event)
