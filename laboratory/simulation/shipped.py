"""Worlds of the product as it ships: game servers with all that a connection has, in virtual time and bad weather.

The game servers and the judges are those of `laboratory.chaos`, which plays them on real processes. Here they run in
one process over a network in memory, see `laboratory.simulation.storm`: thousands of times, each time the same.
"""

from __future__ import annotations

import asyncio
import logging
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import gamecast
from demo.patience import Deadline
from gamecast.client.client import Client
from gamecast.client.configuration import configured
from laboratory.chaos.board import Board, Phase, Slot
from laboratory.chaos.judging import Judgement, judge_run
from laboratory.chaos.kept import Kept
from laboratory.chaos.notes import read_notes
from laboratory.chaos.run import come_to_rest
from laboratory.chaos.server import GameServer
from laboratory.chaos.writing import NoteFile
from laboratory.simulation.judging import epochs_at
from laboratory.simulation.storm import CONTROL, Storm, Weather
from laboratory.simulation.virtualtime import WHOSE, VirtualLoop, virtual_time

REST_S_MAX = 90.0
END_S_MAX = 30.0
THINKING_S_MAX = 0.3
ENDINGS_MAX = 5
"""So often what runs at the end is cancelled: it may have to be, at each of its waits."""


@dataclass(frozen=True, slots=True)
class ShippedWorld:
    """The world of a seed. Times are in s."""

    seed: int
    nodes: int
    servers: int
    regions: int
    managers: int
    busy_s: float
    resume_s: float
    weather: Weather
    walks: bool
    lossy: tuple[str, ...]
    alone_s: float
    """Until then, only the first node is registered."""
    faults: int
    give_up_s: float = 0.0

    @classmethod
    def of(cls, seed: int) -> ShippedWorld:
        """Draw a world."""
        random = Random(f"shipped {seed}")
        nodes = random.choice((1, 2, 2, 3))
        bad = random.choice((0.0, 0.0, 0.005, 0.02))
        names = [f"n{number}" for number in range(1, nodes + 1)]
        is_alone = nodes > 1 and random.random() < 0.25
        loses = random.random() < 0.2 and not is_alone
        gives_up = nodes > 1 and not is_alone and not loses and random.random() < 0.2
        return cls(
            seed,
            nodes,
            servers=random.randint(2, 4),
            regions=random.randint(2, 5),
            managers=random.randint(1, 2),
            busy_s=random.choice((3.0, 6.0)),
            resume_s=random.choice((0.5, 60.0)),
            weather=Weather(random.choice((0.0005, 0.005)), random.choice((0.0, 0.01, 0.05)), bad),
            walks=random.random() < 0.25,
            lossy=tuple(random.sample(names, 1)) if loses else (),
            alone_s=random.uniform(0.5, 3.0) if is_alone else 0.0,
            faults=random.choice((0, 2, 5)),
            give_up_s=random.choice((0.5, 2.0)) if gives_up else 0.0,
        )


@dataclass(frozen=True, slots=True)
class ShippedSeen:
    """What came of a world. ``virtual_s``: how long it took by its own clock."""

    world: ShippedWorld
    violations: tuple[str, ...]
    judgement: Judgement | None
    faults: Mapping[str, int]
    virtual_s: float


def run_shipped(world: ShippedWorld) -> ShippedSeen:
    """Run a world and judge it; it has always the same course where sets of text have the same order.

    That is so in processes with the same ``PYTHONHASHSEED``.
    """
    random = Random(world.seed)
    with (
        tempfile.TemporaryDirectory(prefix="gamecast-world-") as directory,
        virtual_time(world.seed, lambda: random.random() ** 3 * THINKING_S_MAX) as loop,
    ):
        play = _Play(world, loop, random, Path(directory))
        with mock.patch.object(gamecast, "connect", play.connect), _quiet():
            try:
                judgement = loop.run_until_complete(play.run())
                wrong = judgement.violations
                if not judgement.fine and not wrong:
                    wrong = (str(judgement),)
            except Exception as error:  # noqa: BLE001 - any error is a finding
                where = traceback.extract_tb(error.__traceback__)[-1]
                judgement, wrong = None, (f"crash: {error!r} in {where.name}",)
        return ShippedSeen(world, wrong, judgement, play.befell, loop.now_s)


@contextmanager
def _quiet() -> Iterator[None]:
    """Log nothing of what happens in a world."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


class _Notes(NoteFile):
    """The notes of one life: a process that was killed writes nothing more."""

    def __init__(self, file: Path, is_dead: Callable[[], bool]) -> None:
        super().__init__(file)
        self._is_dead = is_dead

    def write(self, *notes: dict[str, object]) -> None:
        if not self._is_dead():
            super().write(*notes)


class _Deadline(Deadline):
    """One by the clock of a world, which no busy machine slows down."""

    def _slowness(self) -> float:
        return 1.0


class _Board(Board):
    """The board of a world: a process that was killed writes nothing more."""

    def __init__(self, servers: int, dead: AbstractSet[str]) -> None:
        super().__init__(servers)
        self._dead = dead

    def put(self, server: int, slot: Slot, number: int) -> None:
        if WHOSE.get() not in self._dead:
            super().put(server, slot, number)


class _Play:
    def __init__(self, world: ShippedWorld, loop: VirtualLoop, random: Random, directory: Path) -> None:
        self.world, self.loop, self.random, self.directory = world, loop, random, directory
        self.storm = Storm(
            loop,
            random,
            world.weather,
            nodes=world.nodes,
            lossy=world.lossy,
            is_alone=world.alone_s > 0,
            give_up_s=world.give_up_s,
        )
        self.board = _Board(world.servers, self.storm.dead)
        self.names = [f"server-{number}" for number in range(1, world.servers + 1)]
        self.regions = tuple(f"region-{letter}" for letter in "abcdefgh"[: world.regions])
        self.lives: Counter[str] = Counter()
        self.notes: list[NoteFile] = []
        self.running: dict[str, asyncio.Task[None]] = {}
        self.befell: Counter[str] = Counter()
        self.managers = [f"manager-{number}" for number in range(1, world.managers + 1)]

    def connect(self, url: str, **options: Any) -> Client:
        """Be `gamecast.connect` for the game servers."""
        whose = WHOSE.get()
        view = partial(self.storm.network, options["name"], whose)
        return Client(configured(url, resume_s=self.world.resume_s, **options), view=view)

    async def run(self) -> Judgement:
        world, storm = self.world, self.storm
        if world.alone_s:
            self.loop.call_later(world.alone_s, storm.register_all)
        for name in (*self.managers, "relays", *self.names):
            self._start(name)
        for at_s, fault in self._faults():
            self.loop.call_later(at_s, fault)
        await asyncio.sleep(world.busy_s)
        self._end_faults()
        unrest = await come_to_rest(
            self.board, self.names, _Deadline(REST_S_MAX), lossy=bool(world.lossy or world.give_up_s)
        )
        kept = list(self._kept())
        self.board.phase = Phase.STOP
        await asyncio.wait([self.running[name] for name in self.names], timeout=END_S_MAX)
        hanging = [name for name in self.names if not self.running[name].done()]
        await self._end_all()
        for written in self.notes:
            written.close()
        notes = read_notes({name: self._file(name) for name in self.names})
        epochs = [record.plan.epoch for record in storm.store.announced]
        lossy = range(min(epochs), max(epochs) + 1) if world.lossy or world.give_up_s else range(0)
        unrest = unrest or ("; ".join(f"{name} does not end" for name in hanging))
        plans = [record.plan for record in storm.store.announced]
        given_up = epochs_at(frozenset[str]().union(*(plan.given_up for plan in plans)), plans)
        return judge_run(notes, kept, unrest, lossy=lossy, given_up=given_up)

    # The processes.

    def _start(self, name: str) -> None:
        self.lives[name] += 1
        whose = f"{name}.{self.lives[name]}"
        context = copy_context()
        context.run(WHOSE.set, whose)
        self.running[name] = self.loop.create_task(self._life(name, whose), name=whose, context=context)

    def _life(self, name: str, whose: str) -> Coroutine[Any, Any, None]:
        if name in self.managers:
            return self.storm.manage(whose, "acyclic", self.world.resume_s)
        if name == "relays":
            return self.storm.carry(whose)
        server = GameServer(
            name,
            self.names.index(name),
            "memory://storm",
            self.regions,
            self.world.seed,
            self._file(name),
            self.board,
            walks=self.world.walks,
        )
        server.notes.close()
        server.notes = _Notes(self._file(name), lambda: whose in self.storm.dead)
        self.notes.append(server.notes)
        return server.run()

    def _file(self, name: str) -> Path:
        return self.directory / f"{name}.notes.jsonl"

    # What befalls them.

    def _faults(self) -> Iterator[tuple[float, Callable[[], None]]]:
        random, world = Random(f"faults {self.world.seed}"), self.world
        nodes, others = [*self.storm.nodes], [*self.managers, "relays", *self.names]
        for _ in range(world.faults):
            at, long = random.random() * world.busy_s, random.random() ** 2 * 4
            kind = random.choice(("node", "process", "process", "stop", "cut", "away", "control"))
            node, other = random.choice(nodes), random.choice(others)
            match kind:
                case "node" if node in world.lossy:
                    yield max(0.0, at - random.random()), partial(self._lose, node, at, long)
                case "node":
                    yield at, partial(self._down, node, long)
                case "control":
                    yield at, partial(self._down, CONTROL, long)
                case "process":
                    yield at, partial(self._kill, other, long)
                case "stop":
                    yield at, partial(self._stop, random.choice((*nodes, CONTROL, *others)), long)
                case "cut":
                    yield at, partial(self._cut, other, random.choice((*nodes, CONTROL)), long)
                case "away":
                    away = random.choice(self.names)
                    yield at, partial(self._cut, away, CONTROL, 11 + long)

    def _down(self, end: str, for_s: float) -> None:
        if end not in self.storm.dead:
            self.befell["killed " + end.rstrip("0123456789")] += 1
            self.storm.kill(end)
            self.loop.call_later(for_s, self.storm.start, end)

    def _lose(self, node: str, at: float, for_s: float) -> None:
        self.befell["lost"] += 1
        self.storm.will_forget(node, max(0.0, at - self.loop.now_s))
        self.loop.call_later(max(0.0, at - self.loop.now_s) + for_s, self.storm.start, node)

    def _kill(self, name: str, for_s: float) -> None:
        whose = f"{name}.{self.lives[name]}"
        if whose not in self.storm.dead:
            self.befell["killed " + name.rstrip("-0123456789")] += 1
            self.storm.kill(whose)
            self.loop.kill(whose)
            self.loop.call_later(for_s, self._start, name)

    def _stop(self, name: str, for_s: float) -> None:
        self.befell["stopped"] += 1
        self.storm.stopped_until[name] = self.loop.now_s + for_s

    def _cut(self, one: str, other: str, for_s: float) -> None:
        self.befell["cut"] += 1
        pair = frozenset((one, other))
        self.storm.cut.add(pair)
        self.loop.call_later(for_s, self.storm.cut.discard, pair)

    def _end_faults(self) -> None:
        storm = self.storm
        storm.weather = Weather(0.001, 0.0)
        storm.cut.clear()
        storm.stopped_until.clear()
        for end in storm.lives:
            storm.start(end)

    # Its end.

    async def _end_all(self) -> None:
        """Kill what still runs."""
        for name, life in self.lives.items():
            self.storm.kill(f"{name}.{life}")
        for _ in range(ENDINGS_MAX):
            left = asyncio.all_tasks() - {asyncio.current_task()}
            for task in left:
                task.cancel()
            if left:
                await asyncio.wait(left, timeout=1.0)

    def _kept(self) -> Iterator[Kept]:
        for node in self.storm.nodes.values():
            for (epoch, region), frames in node.egress.items():
                for frame in frames:
                    entry_id = b"%d-%d" % (epoch, frame.last)
                    fields = b"", frame.meta, b"", frame.stamp, b"", frame.body
                    yield Kept.of(node.name, region, epoch, entry_id, fields)
