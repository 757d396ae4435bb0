"""A network in Redis as one connection sees it, alone or together with others of its process."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from adapters.network import Sender, UpdateUser
from adapters.redis.announced import Told, Viewpoint
from adapters.redis.controlclient import ControlClient
from adapters.redis.egressreader import EgressReader
from adapters.redis.ingress import IngressLane
from adapters.redis.news import Place, place_of
from sequencing.errors import Superseded, superseded_message
from sequencing.plan import Plan
from sequencing.record import Record, Request

if TYPE_CHECKING:
    from adapters.redis.network import RedisNetwork
    from adapters.redis.updates import HubPort

BEAT_WITHIN_S = 0.25
"""Heartbeats that come so soon after one another are sent together, and from then on at the same time."""


class RedisView(ControlClient):
    """A network as one connection sees it. Implements `adapters.network.Network`."""

    def __init__(self, network: RedisNetwork, *, is_alone: bool) -> None:
        """``is_alone``: whether the process's access opens and closes with this connection."""
        self._network = network
        self._is_alone = is_alone
        self.changed = asyncio.Event()
        """Cleared while this connection waits for news."""
        self.changed.set()
        self._viewpoint = Viewpoint()
        self._wants_newest = False
        """Whether it is to hear the newest plan, although that did not concern it."""
        self._passed: Place = 0, 0
        self._restarts = 0
        self._stopping = False

    @property
    def url(self) -> str:
        """See `Network.url`."""
        return self._network.url

    async def open(self) -> None:
        """See `Network.open`."""
        if self._is_alone:
            await self._network.open()
        super().__init__(self._network.control, self._network.turn)
        if not self._is_alone:
            await super().open()

    @property
    def name(self) -> str:
        """The name of the connection."""
        return self._name

    @property
    def connection(self) -> int:
        """Its incarnation."""
        return self._connection

    @property
    def cannot_lead(self) -> Exception | None:
        """See `ControlClient`."""
        return self._network.cannot_lead

    async def introduce(self, name: str) -> int:
        """See `Network.introduce`."""
        connection = await super().introduce(name)
        self._network.stand_by()  # raises where it is closed: what follows would go on without it
        self._restarts = len(self._network.news.restarts)
        self._viewpoint.belong_to(name, connection)
        return connection

    async def place(self, regions: frozenset[str]) -> None:
        """See `Network.place`."""
        self._viewpoint.await_places(regions)
        self._network.news.await_places(self)
        newest = self._network.news.after(None)
        placed = regions - newest[-1].plan.without_place(regions) if newest else frozenset[str]()
        if placed:
            # They were given one in an announcement that did not concern this connection then.
            self._wants_newest = True
            self.wake(self._network.news.latest)
        if regions - placed:
            await super().place(regions - placed)

    async def join(self, request: Request) -> bool:
        """See `Network.join`."""
        async with self._speaking():
            is_granted = await self._network.joins.ask((self._name, request))
            self._said = request.said
            return is_granted

    async def beat(self, *, at_once: bool = True, doing: str = "") -> bool:
        """See `Network.beat`."""
        async with self._speaking():
            within_s = 0.0 if at_once else BEAT_WITHIN_S
            return await self._network.beats.ask((self._name, self._connection, self._said, doing), within_s=within_s)

    async def listed(self) -> Record | None:
        """See `Network.listed`."""
        return await self._network.listed()

    async def close(self) -> None:
        """See `Network.close`: what is shared with others stays open."""
        await self.stop_watching()
        if self._is_alone:
            await self._network.close()

    async def news(self, after: Plan | None, *, block_ms: int) -> list[Record]:
        """See `Network.news`; records that concern only others are left out. Waits for as long as it takes."""
        while not self._stopping:
            if len(restarts := self._network.news.restarts) > self._restarts:
                raise restarts[-1]
            if self._network.news.superseded.get(self._name, 0) > self._connection:
                raise Superseded(superseded_message(self._name))
            told = self._network.news.after(max(place_of(after), self._passed) if after is not None else None)
            if told is None:
                told = await self._control.news(after, block_ms=1, turn=self._turn)
            concerning = [each for each in told if after is None or self._viewpoint.concerns(each)]
            if not concerning and not told and self._wants_newest:
                self._wants_newest = False
                concerning = self._network.news.after(None) or []
            records = [self._viewpoint.record(each) for each in concerning]
            if records:
                return records
            if told:
                self._passed = place_of(told[-1].plan)
                continue
            self.changed.clear()
            await self._network.news.change(self)
        return []

    @property
    def awaits_places(self) -> bool:
        """See `Viewpoint`."""
        return self._viewpoint.awaits_places

    def is_concerned_by(self, told: Sequence[Told]) -> bool:
        """Return whether one of some announcements has news for this connection."""
        return any(map(self._viewpoint.concerns, told))

    def wake(self, passed: Place) -> None:
        """Have this connection look for news after a plan; those before it did not concern it."""
        if not self.changed.is_set():  # else it has yet to read what was before that
            self._passed = passed
            self.changed.set()

    async def stop_watching(self) -> None:
        """See `Network.stop_watching`."""
        self._stopping = True
        self.wake(self._passed)

    def lane(self, node: str, plan: Plan, sender: Sender | None = None) -> IngressLane:
        """See `Network.lane`."""
        return self._network.ingress(node, plan).lane(plan, sender)

    def reader(self, node: str, plan: Plan) -> EgressReader:
        """See `Network.reader`."""
        egress = self._network.egress(node, plan)
        egress.follow(plan)
        return EgressReader(egress, plan)

    def updates(self, user: UpdateUser) -> HubPort:
        """See `Network.updates`."""
        return self._network.updates(user)
