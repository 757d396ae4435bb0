"""A game server: publishes and roams through a network in which anything may fail, and notes everything that it sees.

It uses only the interface of every user, `gamecast.connect`. Its notes are lines of JSON, each written at once, so that
SIGKILL loses none: ``at`` is the machine's monotonic clock in nanoseconds, ``did`` is the kind of note.

    open      session                             a connection is open: a session of its own begins
    ask       region                              `subscribe` is called …
    joined    region                              … and has returned
    left      region                              `unsubscribe` has returned, and earlier events are delivered
    publish   event, region                       `publish_async` is called …; some with a key, of these some with
                                                  ``only_if``, the position where it was set last, or null
    receipt   event, epoch, sequence              … and the event has its receipt
    fail      event, error, uncertain, says       … or an error; uncertain: it may have been published all the same;
                                                  of a conflict, ``position``: where the key was set last
    deliver   event, region, sender, epoch, sequence
    gap       region, epoch, first, last, reason
    trouble   call, error, says                   a call failed; the connection is given up, and another one opened
    end                                           the session ended in peace
"""

from __future__ import annotations

import asyncio
import os
import time
from asyncio import Task
from collections.abc import Coroutine
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import orjson

import gamecast
from gamecast.errors import Conflict, GamecastError
from gamecast.event import Event, Receipt
from laboratory.chaos.board import Board, Phase, Slot

REGIONS_MAX = 4
WALKERS_REGIONS = 2
"""A server follows between one region and this many."""

PUBLISH_EVERY_S = 0.02, 0.2
KEYS = "xyz"
KEYED = 0.2
"""So many of the events name a key."""
CONDITIONAL = 0.7
"""So many of these are published on the condition that the key is as the server knows it."""

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
    asyncio.run(_Server(name, number, url, regions, seed, Path(log_file), board, walks=walks).run())


class _Notes:
    """The log file: whole lines, in one write each time."""

    def __init__(self, file: Path) -> None:
        self._fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        if os.fstat(self._fd).st_size:
            os.write(self._fd, b"\n")  # an earlier writer may have been killed in the middle of a line

    def write(self, *notes: dict[str, object]) -> None:
        at = time.monotonic_ns()
        os.write(self._fd, b"".join(orjson.dumps({"at": at, **note}) + b"\n" for note in notes))


class _Server:
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
        self.notes = _Notes(log_file)
        self.random = Random(f"{name} {seed} {board.get(number, Slot.SESSIONS)}")
        self.heads: dict[tuple[str, str], str | None] = {}
        """(region, key) → where it was set last, as far as this server was told."""

    async def run(self) -> None:
        """Open connections, one after the other, until the end."""
        while self.board.phase is not Phase.STOP:
            self.board.add(self.number, Slot.SESSIONS)
            session = _Session(self)
            try:
                await session.run()
            finally:
                for slot in (Slot.OPEN, Slot.UNRESOLVED, Slot.JOINING):
                    self.board.put(self.number, slot, 0)
            await asyncio.sleep(AGAIN_S)

    def trouble(self, call: str, error: BaseException) -> None:
        """Note a call that failed."""
        self.notes.write({"did": "trouble", "call": call, "error": type(error).__name__, "says": str(error)})


class _Session:
    """One connection, from its opening to its end."""

    def __init__(self, server: _Server) -> None:
        self.server = server
        self.notes = server.notes
        self.random = server.random
        self.session = server.board.get(server.number, Slot.SESSIONS)
        impatient = server.number % 2 == 1
        self.client = gamecast.connect(
            server.url, name=server.name, publish_timeout_s=IMPATIENT_S if impatient else 10.0
        )
        self.published = 0
        self.unresolved: set[str] = set()
        self.mine: set[str] = set()
        """Regions that are asked for and not left."""
        self.joining: set[str] = set()
        self.leaving: set[str] = set()
        self.calls: set[Task[None]] = set()
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self) -> None:
        """Live until the end of the run, or until the connection is of no use any more."""
        server = self.server
        try:
            await self.client.open()
            if server.walks:
                await self.client.declare_overlaps(pairwise(server.regions))
        except Exception as error:  # noqa: BLE001 - any error is noted, and the next connection tries again
            server.trouble("open", error)
            return
        self.notes.write({"did": "open", "session": self.session})
        server.board.put(server.number, Slot.OPEN, 1)
        for _ in range(1 if server.walks else self.random.randint(1, 3)):
            self._join()
        self._call("iterate", self._consume())
        self._call("publish", self._publish())
        self._call("roam", self._roam())
        stopping = asyncio.create_task(self._until_stop())
        try:
            await asyncio.wait({stopping, self.failed}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not self.failed.done():
                self.notes.write({"did": "end"})
            for task in (stopping, *self.calls):
                task.cancel()
            await asyncio.gather(stopping, *self.calls, return_exceptions=True)
            await self._close()

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

    async def _until_stop(self) -> None:
        server, board = self.server, self.server.board
        last_round = False
        while (phase := board.phase) is not Phase.STOP:
            if phase is Phase.LAST and not last_round:
                last_round = True
                for region in server.regions:
                    self._publish_to(region)
            board.put(server.number, Slot.UNRESOLVED, len(self.unresolved))
            board.put(server.number, Slot.JOINING, len(self.joining | self.leaving))
            board.put(server.number, Slot.PHASE, phase)
            await asyncio.sleep(TICK_S)

    async def _consume(self) -> None:
        async for batch in self.client.batches():
            self.notes.write(*map(_handed_out, batch))
            self.server.board.add(self.server.number, Slot.DELIVERED, len(batch))
        raise GamecastError("the iterator ended while the connection was open")

    async def _publish(self) -> None:
        while True:
            await asyncio.sleep(self.random.uniform(*PUBLISH_EVERY_S))
            if self.server.board.phase is Phase.ROAM:
                for _ in range(self.random.choice((1, 1, 2, 4))):
                    self._publish_to(self.random.choice(self.server.regions))

    def _publish_to(self, region: str) -> None:
        self.published += 1
        event = f"{self.server.name}/{self.session}/{self.published}"
        about = self._about(region)
        self.notes.write({"did": "publish", "event": event, "region": region, **about})
        self.server.board.add(self.server.number, Slot.PUBLISHED)
        filling = b" " * self.random.choice((0, 0, 0, 100, 3000))
        try:
            receipt = self.client.publish_async(region, event.encode() + filling, **about)
        except GamecastError as error:
            self._note_failure(event, error)
            return
        self.unresolved.add(event)
        receipt.add_done_callback(lambda done: self._resolved(event, about.get("key"), done))

    def _about(self, region: str) -> dict[str, Any]:
        """Return what the next event says of keys."""
        if self.random.random() >= KEYED:
            return {}
        key = self.random.choice(KEYS)
        is_conditional = self.random.random() < CONDITIONAL
        return {"key": key, **({"only_if": self.server.heads.get((region, key))} if is_conditional else {})}

    def _resolved(self, event: str, key: str | None, done: asyncio.Future[Receipt]) -> None:
        self.unresolved.discard(event)
        if done.cancelled():
            return
        if (error := done.exception()) is not None:
            self._note_failure(event, error)
        else:
            region, epoch, sequence = done.result()
            if key is not None:
                self.server.heads[region, key] = done.result().position
            self.notes.write({"did": "receipt", "event": event, "epoch": epoch, "sequence": sequence})

    def _note_failure(self, event: str, error: BaseException) -> None:
        uncertain = not (isinstance(error, GamecastError) and error.definite)
        note: dict[str, object] = {"event": event, "error": type(error).__name__, "uncertain": uncertain}
        note["says"] = str(error)[:200]
        if isinstance(error, Conflict):
            note["position"] = self.server.heads[error.region, error.key] = error.position
        self.notes.write({"did": "fail", **note})

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
            region = self.random.choice(strange)
            self.mine.add(region)
            self.joining.add(region)
            self._call("subscribe", self._joined(region))

    async def _joined(self, region: str) -> None:
        self.notes.write({"did": "ask", "region": region})
        try:
            await self.client.subscribe(region)
        finally:
            self.joining.discard(region)
        if region not in self.leaving:
            self.notes.write({"did": "joined", "region": region})

    async def _leave(self, region: str) -> None:
        await self.client.unsubscribe(region)
        # Events that were ready before are still delivered; only after that can later ones be distinguished from them.
        while self.client.statistics().inbox_events or region in self.joining:  # noqa: ASYNC110 - there is no event to await
            await asyncio.sleep(0.001)
        self.notes.write({"did": "left", "region": region})
        self.mine.discard(region)
        self.leaving.discard(region)


def _handed_out(item: gamecast.Item) -> dict[str, object]:
    if isinstance(item, Event):
        return {
            "did": "deliver",
            "event": bytes(item.payload).decode().rstrip(),
            "region": item.region,
            "sender": item.sender,
            "epoch": item.epoch,
            "sequence": item.sequence,
        }
    assert isinstance(item, gamecast.Gap)  # neither states nor presence are asked for
    region, epoch, first, last, reason = item
    return {"did": "gap", "region": region, "epoch": epoch, "first": first, "last": last, "reason": reason}
