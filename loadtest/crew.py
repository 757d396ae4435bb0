"""The users of one process: their slots, their present instructions, and their reports.

This module does not import locust, which patches the process. `loadtest.locustfile` passes a crew its `Fire`.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from loadtest.journal import Journal
from loadtest.options import Options
from loadtest.scenario import Scenario, Slot
from loadtest.shapes import Moment, is_of_crowd

Fire = Callable[[str, str, float, BaseException | None], None]
"""Reports a request: its type, name, duration in milliseconds, and error."""


class Reporting(Protocol):
    """The figures that a crew collects from each session regularly."""

    def sample(self) -> dict[str, int]:
        """Report the measurements since the last call. Return figures, which are summed over all sessions."""


@dataclass(slots=True, eq=False)
class Crew:
    """``process``: a name that is unique in the run; ``worker``: its number among ``workers``."""

    options: Options
    scenario: Scenario
    fire: Fire
    process: str
    worker: int = 0
    workers: int = 1
    moment: Moment = field(default_factory=Moment)
    quiet: bool = False
    """Whether users have stopped publishing and roaming, while events in flight arrive."""
    sessions: set[Reporting] = field(default_factory=set)
    planted: bool = False
    """Whether the requested violation has been planted."""
    journal: Journal = field(init=False)
    random: random.Random = field(init=False)
    _free: dict[str, list[int]] = field(default_factory=dict)
    _taken: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.journal = Journal(self.process)
        self.random = random.Random(f"{self.options.seed}/{self.worker}")

    def take_slot(self, kind: str) -> int:
        """Return the lowest slot number that no user of this kind has, in any process."""
        if free := self._free.get(kind):
            own = heapq.heappop(free)
        else:
            own = self._taken.get(kind, 0)
            self._taken[kind] = own + 1
        return self.worker + self.workers * own

    def give_back(self, kind: str, slot: int) -> None:
        """Release a slot for another user."""
        heapq.heappush(self._free.setdefault(kind, []), slot // self.workers)

    def slot(self, number: int, *, users: int) -> Slot:
        """Return the regions and actions of the user of a slot. ``users``: how many users of its kind there are."""
        if is_of_crowd(number, users, shape=self.options.shape):
            return self.scenario.crowded
        return self.scenario.slot(number)

    def chunk(self, *, last: bool = False) -> bytes:
        """Return the next chunk for the master; ``last`` marks the final one."""
        figures: dict[str, Any] = {"quiet": self.quiet, "last": last, "sessions": len(self.sessions)}
        figures["planted"] = int(self.planted and self.worker == 0)
        for session in list(self.sessions):
            for name, value in session.sample().items():
                figures[name] = figures.get(name, 0) + value
        return self.journal.take(**figures)
