"""The same connection without ``await``: for threaded servers, scripts and gevent.

An event loop in a thread of its own carries the connections; calls hand over to it and wait. Safe to use from several
threads.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterable, Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from gamecast.client import cast as client
from gamecast.client.configuration import LimitOptions, Limits, WhenBehind, WhenFull
from gamecast.client.history import Since
from gamecast.event import Event, Gap, Receipt, Statistics
from gamecast.recording.options import Recording
from sequencing.errors import BufferFull, NotConnected, UsageError
from sequencing.plan import Ordering, Plan

Result = TypeVar("Result")


def connect(
    url: str | None = None,
    *,
    name: str | None = None,
    ordering: Ordering = "acyclic",
    when_full: WhenFull = "wait",
    when_behind: WhenBehind = "wait",
    routes: Mapping[str, str] | None = None,
    record: str | Path | Recording | None = None,
    **limits: Unpack[LimitOptions],
) -> BlockingCast:
    """Return a connection; it opens with ``with``, or with ``open()``. Arguments as `gamecast.connect`."""
    cast = client.connect(
        url,
        name=name,
        ordering=ordering,
        when_full=when_full,
        when_behind=when_behind,
        routes=routes,
        record=record,
        **limits,
    )
    return BlockingCast(cast, Limits(**limits).buffer_events_max)


class BlockingCast:
    """A `gamecast.Cast` whose calls block the calling thread; they raise the same errors."""

    def __init__(self, cast: client.Cast, publish_soon_max: int) -> None:
        """Use `connect`."""
        self._cast = cast
        self._loop: asyncio.AbstractEventLoop | None = None
        self._room = threading.BoundedSemaphore(publish_soon_max)

    @property
    def name(self) -> str:
        """By which subscribers know the sender."""
        return self._cast.name

    @property
    def url(self) -> str:
        """The control URL, by which other connections join the same network."""
        return self._cast.url

    def open(self) -> Self:
        """Reach the network; raises what `gamecast.Cast.open` does."""
        if self._loop is not None:
            raise UsageError("a connection opens once: make another one with gamecast.blocking.connect()")
        self._loop = _loop.enter()
        try:
            self._wait(self._cast.open())
        except BaseException:
            self._leave()
            raise
        return self

    def close(self) -> None:
        """End now. Harmless when repeated."""
        if self._loop is not None:
            try:
                self._wait(self._cast.close())
            finally:
                self._leave()

    def drain(self) -> None:
        """Finish first; see `gamecast.Cast.drain`."""
        self._wait(self._cast.drain())

    def subscribe(self, *regions: str, since: Since | None = None) -> dict[str, str]:
        """Follow regions; see `gamecast.Cast.subscribe`."""
        return self._wait(self._cast.subscribe(*regions, since=since))

    def unsubscribe(self, *regions: str) -> None:
        """Follow these regions no more."""
        self._wait(self._cast.unsubscribe(*regions))

    def expect(self, overlaps: Iterable[tuple[str, str]]) -> None:
        """Declare pairs of regions that some subscribers will have both of; see `Cast.expect`."""
        self._wait(self._cast.expect(overlaps))

    def publish(self, region: str, payload: Any) -> Receipt:
        """Publish an event; returns when the region's ingress has it."""
        return self._wait(self._cast.publish(region, payload))

    def publish_soon(self, region: str, payload: Any) -> Future[Receipt]:
        """Publish an event without waiting for its receipt; blocks while ``buffer_events_max`` have none yet.

        What can never be published fails in the future, too.
        """
        if not self._room.acquire(blocking=not _loop.is_here()):
            raise BufferFull("a callback cannot wait until there is room: publish from a thread of yours")
        try:
            future = self._submit(self._cast.publish(region, payload))
        except BaseException:
            self._room.release()
            raise
        future.add_done_callback(lambda _: self._room.release())
        return future

    def publish_all(self, events: Iterable[tuple[str, Any]]) -> list[Receipt]:
        """Publish events, (region, payload) each; returns when all have their receipts. See `Cast.publish_all`."""

        async def publishing() -> list[Receipt]:
            return await self._cast.publish_all(events)

        return self._wait(publishing())

    def __iter__(self) -> Iterator[Event | Gap]:
        """Iterate over events in order, waiting for each; ends when the connection closes."""
        for batch in self.batches():
            yield from batch

    def batches(self) -> Iterator[list[Event | Gap]]:
        """Iterate over lists of events, as they become deliverable."""
        batches = self._cast.batches()

        async def following() -> list[Event | Gap] | None:
            return await anext(batches, None)

        while (batch := self._wait(following())) is not None:
            yield batch

    def plan(self) -> Plan | None:
        """Return the network's newest plan."""
        return self._wait(self._cast.plan())

    def statistics(self) -> Statistics:
        """Return a snapshot of the counters."""
        return self._cast.statistics()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close; without an exception, publish first what is still buffered."""
        if self._loop is not None:
            try:
                self._wait(self._cast.__aexit__(kind, error, trace))
            finally:
                self._leave()

    def _wait(self, call: Coroutine[Any, Any, Result]) -> Result:
        if _loop.is_here():
            call.close()
            raise UsageError(
                "a callback of a future runs where the answers come in, and would wait for itself: use publish_soon, "
                "or a thread of yours"
            )
        return self._submit(call).result()

    def _submit(self, call: Coroutine[Any, Any, Result]) -> Future[Result]:
        if self._loop is None:
            call.close()
            raise NotConnected
        return asyncio.run_coroutine_threadsafe(call, self._loop)

    def _leave(self) -> None:
        if self._loop is not None:
            self._loop = None
            _loop.leave()


class _SharedLoop:
    """One event loop in one thread for all blocking connections of the process, while there are any.

    One, because connections to a ``memory://`` network must live in one loop.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._running: tuple[asyncio.AbstractEventLoop, threading.Thread] | None = None

    def enter(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._running is None:
                loop = asyncio.new_event_loop()
                self._running = loop, threading.Thread(target=loop.run_forever, name="gamecast", daemon=True)
                self._running[1].start()
            self._users += 1
            return self._running[0]

    def is_here(self) -> bool:
        """Return whether this is the loop's own thread."""
        return self._running is not None and self._running[1] is threading.current_thread()

    def leave(self) -> None:
        with self._lock:
            self._users -= 1
            if not self._users and self._running is not None:
                (loop, thread), self._running = self._running, None
                loop.call_soon_threadsafe(loop.stop)
                thread.join()
                loop.close()


_loop = _SharedLoop()
