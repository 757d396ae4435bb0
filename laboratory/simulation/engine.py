"""The discrete-event engine: processes that call each other over connections which lose, delay and break.

A process runs tasks. A task is a generator that yields what it waits for: `Sleep`, a `Call` to another process, or a
`Signal` that another task of its own gives. The engine decides when each continues. One task has one call in flight at
a time, so that its data over a connection is FIFO; nothing else is promised. A call that is lost may still be carried
out, later than its caller gave it up.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Any


class Lost(Exception):
    """A call had no answer: whether it was carried out is unknown."""


@dataclass(frozen=True, slots=True)
class Sleep:
    """Continue after some milliseconds."""

    ms: float


@dataclass(frozen=True, slots=True)
class Call:
    """Have another process do something, and return its answer; raises `Lost`.

    ``wait_ms``: how long the other side holds the call back while ``do`` returns None; ``woken``: what it does instead,
    if that is something else, once the call was held back.
    """

    target: Process
    do: Callable[[], Any]
    wait_ms: float = 0.0
    woken: Callable[[], Any] | None = None


@dataclass(slots=True, eq=False)
class Signal:
    """A signal that one task waits for and others of its process give. It is not lost if no task waits yet."""

    given: bool = False
    waiter: Callable[[], None] | None = None


Wait = Sleep | Call | Signal
Task = Generator[Wait, Any, None]


@dataclass(slots=True, eq=False)
class Process:
    """Something that runs, crashes, pauses. ``start`` returns its tasks, and is called again after each crash."""

    name: str
    start: Callable[[], list[Task]]
    alive: bool = True
    life: int = 0
    paused_until: float = 0.0
    held: list[Callable[[], bool]] = field(default_factory=list)
    """Calls that are held back until they have an answer."""


@dataclass(slots=True)
class Weather:
    """How bad the network is. Times are milliseconds; the others are probabilities of a call."""

    latency_ms: float = 1.0
    jitter_ms: float = 1.0
    lost_request: float = 0.0
    lost_answer: float = 0.0
    late: float = 0.0
    """That a request is carried out long after its caller gave it up."""


CALL_TIMEOUT_MS = 30.0

FAR = (1.0, 1.0, 1.0, 8.0)
"""The factors of the latency between two processes: some are far from each other."""


class Engine:
    """The clock, the events to come, and the connections."""

    def __init__(self, random: Random, weather: Weather) -> None:
        self.random = random
        self.weather = weather
        self.now = 0.0
        self.steps = 0
        self.cut: set[frozenset[str]] = set()
        """Pairs of processes between which nothing passes."""
        self._far: dict[tuple[str, str], float] = {}
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._serial = count()

    def at(self, time: float, action: Callable[[], None]) -> None:
        """Do something at a time."""
        heapq.heappush(self._agenda, (time, next(self._serial), action))

    def run(self, until: float, settled: Callable[[], bool] | None = None) -> bool:
        """Continue until a time, or until ``settled`` (checked from time to time); return whether it was settled."""
        while self._agenda and self._agenda[0][0] <= until:
            self.now, _, action = heapq.heappop(self._agenda)
            action()
            self.steps += 1
            if settled is not None and self.steps % 64 == 0 and settled():
                return True
        self.now = until
        return settled is not None and settled()

    def launch(self, process: Process) -> None:
        """Start, or start again, the tasks of a process."""
        process.alive = True
        process.life += 1
        for task in process.start():
            self._resume(process, process.life, task, None)

    def spawn(self, process: Process, task: Task) -> None:
        """Begin another task of a process, for as long as its life lasts."""
        self._resume(process, process.life, task, None)

    def crash(self, process: Process) -> None:
        """Kill -9: its tasks end where they are, and calls that it holds are lost."""
        process.alive = False
        process.held.clear()

    def give(self, signal: Signal) -> None:
        """Let the task go on that waits for a signal, or will wait for it."""
        waiter, signal.waiter = signal.waiter, None
        signal.given = waiter is None
        if waiter is not None:
            self.at(self.now, waiter)

    def changed(self, process: Process) -> None:
        """Let the calls that a process holds back check again."""
        process.held[:] = [again for again in process.held if not again()]

    def _resume(self, process: Process, life: int, task: Task, value: Any) -> None:
        """Let a task go on, unless it is of a life that is over; a paused process goes on later."""
        if process.life != life or not process.alive:
            task.close()
            return
        if getattr(task, "gi_frame", task) is None:
            return  # it was closed meanwhile
        if process.paused_until > self.now:
            self.at(process.paused_until, lambda: self._resume(process, life, task, value))
            return
        try:
            wait = task.throw(value) if isinstance(value, Lost) else task.send(value)
        except StopIteration:
            return
        if isinstance(wait, Call):
            self._call(process, life, task, wait)
        elif isinstance(wait, Sleep):
            self.at(self.now + wait.ms, lambda: self._resume(process, life, task, None))
        else:
            wait.waiter = lambda: self._resume(process, life, task, None)
            if wait.given:
                self.give(wait)

    def _call(self, process: Process, life: int, task: Task, call: Call) -> None:
        weather, random = self.weather, self.random
        ended = False

        def end(value: Any) -> None:
            nonlocal ended
            if not ended:
                ended = True
                self._resume(process, life, task, value)

        def answer(value: Any) -> None:
            if random.random() >= weather.lost_answer and not self._cut(process, call.target):
                self.at(self.now + self._delay(far), lambda: end(value))

        target_life = call.target.life
        pair = process.name, call.target.name
        if pair not in self._far:
            self._far[pair] = self._far[pair[::-1]] = random.choice(FAR)
        far = self._far[pair]
        until = self.now + CALL_TIMEOUT_MS + 2 * far * weather.latency_ms + call.wait_ms

        def carry_out() -> None:
            target = call.target
            if not target.alive or target.life != target_life or self._cut(process, target):
                return
            if target.paused_until > self.now:
                self.at(target.paused_until, carry_out)
                return
            value = call.do()
            if value is not None:
                answer(value)
                self.changed(target)
            elif call.wait_ms and self.now < until:
                target.held.append(look_again)

        def look_again() -> bool:
            if ended:
                return True
            value = call.do()
            if value is not None:
                answer(value)
            return value is not None

        self.at(until, lambda: end(Lost()))
        if random.random() < weather.lost_request:
            return
        delay = self._delay(far)
        if random.random() < weather.late:
            delay += CALL_TIMEOUT_MS * 6 * random.random()
        self.at(self.now + delay, carry_out)

    def _cut(self, one: Process, other: Process) -> bool:
        return bool(self.cut) and frozenset((one.name, other.name)) in self.cut

    def _delay(self, far: float) -> float:
        return far * self.weather.latency_ms + self.random.random() ** 3 * self.weather.jitter_ms
