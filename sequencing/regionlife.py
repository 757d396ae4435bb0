"""The life of a region at a subscriber: its states, what moves it between them, and what is to be checked next.

Whether a region is wanted, and from which epoch on it is granted, is for `sequencing.grants`; where it is read, and the
later epochs that it goes on to, for `sequencing.followed`. Here is what follows from both: what the subscriber still
has to do for a region, and whether it delivers it. Each change goes through `Lives.move`, which refuses what the table
does not have, and keeps the regions of each state together. So nothing has to look at all regions to find a few.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from sequencing.frames import UNKNOWN_END
from sequencing.states import after


class RegionState(StrEnum):
    """What a region is to a subscriber."""

    NONE = "neither granted nor followed"
    LACKING = "granted, and not followed"
    SURPLUS = "followed, and not granted or no longer wanted: it is left, unless an atom needs it"
    SILENT = "granted when it was followed already, and not delivered yet"
    JOINING = "granted and followed, and not joined yet"
    JOINED = "its events are delivered"


class RegionEvent(StrEnum):
    """What changes the state of a region."""

    GRANT = "a plan grants it"
    RELEASE = "it is not wanted any more"
    FOLLOW = "the subscriber begins to read it"
    MOVE_ON = "its epoch has ended, and it is read in a later one"
    STOP = "the subscriber stops reading it"
    ORDER = "atoms that bind order it with all that is delivered"
    JOIN = "its marker has come, or it needs none"


_FOLLOWED = (RegionState.SURPLUS, RegionState.SILENT, RegionState.JOINING, RegionState.JOINED)

REGION_LIFE: Mapping[tuple[RegionState, RegionEvent], RegionState] = MappingProxyType(
    {
        (RegionState.NONE, RegionEvent.GRANT): RegionState.LACKING,
        (RegionState.SURPLUS, RegionEvent.GRANT): RegionState.SILENT,
        (RegionState.NONE, RegionEvent.FOLLOW): RegionState.SURPLUS,
        (RegionState.LACKING, RegionEvent.FOLLOW): RegionState.JOINING,
        (RegionState.SILENT, RegionEvent.ORDER): RegionState.JOINING,
        (RegionState.JOINING, RegionEvent.JOIN): RegionState.JOINED,
        **{(state, RegionEvent.MOVE_ON): state for state in _FOLLOWED},
        (RegionState.NONE, RegionEvent.RELEASE): RegionState.NONE,
        (RegionState.LACKING, RegionEvent.RELEASE): RegionState.NONE,
        **{(state, RegionEvent.RELEASE): RegionState.SURPLUS for state in _FOLLOWED},
        (RegionState.SURPLUS, RegionEvent.STOP): RegionState.NONE,
        (RegionState.SILENT, RegionEvent.STOP): RegionState.LACKING,
    }
)
"""The table of transitions. A region starts as `NONE`. What is released as `NONE` or `SURPLUS` was not granted yet.

What is `JOINING` or `JOINED` is not stopped before it is released: it was granted before the plans came with which it
goes on to later epochs, so each of these has it. A `SILENT` region may have been granted after such a plan. If no epoch
that it goes on to has it, it is stopped, and joined again in its newest epoch.
"""


@dataclass(slots=True)
class Life:
    """A region that is granted or followed."""

    state: RegionState
    """Only `Lives.move` changes it."""
    is_unborn: bool = False
    """Whether it had no place before it was granted, and has not moved since: nothing was ever published there."""
    silent_to: tuple[int, int] | None = None
    """The (epoch, region sequence) up to which it was `SILENT`; None if it was not."""
    begun: tuple[int, int] | None = None
    """After what it was delivered in an epoch before its own marker came there."""

    def is_silent_at(self, epoch: int, last: int) -> bool:
        """Return whether an item must not be delivered; ``last`` is 0 if the end is unknown."""
        if self.state is RegionState.SILENT:
            return True
        return self.silent_to is not None and (epoch, last or UNKNOWN_END) <= self.silent_to


class Lives:
    """The lives of all regions that a subscriber is granted or follows."""

    def __init__(self) -> None:
        self.all: dict[str, Life] = {}
        """Without those that are `NONE`."""
        self._in: dict[RegionState, set[str]] = {state: set() for state in RegionState}
        self.joined: AbstractSet[str] = self._in[RegionState.JOINED]
        """The regions that are `JOINED`, kept up to date."""

    def all_in(self, state: RegionState) -> AbstractSet[str]:
        """Return the regions in a state, kept up to date; none for `NONE`."""
        return self._in[state]

    def state(self, region: str) -> RegionState:
        """Return the state of a region."""
        life = self.all.get(region)
        return life.state if life is not None else RegionState.NONE

    def move(self, region: str, event: RegionEvent) -> None:
        """Take a region to its state after an event. Raises `IllegalTransition`.

        Nothing but the state is kept of a region that is released.
        """
        life = self.all.get(region)
        before = life.state if life is not None else RegionState.NONE
        state = after(REGION_LIFE, before, event)
        self._in[before].discard(region)
        if state is RegionState.NONE:
            self.all.pop(region, None)
            return
        self._in[state].add(region)
        if life is None or event is RegionEvent.RELEASE:
            self.all[region] = Life(state)
        else:
            life.state = state

    def end_silence(self, region: str, epoch: int, last: int) -> None:
        """Deliver a region from behind a region sequence on. Raises `IllegalTransition`."""
        self.move(region, RegionEvent.ORDER)
        self.all[region].silent_to = epoch, last


class Check(StrEnum):
    """What may have become true of a region."""

    SEVERED = "it goes on to a later epoch, and is read at a node that was given up"
    ENDED = "it goes on to a later epoch, and its own has ended"
    JOINED = "it is joined"


class Checks:
    """The work queue of a subscriber: the regions to check next. A region that has gone meanwhile may be among them."""

    def __init__(self) -> None:
        self._due: dict[Check, set[str]] = {check: set() for check in Check}
        """Check → the regions that wait for it."""

    def add(self, check: Check, regions: Iterable[str]) -> None:
        """Have regions checked."""
        self._due[check].update(regions)

    def is_due(self, check: Check) -> bool:
        """Return whether there is a region to check."""
        return bool(self._due[check])

    def take(self, check: Check) -> list[str]:
        """Return the regions to check, in order; each is returned once."""
        if not self._due[check]:
            return []
        due, self._due[check] = self._due[check], set()
        return sorted(due)
