"""Play scenarios with a client, side by side, and judge each."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from gamecast.event import Event, Gap
from gateway.messages import Message
from laboratory.conformance.judging import Violation, judge
from laboratory.conformance.log import Log, Missed
from laboratory.conformance.program import NotStarted, Program
from laboratory.conformance.server import Connection, Server
from laboratory.conformance.world import World

TOKEN = "the-token-of-the-kit"
NAME = "conformance"
TIMEOUT_S = 5.0


class Unsupported(Exception):
    """The client's program says that it has no such call."""


class Scenario(NamedTuple):
    """``title``: what must hold, in a sentence."""

    name: str
    title: str
    play: Callable[[Play], Awaitable[None]]


class Scenarios(dict[str, Scenario]):
    """Scenarios by their names."""

    def add(self, title: str) -> Callable[[Callable[[Play], Awaitable[None]]], None]:
        """Return a decorator that adds a scenario: its name is the function's, with hyphens."""

        def adding(play: Callable[[Play], Awaitable[None]]) -> None:
            name = play.__name__.replace("_", "-")
            self[name] = Scenario(name, title, play)

        return adding


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one scenario. ``skipped``: the client has no call for what it is about."""

    name: str
    title: str
    violations: tuple[Violation, ...]
    skipped: bool
    seconds: float

    @property
    def passed(self) -> bool:
        """Whether the client did nothing wrong."""
        return not self.violations and not self.skipped

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        outcome = "skipped" if self.skipped else "passed" if self.passed else "failed"
        told = [{"rule": rule, "text": text} for rule, text in self.violations]
        fields = {"name": self.name, "title": self.title, "outcome": outcome, "violations": told}
        return fields | {"seconds": round(self.seconds, 3)}


class Play:
    """What a scenario is written with: the world, the server, and the client's program."""

    def __init__(self, command: Sequence[str], timeout_s: float) -> None:
        self.log = Log(timeout_s)
        self.world = World()
        self.server = Server(self.world, self.log)
        self._command = command
        self._program: Program | None = None
        self._connections = 0

    async def start(self) -> None:
        """Start the server and the program. Raises `NotStarted`."""
        await self.server.start()
        environment = {"GAMECAST_URL": self.server.url, "GAMECAST_TOKEN": TOKEN, "GAMECAST_NAME": NAME}
        self._program = Program(self._command, environment, self.log)
        await self._program.start()

    async def stop(self) -> None:
        """End what `start` started."""
        if self._program is not None:
            await self._program.kill()
        await self.server.stop()

    def ask(self, what: str, **fields: Any) -> int:
        """Give the client a command; return its id."""
        assert self._program is not None
        return self._program.ask(what, **fields)

    async def do(self, what: str, **fields: Any) -> None:
        """Give the client a command, and wait for its answer."""
        await self.answered(self.ask(what, **fields))

    async def answered(self, *commands: int) -> None:
        """Wait for the answers to commands. Raises `Unsupported` if the client has no such call."""
        for number in commands:
            await self.log.until(partial(self._is_answered, number), f"the client did not answer command {number}")
            if any(line["unsupported"] == number for line in self.log.reported("unsupported")):
                raise Unsupported

    def _is_answered(self, number: int) -> bool:
        kinds = ("done", "receipt", "refused", "unsupported")
        return any(line[kind] == number for kind in kinds for line in self.log.reported(kind))

    async def connected(self) -> Connection:
        """Wait for the next connection of the client, and its hello."""
        self._connections += 1
        await self.log.until(
            lambda: (
                len(self.server.connections) >= self._connections
                and bool(self.server.connections[self._connections - 1].heard)
            ),
            f"the client did not open connection {self._connections} and send a hello",
        )
        return self.server.connections[self._connections - 1]

    async def heard(self, connection: Connection, kind: type[Message], count: int = 1) -> None:
        """Wait until the client sent messages of a kind over a connection."""
        await self.log.until(
            lambda: sum(isinstance(message, kind) for message in connection.heard) >= count,
            f"the client did not send {kind.__name__.lower()} {count} over connection {connection.number + 1}",
        )

    def event(self, region: str, payload: Any, **about: Any) -> Event:
        """Let an event happen; `Connection.flush` sends it."""
        event = self.world.event(region, payload, **about)
        self.server.happened(event)
        return event

    def events(self, count: int, *regions: str, begin: int = 0) -> list[Event]:
        """Let events happen, in turn in each of some regions."""
        return [self.event(regions[at % len(regions)], {"number": begin + at}) for at in range(count)]

    def joint(self, regions: Iterable[str], payload: Any) -> None:
        """Let an event of several regions happen."""
        self.server.happened(self.world.joint(regions, payload))

    def gap(self, region: str, events: int = 3) -> Gap:
        """Let events be lost."""
        gap = self.world.gap(region, events)
        self.server.happened(gap)
        return gap

    async def reported(self, count: int, kind: str = "event") -> None:
        """Wait until the client reported so many events, or items of another kind."""
        await self.log.until(
            lambda: len(self.log.reported(kind)) >= count,
            f"the client did not report {count} of kind {kind!r}",
        )

    async def status(self, status: str) -> None:
        """Wait until the client reported a status of its connection."""
        await self.log.until(
            lambda: any(line["status"] == status for line in self.log.reported("status")),
            f"the client did not report the status {status!r}",
        )

    async def finish(self) -> None:
        """Ask the program to close, and wait until it ended."""
        assert self._program is not None
        self.ask("close")
        await self._program.until_ended()


async def play(scenario: Scenario, command: Sequence[str], *, timeout_s: float = TIMEOUT_S) -> Outcome:
    """Play one scenario. Raises `NotStarted`."""
    begun_s = time.monotonic()
    playing = Play(command, timeout_s)
    skipped = False
    try:
        await playing.start()
        try:
            await scenario.play(playing)
            await playing.finish()
        except Missed:
            pass
        except Unsupported:
            skipped = True
    finally:
        await playing.stop()
    if playing.server.failures:
        raise playing.server.failures[0]
    violations = () if skipped else tuple(judge(playing.log.entries, token=TOKEN))
    return Outcome(scenario.name, scenario.title, violations, skipped, time.monotonic() - begun_s)


async def play_all(
    scenarios: Mapping[str, Scenario],
    command: Sequence[str],
    *,
    jobs: int,
    timeout_s: float = TIMEOUT_S,
    on_outcome: Callable[[Outcome], None] = lambda outcome: None,
) -> list[Outcome]:
    """Play scenarios, some at a time; return the outcomes in the order of the scenarios. Raises `NotStarted`."""
    turns = asyncio.Semaphore(jobs)

    async def in_turn(scenario: Scenario) -> Outcome:
        async with turns:
            outcome = await play(scenario, command, timeout_s=timeout_s)
        on_outcome(outcome)
        return outcome

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(in_turn(scenario)) for scenario in scenarios.values()]
    except* NotStarted as failed:
        raise failed.exceptions[0] from None
    return [task.result() for task in tasks]
