"""A run of a classic protocol in a drawn world, and what of its promises it broke."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count
from random import Random

from classic.executions.guarantees import Violation, violations
from classic.executions.journal import Journal
from classic.executions.record import Record
from classic.protocols.process import (
    Alarm,
    Deliver,
    Effect,
    Guarantee,
    Halt,
    Joinable,
    Message,
    Process,
    Regrouping,
    Send,
)
from classic.protocols.setup import Assumption
from laboratory.protocols.worlds import Change, World, choose_group, draw
from sequencing.errors import UsageError

QUIET_MS = 5_000.0
"""No step takes this long: a message that is not delivered when no application has seen anything for it, never is."""
TOKEN_PASSES_MAX = 50_000
FAR = (1.0, 1.0, 4.0, 25.0)
"""Mean delays of links, milliseconds: some are far from each other."""
STALLED = 0.1
"""How often a packet is late by up to `STALL_MS`."""
STALL_MS = 200.0
REPORT_MS = 60.0
"""Within this time after a crash, it is reported to the others."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A finished run. ``packets``: what crossed the network."""

    world: World
    record: Record
    violations: tuple[Violation, ...]
    packets: int


def judge_protocol(
    protocol: type[Process],
    seed: int,
    *,
    guarantees: Iterable[Guarantee] | None = None,
    dropping: Iterable[Assumption] = (),
) -> Outcome:
    """Run a seed, and judge by what the protocol declares, or by other guarantees."""
    world = draw(protocol, seed, dropping=dropping)
    run = Run(protocol, world)
    run.go()
    record = run.journal.record()
    found = tuple(violations(record, protocol.guarantees if guarantees is None else guarantees))
    return Outcome(world, record, found, run.packets)


def refute(protocol: type[Process], guarantee: Guarantee, *, seeds: int) -> Iterator[tuple[int, Violation]]:
    """Yield the seeds below a number that break a guarantee, each with its first violation."""
    for seed in range(seeds):
        outcome = judge_protocol(protocol, seed, guarantees=[guarantee])
        if outcome.violations:
            yield seed, outcome.violations[0]


CLAIMS = (Guarantee.VALIDITY, Guarantee.FIFO, Guarantee.CAUSAL, Guarantee.TOTAL, Guarantee.SYNCHRONOUS)
"""From the weakest that are worth claiming; a synchronous protocol can claim no more."""


def nearest_wrong_claim(protocol: type[Process]) -> Guarantee | None:
    """Return the weakest guarantee that a protocol does not declare, and that worlds of its assumptions can refute."""
    if Guarantee.SYNCHRONOUS in protocol.guarantees:
        return None
    return next(claim for claim in CLAIMS if claim not in protocol.guarantees)


class Run:
    """The clock, the links and the applications; the processes are the protocol's own."""

    def __init__(self, protocol: type[Process], world: World) -> None:
        self.random = Random(world.seed)
        self.world = world
        self.processes = {name: protocol(name, world.setup) for name in world.setup.processes}
        self.reports = Assumption.CRASHES_REPORTED in protocol.assumes
        self.journal = Journal(protocol, world.setup, late=world.late)
        self.now = 0.0
        self.packets = 0
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._serial = count()
        self._last_seen = 0.0
        """When an application last saw or did anything."""
        self._mean = {(a, b): self.random.choice(FAR) for a in self.processes for b in self.processes}
        self._last_arrival: dict[tuple[str, str], float] = {}
        self._steps = dict.fromkeys(self.processes, 0)
        self._dead: set[str] = set()
        self._published = dict.fromkeys(self.processes, 0)
        self._replies = 0
        self._asked: dict[tuple[str, str], bool] = {}
        """Process and group → whether it last asked to join."""
        self._crashes = {crash.process: crash for crash in world.crashes}

    def go(self) -> None:
        """Run until nothing is left to do, or nothing that an application would see."""
        for name, process in self.processes.items():
            self._step(name, process.start)
        for publication in self.world.publications:
            self._at(publication.at_ms, partial(self.publish, publication.process, publication.group))
        for change in self.world.changes:
            self._at(change.at_ms, partial(self._change_membership, change))
        for at_ms, suspecting, suspected in self.world.wrong_suspicions:
            self._at(at_ms, partial(self._suspect, suspecting, suspected))
        for _ in range(TOKEN_PASSES_MAX):
            if not self._agenda or self._agenda[0][0] > self._last_seen + QUIET_MS:
                self._look_for_unmet()
                return
            self.now, _, action = heapq.heappop(self._agenda)
            action()
        raise AssertionError(f"seed {self.world.seed} does not come to rest")

    def publish(self, process: str, group: str) -> None:
        """Have a process' application publish; where groups change, only if it may publish to the group just then."""
        if process in self._dead:
            return
        self._published[process] += 1
        message = Message(f"{process}{self._published[process]}", process, group)
        try:
            effects = self.processes[process].publish(message)
        except UsageError:
            assert isinstance(self.processes[process], Regrouping), "the world's groups do not change"
            return
        self.journal.published(message, at_ms=self.now)
        self._last_seen = self.now
        self._step(process, lambda: effects)

    def _at(self, time: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._agenda, (time, next(self._serial), action))

    def _step(self, name: str, take: Callable[[], list[Effect]]) -> None:
        """Have a process take a step and carry out its effects, unless it has crashed or crashes during the step."""
        if name in self._dead:
            return
        effects = take()
        self._steps[name] += 1
        crash = self._crashes.get(name)
        crashing = crash is not None and crash.step == self._steps[name]
        if crash is not None and crashing:
            effects = effects[: crash.effects]
        delivered: list[Message] = []
        for effect in effects:
            self._carry_out(name, effect)
            if isinstance(effect, Deliver):
                delivered.append(effect.message)
        if crashing:
            self._crash(name)
        for _ in delivered:
            if self._replies < self.world.replies_max and self.random.random() < self.world.reply:
                self._replies += 1
                group = choose_group(self.random, self.processes[name].setup, name)
                if group is not None:
                    self.publish(name, group)

    def _carry_out(self, name: str, effect: Effect) -> None:
        match effect:
            case Send(to, packet, lossy):
                self.packets += 1
                if not ((lossy or self.world.loses_all) and self.random.random() < self.world.loss):
                    arrival = self._arrival(name, to)
                    self._at(arrival, lambda: self._step(to, lambda: self.processes[to].receive(name, packet)))
            case Alarm(alarm, after_ms):
                self._at(self.now + after_ms, lambda: self._step(name, lambda: self.processes[name].ring(alarm)))
            case _:
                self.journal.carried_out(name, effect, at_ms=self.now)
                self._last_seen = self.now
                if isinstance(effect, Halt) and not effect.left:  # one that has left still answers, and may come back
                    self._dead.add(name)
                    self._report(name)

    def _arrival(self, source: str, to: str) -> float:
        delay = self._mean[source, to] * self.random.uniform(0.2, 3.0)
        if self.random.random() < STALLED:
            delay += self.random.uniform(0, STALL_MS)
        arrival = self.now + delay
        if self.world.setup.fifo_links:
            arrival = max(arrival, self._last_arrival.get((source, to), 0.0))
            self._last_arrival[source, to] = arrival
        return arrival

    def _crash(self, name: str) -> None:
        self._dead.add(name)
        self.journal.crashed(name, at_ms=self.now)
        self._last_seen = self.now
        self._report(name)

    def _report(self, name: str) -> None:
        """Tell all others, each after a while, that a process has stopped."""
        if self.reports:
            for other in self.processes:
                if other != name:
                    self._at(self.now + self.random.uniform(0, REPORT_MS), partial(self._suspect, other, name))

    def _suspect(self, suspecting: str, suspected: str) -> None:
        self._step(suspecting, lambda: self.processes[suspecting].suspect(suspected))

    def _change_membership(self, change: Change) -> None:
        process = self.processes[change.process]
        if isinstance(process, Regrouping):
            self._asked[change.process, change.group] = change.joins
            asking = {"joins": [change.group]} if change.joins else {"leaves": [change.group]}
            self._step(change.process, partial(process.regroup, **asking))
            return
        assert isinstance(process, Joinable)
        if change.process not in self._dead:
            self.journal.asked(change.process, joins=change.joins)
            self._last_seen = self.now
            self._step(change.process, partial(process.join, change.at) if change.joins else process.leave)

    def _look_for_unmet(self) -> None:
        for (name, group), joins in self._asked.items():
            if joins != (group in self.processes[name].setup.groups_of(name)):
                self.journal.unmet(name, f"{'join' if joins else 'leave'} {group}")
