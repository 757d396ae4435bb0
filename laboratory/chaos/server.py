"""A game server: publishes and roams through a network in which anything may fail, and notes everything that it sees.

It uses only the interface of every user, `gamecast.connect`. Its notes are lines of JSON, each written at once, so that
SIGKILL loses none: ``at`` is the machine's monotonic clock in nanoseconds, ``did`` is the kind of note.

    open      session                             a connection is open: a session of its own begins
    ask       region                              `subscribe` is called …; ``state``: and begins with the state;
                                                  ``presence``: and with presence; ``since``: and goes on after this
                                                  position, or 0; ``of``: where session ``of`` of this server was
    joined    region                              … and has returned; ``begin``: what it returned, without ``since``
    refused   regions, error, says                … or refuses to begin with ``since``, of all regions
    caught_up regions                             all history that ``since`` asked for is delivered
    left      region                              `unsubscribe` has returned, and earlier events are delivered
    publish   event, region or regions            `publish_async` is called …; some with a key, of these some with
                                                  ``only_if``, the position where it was set last, or null; of several
                                                  regions, region → that; by an owner: ``entity``, ``token``
    receipt   event, epoch, sequence              … and the event has its receipt; ``also``: further region → sequence
    fail      event, error, uncertain, says       … or an error; uncertain: it may have been published all the same;
                                                  of a conflict, ``region``, ``position``: where the key was set last
    deliver   event, region, sender, epoch, sequence    ``also`` as of a receipt; ``replayed``: it comes with history
    gap       region, epoch, first, last, reason
    state     as_of, heads, incomplete, present   region → position, key → position, and names of those that are there
    presence  region, epoch, sequence, name, here
    update    region, key, sender, epoch, sequence, session, number, behind
    own       call, ended                         a call of ownership began, or ended; with an authority: ``region``,
                                                  ``entity``, ``token``
    look      here, saw                           at the end: where it is present, and region → whom it sees there
    trouble   call, error, says                   a call failed; the connection is given up, and another one opened
    close                                         the session ends, and another one begins
    end                                           the session stayed until the end of the run
"""

from __future__ import annotations

import asyncio
from asyncio import Task
from collections.abc import Coroutine, Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import gamecast
from gamecast.errors import GamecastError, UnknownPosition, UnorderedHistory
from gamecast.event import Event, Item, State
from laboratory.chaos.board import Board, Phase, Slot
from laboratory.chaos.items import noted
from laboratory.chaos.joints import joint_sets
from laboratory.chaos.owning import Entities
from laboratory.chaos.positions import Standing, last_standing
from laboratory.chaos.publishing import Publisher
from laboratory.chaos.writing import NoteFile
from sequencing.names import OWNER

REGIONS_MAX = 4
WALKERS_REGIONS = 2
"""A server follows between one region and this many."""

PUBLISH_EVERY_S = 0.02, 0.2
STATE = 0.25
"""So many of the regions are subscribed to with their state."""
PRESENT = 0.35
"""So many with presence, which begins with the state, too."""
OWN_EVERY_S = 0.1, 0.5
SHORT = 0.4
"""So many of the sessions end by themselves …"""
SHORT_S = 1.0, 8.0
"""… after this time."""
RESUMED = 0.5
"""So many of the sessions go on where the last one of the server was, if there was one."""
REPLAYED = 0.15
"""So many of the others begin with all that is kept of some regions …"""
REPLAYED_REGIONS_MAX = 3
"""… of up to so many."""

ROAM_EVERY_S = 0.5, 3.0
AGAIN_S = 0.2
TICK_S = 0.02
"""How often the board is read."""

CLOSE_S_MAX = 15.0
IMPATIENT_S = 1.5
"""Every second server gives an ingress up so soon: else a run would hardly see an uncertain publish."""


def serve(
    name: str, number: int, url: str, regions: tuple[str, ...], seed: int, log_file: str, board: Board, walks: bool
) -> None:
    """Be a server until the board says stop; the process's work. ``walks``: only from each region to the next ones."""
    asyncio.run(GameServer(name, number, url, regions, seed, Path(log_file), board, walks=walks).run())


class GameServer:
    """A game server, through all its connections."""

    def __init__(
        self,
        name: str,
        number: int,
        url: str,
        regions: tuple[str, ...],
        seed: int,
        log_file: Path,
        board: Board,
        *,
        walks: bool,
    ) -> None:
        self.name = name
        self.number = number
        self.url = url
        self.regions = regions
        self.board = board
        self.walks = walks
        self.steps = [set(step) for step in pairwise(regions)]
        self.sets = joint_sets(regions)
        self.names = [f"server-{number}" for number in range(1, board.servers + 1)]
        self.log_file = log_file
        self.notes = NoteFile(log_file)
        self.random = Random(f"{name} {seed} {board.get(number, Slot.SESSIONS)}")
        self.heads: dict[tuple[str, str], str | None] = {}
        """(region, key) → where it was set last, as far as this server was told."""
        self.owners: dict[tuple[str, str], str | None] = {}
        """(region, entity) → the position of its owner, as far as this server was told."""

    async def run(self) -> None:
        """Open connections, one after the other, until the end."""
        while self.board.phase is not Phase.STOP:
            self.board.add(self.number, Slot.SESSIONS)
            self._report_nothing()  # it may have been killed
            session = _Session(self)
            try:
                await session.run()
            finally:
                self._report_nothing()
            await asyncio.sleep(AGAIN_S)

    def _report_nothing(self) -> None:
        for slot in (Slot.OPEN, Slot.UNRESOLVED, Slot.JOINING, Slot.HERE, Slot.STRANGE):
            self.board.put(self.number, slot, 0)

    def trouble(self, call: str, error: BaseException) -> None:
        """Note a call that failed."""
        self.notes.write({"did": "trouble", "call": call, "error": type(error).__name__, "says": str(error)})


class _Session:
    """One connection, from its opening to its end."""

    def __init__(self, server: GameServer) -> None:
        self.server = server
        self.notes = server.notes
        self.random = server.random
        self.session = server.board.get(server.number, Slot.SESSIONS)
        impatient = server.number % 2 == 1
        self.client = gamecast.connect(
            server.url, name=server.name, publish_timeout_s=IMPATIENT_S if impatient else 10.0
        )
        self.mine: set[str] = set()
        """Regions that are asked for and not left."""
        self.joining: set[str] = set()
        self.leaving: set[str] = set()
        self.present: set[str] = set()
        """Regions in which it is present."""
        self.publisher = Publisher(
            self.client,
            self.random,
            self.session,
            server.sets,
            server.heads,
            note=self.notes.write,
            count=lambda: server.board.add(server.number, Slot.PUBLISHED),
        )
        self.entities = Entities(
            self.client,
            self.random,
            server.sets,
            server.names,
            server.owners,
            note=self.notes.write,
            publish=self.publisher.publish_owned,
        )
        self.calls: set[Task[None]] = set()
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self) -> None:
        """Live until the end of the run, or until the connection is of no use any more."""
        server = self.server
        standing = last_standing(server.log_file)
        try:
            await self.client.open()
            self.client.updates()
            self.client.on_caught_up(self._caught_up)
            if server.walks:
                await self.client.declare_overlaps(pairwise(server.regions))
        except Exception as error:  # noqa: BLE001 - any error is noted, and the next connection tries again
            server.trouble("open", error)
            return
        self.notes.write({"did": "open", "session": self.session})
        server.board.put(server.number, Slot.OPEN, 1)
        self._begin(standing)
        self._call("iterate", self._consume())
        self._call("publish", self._publish())
        self._call("roam", self._roam())
        self._call("own", self._own())
        stopping = asyncio.create_task(self._watched("look", self._until_stop()))
        closing = asyncio.create_task(self._until_closed())
        try:
            await asyncio.wait({stopping, closing, self.failed}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not self.failed.done():
                self.notes.write({"did": "end" if stopping.done() else "close"})
            closing.cancel()
            for task in (stopping, *self.calls):
                task.cancel()
            await asyncio.gather(stopping, *self.calls, return_exceptions=True)
            await self._close()

    def _begin(self, last: Standing | None) -> None:
        """Go on where the last session was, begin with history, or join some regions as they are now."""
        server, random = self.server, self.random
        if last is not None and random.random() < RESUMED:
            positions = {region: at for region, at in last.positions.items() if region not in last.present}
            self._resume(positions, of=last.session)
            for region in sorted(last.present):
                self._join_region(region, is_present=True)
        elif random.random() < REPLAYED:
            most = WALKERS_REGIONS if server.walks else REPLAYED_REGIONS_MAX
            count = random.randint(1, min(most, len(server.regions)))
            first = random.randint(0, len(server.regions) - count)
            chosen = server.regions[first : first + count] if server.walks else random.sample(server.regions, count)
            self._resume(dict.fromkeys(chosen, 0))
        if not self.mine:
            for _ in range(1 if server.walks else random.randint(1, 3)):
                self._join()

    def _resume(self, since: Mapping[str, str | int], of: int | None = None) -> None:
        if since:
            self.mine.update(since)
            self.joining.update(since)
            self._call("subscribe", self._resumed(since, of))

    async def _resumed(self, since: Mapping[str, str | int], of: int | None) -> None:
        session = {} if of is None else {"of": of}
        for region, at in since.items():
            self.notes.write({"did": "ask", "region": region, "since": at, **session})
        refused: set[str] = set()
        try:
            await self.client.subscribe(*since, since=since)
        except (UnorderedHistory, UnknownPosition) as error:
            refused = self.joining.intersection(since) - self.leaving
            says = {"error": type(error).__name__, "says": str(error)[:300]}
            self.notes.write({"did": "refused", "regions": sorted(since), **says})
        else:
            for region in since:
                if region not in self.leaving:
                    self.notes.write({"did": "joined", "region": region})
        finally:
            self.joining.difference_update(since)
        for region in sorted(refused):
            self._join_region(region)

    def _caught_up(self, regions: frozenset[str]) -> None:
        self.notes.write({"did": "caught_up", "regions": sorted(regions)})

    async def _close(self) -> None:
        try:
            async with asyncio.timeout(CLOSE_S_MAX):
                await self.client.close()
        except Exception as error:  # noqa: BLE001 - as above
            self.server.trouble("close", error)

    def _call(self, what: str, call: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(self._watched(what, call))
        self.calls.add(task)
        task.add_done_callback(self.calls.discard)

    async def _watched(self, what: str, call: Coroutine[Any, Any, None]) -> None:
        try:
            await call
        except Exception as error:  # noqa: BLE001 - as above
            if not self.failed.done():
                self.server.trouble(what, error)
                self.failed.set_result(None)

    async def _until_closed(self) -> None:
        """Return when this session is to end although nothing is wrong, if it is."""
        is_short = self.random.random() < SHORT
        await asyncio.sleep(self.random.uniform(*SHORT_S))
        if not is_short or self.server.board.phase is not Phase.ROAM:
            await asyncio.Event().wait()

    async def _until_stop(self) -> None:
        server, board = self.server, self.server.board
        last_round = has_looked = False
        while (phase := board.phase) is not Phase.STOP:
            if phase is Phase.LAST and not last_round:
                last_round = True
                for region in server.regions:
                    self.publisher.publish(region)
            if phase is Phase.LOOK and not has_looked:
                has_looked = True
                saw = {region: sorted(self.client.present(region)) for region in sorted(self.present)}
                self.notes.write({"did": "look", "here": sorted(self.present), "saw": saw})
            board.put(server.number, Slot.UNRESOLVED, len(self.publisher.unresolved) + self.entities.calls)
            board.put(server.number, Slot.JOINING, len(self.joining | self.leaving))
            board.put(server.number, Slot.HERE, sum(1 << server.regions.index(region) for region in self.present))
            board.put(server.number, Slot.STRANGE, sum(map(self._sees_others, self.present)))
            board.put(server.number, Slot.PHASE, phase)
            await asyncio.sleep(TICK_S)

    async def _consume(self) -> None:
        async for batch in self.client.batches():
            self.notes.write(*map(noted, batch), *self.publisher.updates())
            self.server.board.add(self.server.number, Slot.DELIVERED, len(batch))
            for event in _keyed(batch):
                if event.key is not None and event.key.startswith(OWNER):
                    self._call("accept", self.entities.delivered(event))
        raise GamecastError("the iterator ended while the connection was open")

    def _sees_others(self, region: str) -> bool:
        """Return whether this server sees others in a region than say that they are there."""
        board, bit = self.server.board, 1 << self.server.regions.index(region)
        there = {name for number, name in enumerate(self.server.names) if board.get(number, Slot.HERE) & bit}
        return self.client.present(region).keys() != there

    async def _own(self) -> None:
        while True:
            await asyncio.sleep(self.random.uniform(*OWN_EVERY_S))
            if self.server.board.phase is Phase.ROAM:
                await self.entities.step()

    async def _publish(self) -> None:
        while True:
            await asyncio.sleep(self.random.uniform(*PUBLISH_EVERY_S))
            if self.server.board.phase is Phase.ROAM:
                for _ in range(self.random.choice((1, 1, 2, 4))):
                    self.publisher.publish(self.random.choice(self.server.regions))
                self.publisher.update(self.random.choice(self.server.regions))

    async def _roam(self) -> None:
        while True:
            await asyncio.sleep(self.random.uniform(*ROAM_EVERY_S))
            if self.server.board.phase is not Phase.ROAM:
                continue
            staying = self.mine - self.leaving
            most = WALKERS_REGIONS if self.server.walks else REGIONS_MAX
            if len(staying) > 1 and (len(staying) >= most or self.random.random() < 0.4):
                region = self.random.choice(sorted(staying))
                self.leaving.add(region)
                self._call("unsubscribe", self._leave(region))
            elif len(self.joining) < REGIONS_MAX:
                self._join()

    def _join(self) -> None:
        strange = sorted(set(self.server.regions) - self.mine)
        if self.server.walks and (staying := self.mine - self.leaving):
            strange = [there for there in strange if any({here, there} in self.server.steps for here in staying)]
        if strange:
            self._join_region(self.random.choice(strange))

    def _join_region(self, region: str, *, is_present: bool = False) -> None:
        self.mine.add(region)
        self.joining.add(region)
        self._call("subscribe", self._joined(region, 0.0 if is_present else self.random.random()))

    async def _joined(self, region: str, choice: float) -> None:
        is_present = choice < PRESENT
        presence = {"of": self.session} if is_present else None
        begins = choice < PRESENT + STATE
        how = {"presence": True} if is_present else {}
        self.notes.write({"did": "ask", "region": region, "state": begins, **how})
        try:
            begin = await self.client.subscribe(region, state=begins and not is_present, presence=presence)
        finally:
            self.joining.discard(region)
        if region not in self.leaving:
            if is_present:
                self.present.add(region)
            self.notes.write({"did": "joined", "region": region, "begin": begin.get(region)})

    async def _leave(self, region: str) -> None:
        self.present.discard(region)
        await self.client.unsubscribe(region)
        # Events that were ready before are still delivered; only after that can later ones be distinguished from them.
        while self.client.statistics().inbox_events or region in self.joining:  # noqa: ASYNC110 - there is no event to await
            await asyncio.sleep(0.001)
        self.notes.write({"did": "left", "region": region})
        self.mine.discard(region)
        self.leaving.discard(region)


def _keyed(items: Iterable[Item]) -> Iterator[Event]:
    """Yield events, and the values of states."""
    for item in items:
        if isinstance(item, Event):
            yield item
        elif isinstance(item, State):
            yield from (event for values in item.values.values() for event in values.values())
