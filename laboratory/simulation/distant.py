"""An engine whose processes are far from each other: a call takes the way there, a turn, and the way back.

The random faults of `Engine` (losses for good, calls that come late) do not happen here: connections are TCP's, on
which a lost packet is sent again, and a caller waits for its answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from laboratory.simulation.engine import Call, Engine, Process, Task, Weather

RETRANSMIT_MS = 200.0
"""TCP's shortest time before it sends unacknowledged data again, on top of the round trip (Linux)."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """The conditions between and at the processes, besides distance.

    ``service_ms``: how long a target is busy with one call, while others queue; ``loss``: the probability that data
    sent one way is lost, and sent again after a timeout that doubles; over no distance nothing is lost.
    """

    service_ms: float = 0.0
    loss: float = 0.0
    whole_reads: bool = False
    """Whether a read that has blocked is answered with all that exists then. Redis 7.0 answers with the one stream
    whose first entry ended the wait, and frames that the same request wrote to other streams wait for the next read."""


class DistantEngine(Engine):
    """``trip_ms(from, to)`` is the one-way delay between two processes; it may change as the clock goes on."""

    def __init__(self, random: Random, trip_ms: Callable[[str, str], float]) -> None:
        super().__init__(random, Weather())
        self.conditions = Conditions()
        self._trip_ms = trip_ms
        self._busy_until: dict[str, float] = {}

    def _call(self, process: Process, life: int, task: Task, call: Call) -> None:
        here, there = process.name, call.target.name
        over = False

        def answer(value: Any) -> None:
            nonlocal over
            over = True
            self.at(self.now + self._way_ms(there, here), lambda: self._resume(process, life, task, value))

        def arrive() -> None:
            begins = max(self.now, self._busy_until.get(there, 0.0))
            self._busy_until[there] = begins + self.conditions.service_ms
            self.at(self._busy_until[there], carry_out)

        def carry_out() -> None:
            value = call.do()
            if value is not None:
                answer(value)
                self.changed(call.target)
            elif call.wait_ms:
                call.target.held.append(look_again)
                self.at(self.now + call.wait_ms, expire)
            else:
                answer(None)

        def look_again() -> bool:
            if not over and (value := (call.woken or call.do)()) is not None:
                answer(value)
            return over

        def expire() -> None:
            if not over:
                answer(None)

        self.at(self.now + self._way_ms(here, there), arrive)

    def send(self, here: str, there: str, action: Callable[[], None], *, not_before_ms: float = 0.0) -> float:
        """Do an action when data sent one way has arrived, after earlier data; return when that is."""
        arrives_ms = max(self.now + self._way_ms(here, there), not_before_ms)
        self.at(arrives_ms, action)
        return arrives_ms

    def _way_ms(self, here: str, there: str) -> float:
        way_ms = self._trip_ms(here, there)
        again_ms = RETRANSMIT_MS + way_ms + self._trip_ms(there, here)
        while way_ms and self.conditions.loss and self.random.random() < self.conditions.loss:
            way_ms += again_ms
            again_ms *= 2
        return way_ms
