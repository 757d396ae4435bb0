"""A client that stays: when its session has ended, it connects again and goes on where it was."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

from gamecast.client.client import Client
from gamecast.client.configuration import configured
from gamecast.client.keys import NO_CONDITION, OnlyIf
from gamecast.event import Event, Item, Receipt, State
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


class LastingClient:
    """One client of one event loop, for programs that only know rooms and messages.

    `gamecast.Client` leaves it to the application what to do when a session ends. Here it connects again, and resumes
    each region after the last event that was taken from it. A network that has lost its data begins again. Something
    must iterate over `items` all the time, which also notices that a session has ended.
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
        self._renewing = asyncio.Lock()

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
        self._is_up.set()
        await self._client.close()

    async def subscribe(self, *regions: str, state: bool = False) -> None:
        """As `Client.subscribe`: returns when everything that is published from now on will be delivered."""
        while True:
            session = self._is_up
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
        while True:
            session = self._is_up
            try:
                return await self._client.publish(region, payload, key=key, only_if=only_if)
            except ENDED as error:
                await self._next(session, error)

    async def caught_up(self, region: str, position: str) -> None:
        """As `Client.caught_up`, in this session."""
        await self._client.caught_up(region, position)

    async def items(self) -> AsyncIterator[Item]:
        """Iterate over events, gaps and states in order, over all sessions, until it is closed."""
        while not self._is_closed:
            session, ended = self._is_up, None
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
                await self._renew(session, ended)

    def _note(self, item: Item) -> None:
        if isinstance(item, State):
            return
        positions = item.positions if isinstance(item, Event) else {item.region: item.position}
        for region, position in positions.items():
            if position is not None and region in self._positions:
                self._positions[region] = position

    async def _next(self, session: asyncio.Event, ended: GamecastError) -> None:
        """Return when there is another session than this one. Raises `NotConnected` if it is closed, or that late."""
        if self._is_closed:
            raise NotConnected
        await asyncio.sleep(PAUSE_S)
        try:
            async with asyncio.timeout(REOPEN_S_MAX):
                # Nothing may iterate over the items, or what does may wait for this very call.
                await self._renew(session, ended)
                await self._is_up.wait()
        except TimeoutError:
            raise NotConnected(f"{self.name} could not connect again within {REOPEN_S_MAX:g} s") from None
        if self._is_closed:
            raise NotConnected

    async def _renew(self, session: asyncio.Event, ended: GamecastError | None) -> None:
        """Connect again, unless another call has done so since this session."""
        async with self._renewing:
            if session is self._is_up and not self._is_closed:
                if ended is not None:
                    logger.warning("%s: %s; connecting again", self.name, ended)
                await self._reopen(ended)

    async def _reopen(self, ended: GamecastError | None) -> None:
        self._is_up = asyncio.Event()
        pause_s = PAUSE_S
        if isinstance(ended, NetworkRestarted):
            self._positions = dict.fromkeys(self._positions, "")
        while not self._is_closed:
            try:
                await self._client.reconnect()
                await self._resubscribe()
            except GamecastError as error:
                if isinstance(error, NetworkRestarted):
                    self._positions = dict.fromkeys(self._positions, "")
                logger.warning("%s cannot connect again: %s", self.name, error)
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, PAUSE_S_MAX)
            else:
                break
        if self._is_closed:
            await self._client.close()
        self._is_up.set()

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
                since = {}
        if fresh := [region for region in others if region not in since]:
            self._positions.update(await self._client.subscribe(*fresh))
