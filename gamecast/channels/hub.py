"""The one client of a process for its channel layer: groups are regions, and each process has a region of its own.

All channels of a process that are in some groups get the messages of these groups from this client, one after the
other, in the order in which every other process gets them.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgpack

from gamecast.channels.mailboxes import Mailboxes
from gamecast.channels.workqueue import QueueFull, WorkQueue
from gamecast.event import Gap, Presence, State
from gamecast.lasting import UNKNOWN, LastingClient
from sequencing.errors import GamecastError

logger = logging.getLogger("gamecast.channels")

Result = TypeVar("Result")

OTHERS_ANSWER_S = 5.0
"""How long adding a channel of another process to a group waits for that process."""
SWEEPS_S_MIN, SWEEPS_S_MAX = 0.5, 10.0

IN_FLIGHT_S_MAX = 1.0
"""How long closing waits for messages that this process has sent to itself."""

_OWNER = re.compile(r"\.(p[0-9a-f]{16})!")


def new_process() -> str:
    """Return a name that no other process has."""
    return f"p{os.urandom(8).hex()}"


def owner_of(channel: str) -> str | None:
    """Return the process that a channel is of, None if it is no channel of one process."""
    match = _OWNER.search(channel)
    return match[1] if match is not None else None


@dataclass(slots=True)
class _Group:
    region: str
    members: dict[str, float] = field(default_factory=dict)
    """Channel → when its membership ends."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0
    """How many calls have or want the lock."""
    is_joined: bool = False


class Hub:
    """What the channel layer of a process has in the network. It lives in the shared event loop."""

    def __init__(
        self,
        client: LastingClient,
        process: str,
        mailboxes: Mailboxes,
        *,
        prefix: str,
        expiry_s: float,
        group_expiry_s: float,
        capacity_of: Callable[[str], int],
        lost: Callable[[str, str], bytes] | None = None,
    ) -> None:
        """``lost``: makes a message of a group, and why some of its messages may be lost; None: no channel is told."""
        self.process = process
        self.mailboxes = mailboxes
        self._client = client
        self._prefix = prefix
        self._expiry_s = expiry_s
        self._group_expiry_s = group_expiry_s
        self._capacity_of = capacity_of
        self._lost = lost
        self._groups: dict[str, _Group] = {}
        self._queues: dict[str, WorkQueue] = {}
        self._in_flight: Counter[str] = Counter()
        """Channel of this process → messages sent from here that have not come back."""
        self._all_landed = asyncio.Event()
        self._all_landed.set()
        self._answers: dict[str, asyncio.Event] = {}
        self._opening: asyncio.Task[None] | None = None
        self._is_open = False
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def is_open(self) -> bool:
        """Whether the client is open, and calls need not wait for it; of any thread."""
        return self._is_open

    async def perform(self, call: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        """Carry out a call when the client is open; raises what opening it does."""
        if self._opening is None or (self._opening.done() and self._opening.exception() is not None):
            self._opening = asyncio.create_task(self._open(), name="gamecast channels open")
        await asyncio.shield(self._opening)
        return await call()

    async def _open(self) -> None:
        await self._client.open()
        self._start(self._deliver())
        self._start(self._sweep())
        await self._client.subscribe(self._region_of(self.process))
        self._is_open = True

    async def close(self) -> None:
        """End, when the messages that this process has sent to itself have come."""
        with suppress(TimeoutError):
            async with asyncio.timeout(IN_FLIGHT_S_MAX):
                await self._all_landed.wait()
        if self._opening is not None and not self._opening.done():
            self._opening.cancel()
        for queue in self._queues.values():
            await queue.close()
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._client.close()

    async def send(self, channel: str, data: bytes) -> bool:
        """Send a message to a channel; returns False if that is known to be at its capacity."""
        owner = owner_of(channel)
        if owner is None:
            return await self._send_to_queue(channel, data)
        is_own = owner == self.process
        if is_own:
            if self.mailboxes.count(channel) + self._in_flight[channel] >= self._capacity_of(channel):
                return False
            self._in_flight[channel] += 1
            self._all_landed.clear()
        try:
            await self._tell(owner, "send", channel, data)
        except BaseException:
            if is_own:
                self._landed(channel)
            raise
        return True

    async def send_to_group(self, group: str, data: bytes) -> None:
        """Send a message to all channels that are in a group, in every process."""
        await self._client.publish(self._group_region(group), data)

    async def add(self, group: str, channel: str) -> None:
        """Add a channel to a group; when it returns, the channel gets everything that is sent to the group."""
        owner = owner_of(channel)
        if owner is not None and owner != self.process:
            await self._ask(owner, "add", group, channel)
            return
        async with self._locked(group) as entry:
            if not entry.is_joined:
                await self._client.subscribe(entry.region)
                entry.is_joined = True
            entry.members[channel] = time.monotonic() + self._group_expiry_s

    async def discard(self, group: str, channel: str) -> None:
        """Remove a channel from a group."""
        owner = owner_of(channel)
        if owner is not None and owner != self.process:
            await self._ask(owner, "discard", group, channel)
        elif group in self._groups:
            async with self._locked(group) as entry:
                entry.members.pop(channel, None)

    async def join_queue(self, channel: str) -> None:
        """Return when the messages of a general channel can be claimed here."""
        await self._queue(channel).join()

    def claim(self, channel: str) -> None:
        """Claim what is waited for of a general channel."""
        self._queue(channel).claim()

    async def flush(self) -> None:
        """Remove the groups and messages of this process, and the messages of general channels that it knows."""
        for group in [*self._groups]:
            async with self._locked(group) as entry:
                entry.members.clear()
        for queue in [*self._queues.values()]:
            await queue.clear()
        self.mailboxes.clear()

    async def _send_to_queue(self, channel: str, data: bytes) -> bool:
        try:
            await self._queue(channel).send(data, self._capacity_of(channel))
        except QueueFull:
            return False
        return True

    def _queue(self, channel: str) -> WorkQueue:
        queue = self._queues.get(channel)
        if queue is None:
            queue = self._queues[channel] = WorkQueue(
                self._client,
                f"{self._prefix}:channel:{channel}",
                expiry_s=self._expiry_s,
                wanted=lambda: self.mailboxes.wanted(channel),
                put=lambda data: self.mailboxes.put(channel, data),
            )
        return queue

    @asynccontextmanager
    async def _locked(self, group: str) -> AsyncIterator[_Group]:
        """Have a group for oneself; follow its region no more if it has no channels afterwards."""
        entry = self._groups.setdefault(group, _Group(self._group_region(group)))
        entry.users += 1
        try:
            async with entry.lock:
                try:
                    yield entry
                finally:
                    if not entry.members and entry.users == 1:
                        with suppress(GamecastError):
                            await self._client.unsubscribe(entry.region)
                        entry.is_joined = False
        finally:
            entry.users -= 1
            if not entry.users and not entry.members:
                self._groups.pop(group, None)

    async def _deliver(self) -> None:
        groups = f"{self._prefix}:group:"
        queues = f"{self._prefix}:channel:"
        own = self._region_of(self.process)
        async for item in self._client.items():
            try:
                if isinstance(item, Gap):
                    self._note_lost(item)
                elif isinstance(item, State):
                    for region in item.values:
                        self._queue(region.removeprefix(queues)).take_in(item)
                elif isinstance(item, Presence):
                    continue  # other programs may say so in our regions, and nothing here asks
                elif item.region == own:
                    self._take_in(*msgpack.unpackb(item.payload))
                elif item.region.startswith(groups):
                    self._fan_out(item.region.removeprefix(groups), item.payload)
                elif item.region.startswith(queues):
                    self._queue(item.region.removeprefix(queues)).take_in(item)
            except Exception as error:  # noqa: BLE001 - whatever another program publishes in our regions
                logger.warning("a message in %s cannot be read: %s", self._prefix, error)

    def _note_lost(self, gap: Gap) -> None:
        if gap.epoch != UNKNOWN:
            logger.warning("messages of %s are lost: %s", gap.region, gap.reason)
        kind, _, name = gap.region.removeprefix(f"{self._prefix}:").partition(":")
        if kind == "group" and self._lost is not None:
            self._fan_out(name, self._lost(name, gap.reason))
        elif kind == "channel" and name in self._queues:
            self._queues[name].forget_own()
        elif kind == "process":
            for channel in [*self._in_flight]:
                del self._in_flight[channel]
            self._all_landed.set()

    def _fan_out(self, group: str, data: Any) -> None:
        entry = self._groups.get(group)
        if entry is None:
            return
        now = time.monotonic()
        for channel in [channel for channel, ends in entry.members.items() if ends <= now]:
            del entry.members[channel]
        full = 0
        for channel in entry.members:
            if owner_of(channel) is None:
                self._start(self._send_to_queue(channel, data))
            elif not self.mailboxes.put(channel, data):
                full += 1
        if full:
            logger.info("%d of %d channels over capacity in group %s", full, len(entry.members), group)

    def _take_in(self, kind: str, *told: Any) -> None:
        """Act on what another process, or this one, has sent to this process."""
        if kind == "send":
            channel, data = told
            self._landed(channel)
            if not self.mailboxes.put(channel, data):
                logger.info("channel %s is over capacity: a message is dropped", channel)
        elif kind == "done":
            if (answer := self._answers.get(told[0])) is not None:
                answer.set()
        elif kind in {"add", "discard"}:
            self._start(self._answer(kind, *told))

    def _landed(self, channel: str) -> None:
        if channel in self._in_flight:
            self._in_flight[channel] -= 1
            if self._in_flight[channel] <= 0:
                del self._in_flight[channel]
        if not self._in_flight:
            self._all_landed.set()

    async def _ask(self, owner: str, kind: str, group: str, channel: str) -> None:
        number = os.urandom(8).hex()
        done = self._answers[number] = asyncio.Event()
        try:
            await self._tell(owner, kind, group, channel, self.process, number)
            async with asyncio.timeout(OTHERS_ANSWER_S):
                await done.wait()
        except TimeoutError:
            logger.warning("the process of channel %s does not answer: it is not in group %s", channel, group)
        finally:
            del self._answers[number]

    async def _answer(self, kind: str, group: str, channel: str, asker: str, number: str) -> None:
        if owner_of(channel) == self.process:
            await (self.add if kind == "add" else self.discard)(group, channel)
            await self._tell(asker, "done", number)

    async def _tell(self, process: str, *told: Any) -> None:
        await self._client.publish(self._region_of(process), msgpack.packb(told))

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(min(max(self._expiry_s / 2, SWEEPS_S_MIN), SWEEPS_S_MAX))
            self.mailboxes.sweep()
            now = time.monotonic()
            with suppress(GamecastError):
                for group in [
                    name for name, entry in self._groups.items() if min(entry.members.values(), default=now) <= now
                ]:
                    async with self._locked(group) as entry:
                        entry.members = {channel: ends for channel, ends in entry.members.items() if ends > now}
                for channel, queue in [*self._queues.items()]:
                    await queue.forget_expired()
                    if queue.is_idle():
                        del self._queues[channel]
                        await self._client.unsubscribe(queue.region)

    def _start(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.create_task(work, name="gamecast channels")
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("the channel layer failed: %s", error, exc_info=error)

    def _region_of(self, process: str) -> str:
        return f"{self._prefix}:process:{process}"

    def _group_region(self, group: str) -> str:
        return f"{self._prefix}:group:{group}"
