"""The users of one process: their slots, what is asked of them now, and what is known of them.

Free of locust, which patches the process that imports it: `loadtest.locustfile` gives a crew the means to report.
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
"""Reports a request: its type, its name, milliseconds, and what went wrong."""


class Reporting(Protocol):
    """What a crew asks of each session now and then."""

    def sample(self) -> dict[str, int]:
        """Report what was measured since the last call; return figures to be added up over all sessions."""


@dataclass(slots=True, eq=False)
class Crew:
    """``process``: a name that no other process of the run has; ``worker`` of ``workers``: which one it is."""

    options: Options
    scenario: Scenario
    fire: Fire
    process: str
    worker: int = 0
    workers: int = 1
    moment: Moment = field(default_factory=Moment)
    quiet: bool = False
    """Whether publishing and roaming is over, and what is under way is waited for."""
    sessions: set[Reporting] = field(default_factory=set)
    planted: bool = False
    """Whether the violation that was asked for has been planted."""
    journal: Journal = field(init=False)
    random: random.Random = field(init=False)
    _free: dict[str, list[int]] = field(default_factory=dict)
    _taken: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.journal = Journal(self.process)
        self.random = random.Random(f"{self.options.seed}/{self.worker}")

    def take_slot(self, kind: str) -> int:
        """Return the lowest number that no other user of this kind has, in any process."""
        if free := self._free.get(kind):
            own = heapq.heappop(free)
        else:
            own = self._taken.get(kind, 0)
            self._taken[kind] = own + 1
        return self.worker + self.workers * own

    def give_back(self, kind: str, slot: int) -> None:
        """Let another user have a slot."""
        heapq.heappush(self._free.setdefault(kind, []), slot // self.workers)

    def slot(self, number: int, *, users: int) -> Slot:
        """Return what the user of a slot has and does, of so many of its kind."""
        if is_of_crowd(number, users, shape=self.options.shape):
            return self.scenario.crowded
        return self.scenario.slot(number)

    def chunk(self, *, last: bool = False) -> bytes:
        """Return what is to be handed over; ``last`` says that nothing more will come."""
        figures: dict[str, Any] = {"quiet": self.quiet, "last": last, "sessions": len(self.sessions)}
        for session in list(self.sessions):
            for name, value in session.sample().items():
                figures[name] = figures.get(name, 0) + value
        return self.journal.take(**figures)
