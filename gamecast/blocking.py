"""The same connection without ``await``: for threaded servers, scripts and gevent.

An event loop in a thread of its own carries the connections; calls pass their work to it and wait. Safe to use from
several threads.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, Unpack

from gamecast.arguments import check_take, checked_regions
from gamecast.client.client import Client, SomeCallback
from gamecast.client.configuration import ConnectOptions, configured
from gamecast.client.history import ReplayOrder, Since
from gamecast.client.keys import NO_CONDITION, OnlyIf, Regions
from gamecast.client.watching import Handlers, SomeGapHandler, SomeHandler, SomePresenceHandler, Status
from gamecast.event import Item, JointEvent, Receipt, State, Statistics, Update
from gamecast.loopthread import shared_loop
from gamecast.recording.options import RecordingStatistics
from sequencing.errors import BufferFull, NotConnected, UsageError
from sequencing.plan import Plan

Result = TypeVar("Result")


def connect(
    url: str | None = None,
    **options: Unpack[ConnectOptions],
) -> BlockingClient:
    """Return a connection; open it using ``with`` or ``open()``. Arguments as `gamecast.connect`."""
    configuration = configured(url, **options)
    return BlockingClient(Client(configuration), configuration.limits.buffer_events_max)


class BlockingClient:
    """A `gamecast.Client` whose calls block the calling thread; they raise the same errors."""

    def __init__(self, client: Client, publish_async_max: int) -> None:
        """Use `connect`."""
        self._client = client
        self._loop: asyncio.AbstractEventLoop | None = None
        self._handlers = Handlers()
        self._current: deque[Item] = deque()
        """Events that have arrived and that iteration has not delivered."""
        self._handing_over = threading.Lock()
        """Held while events move from the event loop's thread to one of the application's."""
        self._left: dict[str, int] = {}
        """Region → the number of the last `unsubscribe` call that left it."""
        self._leaves = 0
        self._room = threading.BoundedSemaphore(publish_async_max)

    @property
    def name(self) -> str:
        """The name by which subscribers know the sender."""
        return self._client.name

    @property
    def url(self) -> str:
        """The control URL, which other connections use to join the same network."""
        return self._client.url

    def open(self) -> Self:
        """Connect to the network; raises what `gamecast.Client.open` does."""
        if self._loop is not None:
            raise UsageError("a connection opens once: make another one with gamecast.blocking.connect()")
        self._loop = shared_loop.enter()
        try:
            self._wait(self._client.open())
        except BaseException:
            self._leave()
            raise
        return self

    def reconnect(self) -> Self:
        """Close the rest of the connection and open it again; see `gamecast.Client.reconnect`."""
        if self._loop is None:
            self._loop = shared_loop.enter()
        self._wait(self._client.reconnect())
        return self

    def close(self) -> None:
        """End now. Repeating it is harmless."""
        if self._loop is not None:
            try:
                self._wait(self._client.close())
            finally:
                self._leave()

    def drain(self) -> None:
        """Finish pending work first; see `gamecast.Client.drain`."""
        self._wait(self._client.drain())

    def subscribe(
        self,
        *regions: str | Iterable[str],
        since: Since | None = None,
        order: ReplayOrder = "common",
        state: bool = False,
        presence: Mapping[str, Any] | Literal["watch"] | None = None,
    ) -> dict[str, str]:
        """Subscribe to regions; see `gamecast.Client.subscribe`."""
        return self._wait(self._client.subscribe(*regions, since=since, order=order, state=state, presence=presence))

    def present(self, region: str) -> dict[str, Any]:
        """Return who is in a region; see `gamecast.Client.present`. What an iteration has read counts as taken."""

        async def looking() -> dict[str, Any]:
            return self._client.present(region)

        return self._wait(looking())

    def unsubscribe(self, *regions: str | Iterable[str]) -> None:
        """Unsubscribe from regions: after it has returned, none of their events is delivered."""

        left = checked_regions(regions, "unsubscribe")

        async def unsubscribing() -> None:
            await self._client.unsubscribe(left)
            with self._handing_over:
                self._leaves += 1
                self._left.update(dict.fromkeys(left, self._leaves))
                kept = [*_but_of(self._current, lambda region: region in left)]
                self._current.clear()
                self._current.extend(kept)

        self._wait(unsubscribing())

    def _still_subscribed(self, came: tuple[int, list[Item]]) -> list[Item]:
        """Return events without those of regions that another thread has left since they came.

        ``came``: the number of `unsubscribe` calls at that time, and the events. Call it with the lock.
        """
        leaves, items = came
        if leaves == self._leaves:
            return items
        return [*_but_of(items, lambda region: self._left.get(region, 0) > leaves)]

    def declare_overlaps(self, overlaps: Iterable[tuple[str, str]]) -> None:
        """Declare pairs of regions that a subscriber will have at the same time; see `Client.declare_overlaps`."""
        self._wait(self._client.declare_overlaps(overlaps))

    def declare_joint(self, sets: Iterable[tuple[str, ...]]) -> None:
        """Declare sets of regions that events will be published to at once; see `Client.declare_joint`."""
        self._wait(self._client.declare_joint(sets))

    def publish(
        self, region: Regions, payload: Any, *, key: str | None = None, only_if: OnlyIf = NO_CONDITION
    ) -> Receipt:
        """Publish an event; returns when the region's ingress has acknowledged it. See `gamecast.Client.publish`."""
        return self._wait(self._client.publish(region, payload, key=key, only_if=only_if))

    def publish_async(
        self, region: Regions, payload: Any, *, key: str | None = None, only_if: OnlyIf = NO_CONDITION
    ) -> Future[Receipt]:
        """Publish an event without waiting for its receipt; blocks while ``buffer_events_max`` events have none yet.

        An event that can never be published fails in the future, too.
        """
        if not self._room.acquire(blocking=not shared_loop.is_here()):
            raise BufferFull("a callback cannot wait until there is room: publish from a thread of yours")
        try:
            future = self._submit(self._client.publish(region, payload, key=key, only_if=only_if))
        except BaseException:
            self._room.release()
            raise
        future.add_done_callback(lambda _: self._room.release())
        return future

    def publish_nowait(
        self, region: Regions, payload: Any, *, key: str | None = None, only_if: OnlyIf = NO_CONDITION
    ) -> None:
        """Publish an event without a receipt; see `gamecast.Client.publish_nowait`. Returns when it is in the
        buffer."""

        async def casting() -> None:
            self._client.publish_nowait(region, payload, key=key, only_if=only_if)

        self._wait(casting())

    def publish_batch(self, events: Iterable[tuple[Regions, Any]]) -> list[Receipt]:
        """Publish events, (region, payload) each; returns when all have their receipts. See `Client.publish_batch`."""

        async def publishing() -> list[Receipt]:
            return await self._client.publish_batch(events)

        return self._wait(publishing())

    def update(self, region: str, key: str, payload: Any) -> None:
        """Tell others the newest value of a key; see `gamecast.Client.update`."""

        async def updating() -> None:
            self._client.update(region, key, payload)

        self._wait(updating())

    def updates(self) -> list[Update]:
        """Return the newest update of each region, key and sender since the last call; see `gamecast.Client.updates`.

        None while an iteration has events that came before and were not taken.
        """

        async def taking() -> list[Update]:
            return self._client.updates()

        with self._handing_over:
            if self._current:
                return []
        return self._wait(taking())

    def __iter__(self) -> Iterator[Item]:
        """Iterate over events in order, waiting for each; ends when the connection closes."""
        for came in self._coming():
            with self._handing_over:
                self._current.extend(self._still_subscribed(came))
            with suppress(IndexError):  # another thread may iterate, too
                while True:
                    yield self._current.popleft()

    def batches(self) -> Iterator[list[Item]]:
        """Iterate over lists of events, as they become deliverable."""
        for came in self._coming():
            with self._handing_over:
                batch = self._still_subscribed(came)
            if batch:
                yield batch

    def _coming(self) -> Iterator[tuple[int, list[Item]]]:
        """Iterate over the batches that arrive, each with the number of `unsubscribe` calls before it."""
        with self._handing_over:
            left = self._leaves, [*self._current]
            self._current.clear()
        if left[1]:
            yield left
        batches = self._client.batches()

        async def following() -> tuple[int, list[Item]] | None:
            batch = await anext(batches, None)
            return None if batch is None else (self._leaves, batch)

        while self._loop is not None and (came := self._wait(following())) is not None:
            yield came

    def fetch(self, max_events: int = 1_000, timeout: float | None = 0) -> list[Item]:
        """Return the next events in order, none if none arrive within ``timeout`` s; see `gamecast.Client.fetch`."""
        check_take(max_events, timeout)
        taken: list[Item] = []
        with self._handing_over:
            while self._current and len(taken) < max_events:
                taken.append(self._current.popleft())
        if taken:
            return taken

        async def taking() -> tuple[int, list[Item]]:
            items = await self._client.fetch(max_events, timeout)
            return self._leaves, items

        came = self._wait(taking())
        with self._handing_over:
            return self._still_subscribed(came)

    def on(self, region_pattern: str) -> Callable[[SomeHandler], SomeHandler]:
        """Register a handler, a plain function, for the events of the regions that match a pattern; see `run`."""
        return self._handlers.on(region_pattern)

    def on_gap(self, handler: SomeGapHandler) -> SomeGapHandler:
        """Register a handler for gaps; see `run`."""
        return self._handlers.on_gap(handler)

    def on_presence(self, handler: SomePresenceHandler) -> SomePresenceHandler:
        """Register a handler for who arrives and leaves; see `run`."""
        return self._handlers.on_presence(handler)

    def on_caught_up(self, callback: SomeCallback) -> SomeCallback:
        """Register a function that gamecast calls, in its own thread, when a replay has ended; see `Client`.

        The thread that asks for more events waits meanwhile.
        """
        return self._client.on_caught_up(callback)

    def on_status(self, callback: SomeCallback) -> SomeCallback:
        """Register a function that gamecast calls, in its own thread, with the `Status` whenever it changes."""
        return self._client.on_status(callback)

    def on_publish_error(self, callback: SomeCallback) -> SomeCallback:
        """Register a function that gamecast calls, in its own thread, for events of `publish_nowait` that failed."""
        return self._client.on_publish_error(callback)

    @property
    def status(self) -> Status:
        """The status of the connection."""
        return self._client.status

    def run(self) -> None:
        """Pass events and gaps to the handlers, in the calling thread, one by one, until the connection closes."""
        for item in self:
            for handler in self._handlers.of(item):
                if handler(item) is not None:
                    raise UsageError("a handler of a blocking connection is a plain function, not a coroutine function")

    def recording(self) -> RecordingStatistics | None:
        """Return the state of the recording; see `gamecast.Client.recording`."""
        return self._client.recording()

    def plan(self) -> Plan | None:
        """Return the network's newest plan."""
        return self._wait(self._client.plan())

    def statistics(self) -> Statistics:
        """Return a snapshot of the counters."""
        return self._client.statistics()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close; without an exception, publish first what is still buffered."""
        if self._loop is not None:
            try:
                self._wait(self._client.__aexit__(kind, error, trace))
            finally:
                self._leave()

    def _wait(self, call: Coroutine[Any, Any, Result]) -> Result:
        if shared_loop.is_here():
            call.close()
            raise UsageError(
                "a callback of a future runs where the answers come in, and would wait for itself: use publish_async, "
                "or a thread of yours"
            )
        return self._submit(call).result()

    def _submit(self, call: Coroutine[Any, Any, Result]) -> Future[Result]:
        if self._loop is None:
            call.close()
            raise NotConnected
        if not shared_loop.carries(self._loop):
            call.close()
            raise UsageError("this connection is of the process that opened it, and this is a fork: open another one")
        return asyncio.run_coroutine_threadsafe(call, self._loop)

    def _leave(self) -> None:
        if self._loop is not None:
            loop, self._loop = self._loop, None
            shared_loop.leave(loop)


def _but_of(items: Iterable[Item], is_left: Callable[[str], bool]) -> Iterator[Item]:
    """Yield what is not of regions that were left only."""
    for item in items:
        if isinstance(item, JointEvent):
            stays: Item | None = item.within([region for region in item.regions if not is_left(region)])
        elif isinstance(item, State):
            stays = item.without([region for region in item.values if is_left(region)])
        else:
            stays = None if is_left(item.region) else item
        if stays is not None:
            yield stays
