"""The same connection without ``await``: for threaded servers, scripts and gevent.

An event loop in a thread of its own carries the connection; calls hand over to it and wait. Safe to use from several
threads.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from gamecast import client
from gamecast.configuration import LimitOptions, WhenFull
from gamecast.event import Event, Gap, Receipt, Statistics
from sequencing.errors import NotConnected, UsageError
from sequencing.plan import Ordering, Plan

Result = TypeVar("Result")


def connect(
    url: str | None = None,
    *,
    name: str | None = None,
    ordering: Ordering = "acyclic",
    when_full: WhenFull = "wait",
    **limits: Unpack[LimitOptions],
) -> BlockingCast:
    """Return a connection; it opens with ``with``, or with ``open()``. Arguments as `gamecast.connect`."""
    return BlockingCast(client.connect(url, name=name, ordering=ordering, when_full=when_full, **limits))


class BlockingCast:
    """A `gamecast.Cast` whose calls block the calling thread; they raise the same errors."""

    def __init__(self, cast: client.Cast) -> None:
        """Use `connect`."""
        self._cast = cast
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def name(self) -> str:
        """By which subscribers know the sender."""
        return self._cast.name

    @property
    def url(self) -> str:
        """The control URL, by which other connections join the same network."""
        return self._cast.url

    def open(self) -> Self:
        """Start the thread and reach the network; raises what `gamecast.Cast.open` does."""
        if self._loop is not None:
            raise UsageError("a connection opens once: make another one with gamecast.blocking.connect()")
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"gamecast {self.name}", daemon=True)
        self._thread.start()
        try:
            self._wait(self._cast.open())
        except BaseException:
            self._stop()
            raise
        return self

    def close(self) -> None:
        """End now. Harmless when repeated."""
        if self._thread is not None:
            self._wait(self._cast.close())
            self._stop()

    def drain(self) -> None:
        """Finish first; see `gamecast.Cast.drain`."""
        self._wait(self._cast.drain())

    def subscribe(self, *regions: str) -> None:
        """Follow regions."""
        self._wait(self._cast.subscribe(*regions))

    def unsubscribe(self, *regions: str) -> None:
        """Follow these regions no more."""
        self._wait(self._cast.unsubscribe(*regions))

    def publish(self, region: str, payload: Any) -> Receipt:
        """Publish an event; returns when the region's ingress has it."""
        return self._wait(self._cast.publish(region, payload))

    def publish_soon(self, region: str, payload: Any) -> Future[Receipt]:
        """Publish an event without waiting; what can never be published fails in the future, too."""
        return self._submit(self._cast.publish(region, payload))

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
        try:
            self._wait(self._cast.__aexit__(kind, error, trace))
        finally:
            self._stop()

    def _wait(self, call: Coroutine[Any, Any, Result]) -> Result:
        return self._submit(call).result()

    def _submit(self, call: Coroutine[Any, Any, Result]) -> Future[Result]:
        if self._loop is None or self._thread is None:
            call.close()
            raise NotConnected
        return asyncio.run_coroutine_threadsafe(call, self._loop)

    def _stop(self) -> None:
        if self._loop is not None and self._thread is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._thread = None
            self._loop.close()
