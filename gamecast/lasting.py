"""A client that stays: when its session has ended, it connects again and goes on where it was."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from adapters.backoff import CAP_S
from gamecast.client.client import Client
from gamecast.client.configuration import configured
from gamecast.client.keys import NO_CONDITION, OnlyIf
from gamecast.event import Event, Gap, Item, Receipt, State
from sequencing.errors import (
    GamecastError,
    NetworkRestarted,
    NotConnected,
    SessionExpired,
    Superseded,
    UnknownPosition,
    UnorderedHistory,
)

logger = logging.getLogger("gamecast.lasting")

ENDED = NetworkRestarted, SessionExpired, Superseded, NotConnected
"""What ends a session. Nothing was published then, so that the same call can be made in the next one."""
PAUSE_S, PAUSE_S_MAX = 0.1, 2.0
"""Between two attempts to connect: short at first, because a Redis restarts within a second."""
REOPEN_S_MAX = 60.0
"""How long a call waits for the next session."""
UNKNOWN = 0
"""The epoch of a `Gap` of which nothing is known, when a network was lost. It has been logged, once for all regions."""
REJOIN_S = CAP_S + 1.0
"""How long events wait after a restart that lost the network: others look for Redis once in `CAP_S`, and then join.

Who they are is not known any more, so there is nothing else to wait for.
"""


class LastingClient:
    """One client of one event loop, for programs that only know rooms and messages.

    `gamecast.Client` leaves it to the application what to do when a session ends. Here it connects again, and resumes
    each region after the last event that was taken from it. A network that has lost its data begins again: then a `Gap`
    of each region comes, and what is published waits for `REJOIN_S`, so that other clients can join again, too. Events
    that have waited are published in the order of the calls. Something must iterate over `items` all the time, which
    also notices that a session has ended.
    """

    def __init__(self, url: str | None, **options: Any) -> None:
        """As `gamecast.connect`; raises `UsageError` and its kinds."""
        self._client = Client(configured(url, **options))
        self._positions: dict[str, str] = {}
        """Region → the position after which its next event comes."""
        self._with_state: set[str] = set()
        self._is_closed = False
        self._is_up = asyncio.Event()
        """Another one for each session; set while there is one."""
        self._reopening: asyncio.Task[None] | None = None
        self._holding: asyncio.TimerHandle | None = None
        """While events wait for other clients to join again."""
        self._lost: dict[str, str] = {}
        """Region whose events may be lost → why; until `items` has told it."""
        self._numbers = itertools.count()
        self._line = _Line(self._is_released)

    @property
    def name(self) -> str:
        """The name by which subscribers know the sender."""
        return self._client.name

    @property
    def url(self) -> str:
        """The control URL, by which other connections join the same network."""
        return self._client.url

    async def open(self) -> None:
        """Connect; raises as `Client.open`."""
        await self._client.open()
        self._is_up.set()

    async def close(self) -> None:
        """End now; `items` ends, too. Repeating it is harmless."""
        self._is_closed = True
        if self._holding is not None:
            self._holding.cancel()
        if self._reopening is not None:
            self._reopening.cancel()
            await asyncio.gather(self._reopening, return_exceptions=True)
        self._is_up.set()
        self._release()
        await self._client.close()

    async def subscribe(self, *regions: str, state: bool = False) -> None:
        """As `Client.subscribe`: returns when everything that is published from now on will be delivered."""
        while True:
            session = await self._session()
            try:
                for region, position in (await self._client.subscribe(*regions, state=state)).items():
                    self._positions.setdefault(region, position)
            except ENDED as error:
                await self._next(session, error)
            else:
                if state:
                    self._with_state.update(regions)
                return

    async def unsubscribe(self, *regions: str) -> None:
        """Follow these regions no more."""
        for region in regions:
            self._positions.pop(region, None)
            self._with_state.discard(region)
        try:
            await self._client.unsubscribe(*regions)
        except ENDED:
            if self._is_closed:
                raise

    async def publish(
        self, region: str, payload: Any, *, key: str | None = None, only_if: OnlyIf = NO_CONDITION
    ) -> Receipt:
        """As `Client.publish`, and in the next session if this one has ended."""
        number, session, ended = next(self._numbers), self._is_up, None
        while True:
            if ended is not None or self._line or not self._is_released():
                session = await self._turn(number, session, ended)
            try:
                return await self._client.publish(region, payload, key=key, only_if=only_if)
            except ENDED as error:
                ended = error

    async def _turn(self, number: int, session: asyncio.Event, ended: GamecastError | None) -> asyncio.Event:
        """Return the session in which an event is to be published, when those that were called before it have been."""
        place = self._line.join(number)
        try:
            if ended is not None:
                await self._next(session, ended)
            async with self._patience():
                await place
        finally:
            self._line.leave(number)  # who is next begins after this call has
        return self._is_up

    def _is_released(self) -> bool:
        """Return whether events need not wait."""
        return self._reopening is None and self._holding is None

    def _release(self) -> None:
        self._holding = None
        self._line.advance()

    async def caught_up(self, region: str, position: str) -> None:
        """As `Client.caught_up`, in this session."""
        await self._client.caught_up(region, position)

    async def items(self) -> AsyncIterator[Item]:
        """Iterate over events, gaps and states in order, over all sessions, until it is closed."""
        while not self._is_closed:
            session, ended = await self._session(), None
            for gap in self._take_lost():
                yield gap
            try:
                async for batch in self._client.batches():
                    for item in batch:
                        if session is not self._is_up:
                            break  # another call has connected again, since when this comes again
                        self._note(item)
                        yield item
                    if session is not self._is_up:
                        break
            except GamecastError as error:
                ended = error
            if not self._is_closed:
                self._renew(session, ended)

    def _note(self, item: Item) -> None:
        """Note up to where the application has a region, before an item is yielded: the next session begins there."""
        if isinstance(item, State):
            return
        positions = item.positions if isinstance(item, Event) else {item.region: item.position}
        for region, position in positions.items():
            if position is not None and region in self._positions:
                self._positions[region] = position

    def _take_lost(self) -> list[Gap]:
        gaps = [
            Gap(region, UNKNOWN, 0, 0, reason) for region, reason in self._lost.items() if region in self._positions
        ]
        self._lost.clear()
        return gaps

    async def _session(self) -> asyncio.Event:
        """Return the session that there is, if need be after waiting for it."""
        async with self._patience():
            while self._reopening is not None:
                await self._is_up.wait()
        return self._is_up

    @asynccontextmanager
    async def _patience(self) -> AsyncIterator[None]:
        """Wait for `REOPEN_S_MAX` at most. Raises `NotConnected` then."""
        try:
            async with asyncio.timeout(REOPEN_S_MAX):
                yield
        except TimeoutError:
            raise NotConnected(f"{self.name} could not connect again within {REOPEN_S_MAX:g} s") from None

    async def _next(self, session: asyncio.Event, ended: GamecastError) -> None:
        """Return when there is another session than this one. Raises `NotConnected` if it is closed, or that late."""
        if self._is_closed:
            raise NotConnected
        await asyncio.sleep(PAUSE_S)
        # Nothing may iterate over the items, or what does may wait for this very call.
        self._renew(session, ended)
        await self._session()
        if self._is_closed:
            raise NotConnected

    def _renew(self, session: asyncio.Event, ended: GamecastError | None) -> None:
        """Begin to connect again, unless another call has done so since this session."""
        if session is self._is_up and self._reopening is None and not self._is_closed:
            if ended is not None:
                logger.warning("%s: %s; connecting again", self.name, ended)
            self._is_up = asyncio.Event()
            # A task of its own: a call that is cancelled must not leave the next session without its regions.
            self._reopening = asyncio.create_task(self._reopen(ended), name="gamecast reopening")

    async def _reopen(self, ended: GamecastError | None) -> None:
        pause_s = PAUSE_S
        try:
            while not self._is_closed:
                if isinstance(ended, NetworkRestarted):
                    self._begin_again(ended)
                try:
                    await self._client.reconnect()
                    await self._resubscribe()
                except GamecastError as error:
                    ended = error
                    logger.warning("%s cannot connect again: %s", self.name, error)
                    await asyncio.sleep(pause_s)
                    pause_s = min(2 * pause_s, PAUSE_S_MAX)
                else:
                    break
        finally:
            self._reopening = None
            self._is_up.set()
            self._line.advance()

    def _begin_again(self, error: NetworkRestarted) -> None:
        """Forget the network that was lost, and hold what is published until others have noticed it, too."""
        self._positions = dict.fromkeys(self._positions, "")
        self._lost.update(dict.fromkeys(self._positions, str(error)))
        if self._holding is not None:
            self._holding.cancel()
        self._holding = asyncio.get_running_loop().call_later(REJOIN_S, self._release)

    async def _resubscribe(self) -> None:
        stateful = [region for region in self._positions if region in self._with_state]
        if stateful:
            await self._client.subscribe(*stateful, state=True)
        others = {region: at for region, at in self._positions.items() if region not in self._with_state}
        since = {region: at for region, at in others.items() if at}
        if since:
            try:
                await self._client.subscribe(*since, since=since)
            except (UnknownPosition, UnorderedHistory) as error:
                logger.warning("%s cannot resume, and goes on with what is published now: %s", self.name, error)
                self._lost.update(dict.fromkeys(since, str(error)))
                since = {}
        if fresh := [region for region in others if region not in since]:
            self._positions.update(await self._client.subscribe(*fresh))


class _Line:
    """Calls that wait, each with a number: the lowest goes first, and the next one when it has begun."""

    def __init__(self, is_released: Callable[[], bool]) -> None:
        self._is_released = is_released
        self._places: dict[int, asyncio.Future[None]] = {}
        self._order: list[int] = []
        """A heap of their numbers, and of some that have left."""

    def __bool__(self) -> bool:
        return bool(self._places)

    def join(self, number: int) -> asyncio.Future[None]:
        """Return what is done when it is this call's turn."""
        place = self._places[number] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._order, number)
        self.advance()
        return place

    def leave(self, number: int) -> None:
        """Let the next one go."""
        del self._places[number]
        self.advance()

    def advance(self) -> None:
        """Let the first one go, if they need not wait."""
        while self._order and self._order[0] not in self._places:
            heapq.heappop(self._order)
        if self._order and self._is_released() and not (place := self._places[self._order[0]]).done():
            place.set_result(None)
