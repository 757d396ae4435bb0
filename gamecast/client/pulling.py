"""Pulling: what the application asks for next, by `fetch`, iteration or batches, from several tasks at once."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from typing import NamedTuple, Self

from adapters.places import Position
from gamecast.arguments import check_take
from gamecast.client.decoding import Place
from gamecast.client.incoming import Incoming
from gamecast.client.watching import Callbacks
from gamecast.event import Event, Item, JointEvent, State
from sequencing.errors import NotConnected


class Puller:
    """Hands the batches of a connection to the tasks that ask for them; what one leaves, the next gets."""

    def __init__(self, incoming: Incoming, current: deque[Item], caught_up: Callbacks) -> None:
        """``current``: what was read, and is delivered next; ``caught_up``: hears of replays that have ended."""
        self._incoming = incoming
        self._current = current
        self._caught_up = caught_up
        self._is_reading = False
        self._has_read = asyncio.Event()
        """Set when a read is over."""
        self._coming: asyncio.Task[list[Item] | None] | None = None
        """The next batch, where `fetch` did not wait for it."""
        self._taking: list[list[Item]] = []
        """What calls of `fetch` have and have not returned yet."""
        self._ended_replays: list[frozenset[str]] = []
        """The regions of replays whose last events the application may still be looking at."""
        self._asking = 0
        """How many calls wait for events and have none to return."""
        self._awaited: list[_Awaited] = []
        incoming.on_caught_up = self._replay_ended
        incoming.on_end = self._look_for_awaited

    async def close(self) -> None:
        """Break off a read that goes on for the next call; for calls that wait for it, that is the end."""
        if self._coming is not None:
            self._coming.cancel()
            await asyncio.wait((self._coming,))

    @property
    def untaken_items(self) -> int:
        """How many items were decoded, and not given to the application."""
        return sum(map(len, self._taking)) + len(self._current) + len(self._ahead())

    def untaken(self) -> Iterator[Item]:
        """Yield what was decoded, and not given to the application, in order."""
        for taken in self._taking:
            yield from taken
        yield from self._current
        yield from self._ahead()

    def _ahead(self) -> Sequence[Item]:
        """Return what a read has found that no call has taken yet."""
        coming = self._coming
        return (_found_by(coming) or ()) if coming is not None and coming.done() and not _has_failed(coming) else ()

    async def caught_up(self, region: str, position: Position) -> None:
        """See `Client.caught_up`."""
        if self._incoming.has_passed(region, position) and self._asking and not self._current:
            return
        awaited = _Awaited(region, position, asyncio.get_running_loop().create_future())
        self._awaited.append(awaited)
        try:
            await awaited.reached
        finally:
            self._awaited = [each for each in self._awaited if each is not awaited]

    def _look_for_awaited(self) -> None:
        """Tell those who wait for a position, as the application has had what it was given, and asks for more."""
        for region, position, reached in self._awaited:
            if not reached.done():
                try:
                    if self._incoming.has_passed(region, position):
                        reached.set_result(None)
                except Exception as error:  # noqa: BLE001 - whatever it is, who waits must hear of it
                    reached.set_exception(error)

    def forget(self, regions: Collection[str]) -> None:
        """Drop what was read of regions."""
        if self._coming is not None and self._coming.done() and not _has_failed(self._coming):
            self._current.extend(_found_by(self._coming) or ())
            self._coming = None
        left = _Left(regions)
        for taken in self._taking:
            taken[:] = left.without(taken)
        kept = [*left.without(self._current)]
        self._current.clear()
        self._current.extend(kept)
        self._incoming.not_taken(left.first, left.kept, left.dropped)
        self._ended_replays = [staying for ended in self._ended_replays if (staying := ended.difference(regions))]
        self._look_for_awaited()

    async def fetch(self, max_events: int, timeout: float | None) -> list[Item]:  # noqa: ASYNC109
        """See `Client.fetch`."""
        check_take(max_events, timeout)
        incoming, current, taken = self._incoming, self._current, list[Item]()
        deadline = None if timeout is None else time.monotonic() + timeout
        if self._awaited and not current:
            self._look_for_awaited()
        self._taking.append(taken)
        try:
            while True:
                if self._ended_replays and not current:
                    if taken:
                        return taken  # what comes next is live: the application hears of that before
                    self._report_ended_replays()
                while current and len(taken) < max_events:
                    taken.append(current.popleft())
                if len(taken) == max_events:
                    return taken
                if self._coming is None and incoming.has_next and not self._is_reading:
                    asks = not taken
                    self._asking += asks
                    try:
                        batch = await self._read()
                    finally:
                        self._asking -= asks
                else:
                    # A read of history that a tick did not wait for goes on until the next one.
                    coming = self._coming
                    if coming is None:
                        coming = self._coming = asyncio.create_task(self._read(), name="gamecast fetch")
                    had_some = bool(taken)
                    left_s = None if deadline is None else max(0.0, deadline - time.monotonic())
                    await (self._wait_for(coming, left_s) if not had_some else asyncio.wait((coming,), timeout=0))
                    if self._coming is not coming:
                        continue  # another task has it, and may have left something
                    if had_some and not taken and not coming.done() and (left_s is None or left_s > 0):
                        continue  # all of it was of regions that another task has unsubscribed from
                    if not coming.done() or (taken and _has_failed(coming)):
                        return taken
                    self._coming = None
                    batch = _found_by(coming)
                if batch is None:
                    if not taken:
                        raise NotConnected("the connection is closed, and all that came before has been taken")
                    return taken
                current.extend(batch)
        except BaseException:
            current.extendleft(reversed(taken))
            raise
        finally:
            # By identity: lists compare by what they have.
            self._taking = [each for each in self._taking if each is not taken]

    async def next_batch(self) -> list[Item] | None:
        """Return what others have left, or else what comes next; None at the end."""
        if self._awaited and not self._current:
            self._look_for_awaited()
        while not self._current:
            if self._ended_replays:
                self._report_ended_replays()
            coming = self._coming
            if coming is None:
                self._asking += 1
                try:
                    batch = await self._read()
                finally:
                    self._asking -= 1
            else:
                await self._wait_for(coming, None)
                if self._coming is not coming:
                    continue  # another task has it, and may have left something
                self._coming = None
                batch = _found_by(coming)
            if batch is None or batch:
                return batch
        left = [*self._current]
        self._current.clear()
        return left

    async def _read(self) -> list[Item] | None:
        """Return what comes next, None at the end; nothing where something is left by the time of one's turn.

        Only one task at a time reads history. What a task leaves comes before all that is read after it.
        """
        while self._is_reading:
            self._has_read.clear()
            await self._has_read.wait()
        self._is_reading = True
        try:
            return [] if self._current else await self._incoming.next_batch()
        finally:
            self._is_reading = False
            self._has_read.set()

    async def _wait_for(self, coming: asyncio.Task[list[Item] | None], timeout_s: float | None) -> None:
        """Wait for the next batch, for a call that has nothing to return yet."""
        self._asking += 1
        try:
            await asyncio.wait((coming,), timeout=timeout_s)
        finally:
            self._asking -= 1

    def _replay_ended(self, regions: frozenset[str]) -> None:
        """Report that a replay has ended, at once if its events have been returned and the application asks for more.

        `fetch` reads ahead of what it returns: then the next call reports it.
        """
        self._ended_replays.append(regions)
        if self._asking:
            self._report_ended_replays()

    def _report_ended_replays(self) -> None:
        ended, self._ended_replays = self._ended_replays, []
        for regions in ended:
            self._caught_up.tell(regions)


def _has_failed(coming: asyncio.Task[list[Item] | None]) -> bool:
    """Return whether a read that is over has raised an error."""
    return not coming.cancelled() and coming.exception() is not None


def _found_by(coming: asyncio.Task[list[Item] | None]) -> list[Item] | None:
    """Return what a read that is over has found; None at the end, and if closing broke it off. Raises its error."""
    return None if coming.cancelled() else coming.result()


class _Left:
    """Drops what was read of regions that are left, and was not taken: an event of others, too, stays as one of
    those."""

    def __init__(self, regions: Collection[str]) -> None:
        self._regions = regions
        self.first: dict[str, Position] = {}
        """Region → the position of its first event that was not taken."""
        self.kept: list[Place] = []
        """Where the events that stay are in the regions that are left."""
        self.dropped: list[Place] = []
        """Where the events of several regions are that do not."""

    def without(self, events: Iterable[Item]) -> Iterator[Item]:
        """Yield what stays, in order."""
        for event in events:
            if isinstance(event, JointEvent):
                places = [(region, (event.epoch, number)) for region, number in event.everywhere]
                stays = event.within([region for region in event.regions if region not in self._regions])
                for region, position in places:
                    if region in self._regions:
                        self.first.setdefault(region, position)
                if stays is not None:
                    self.kept += [(region, place) for region, place in places if region in self._regions]
                    yield stays
                else:
                    self.dropped += places
            elif isinstance(event, State):
                if (state := event.without(self._regions)) is not None:
                    yield state
            elif event.region not in self._regions:
                yield event
            elif isinstance(event, Event):
                self.first.setdefault(event.region, (event.epoch, event.sequence))


class _Awaited(NamedTuple):
    """Somebody waits until a position of a region was given to the application."""

    region: str
    position: Position
    reached: asyncio.Future[None]


class Batches:
    """An async iterator over lists of events; cancelling a call takes no event with it."""

    def __init__(self, next_batch: Callable[[], Awaitable[list[Item] | None]]) -> None:
        """Use `Client.batches`."""
        self._next_batch = next_batch

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> list[Item]:
        """Return the next events; ends when the connection closes."""
        batch = await self._next_batch()
        if batch is None:
            raise StopAsyncIteration
        return batch
