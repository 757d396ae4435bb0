"""A network whose control plane and sequencing nodes live in Redis.

The control Redis holds, under one hash tag, what `adapters.redis_control` keeps and the registry of nodes. Each
connection runs a candidate for leading: there is no daemon to wait for, though one may stand beside them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from adapters.manager import Control, Manager
from adapters.redis_control import RedisControl
from adapters.redis_hands import RedisHands
from adapters.redis_node import RedisNode
from sequencing.plan import Ordering, Plan
from sequencing.record import Pair, Record, Wish


class RedisNetwork:
    """One connection's view of a network in Redis. Implements `adapters.network.Network`."""

    def __init__(
        self, url: str, *, ordering: Ordering, retention_events: int, routes: Mapping[str, str] | None = None
    ) -> None:
        """``url``: of the control Redis. ``ordering`` and ``retention_events`` count for plans made from here.

        ``routes``: URL as the network knows it → URL by which it is reached from here, where that is another one.
        """
        self.url = url
        self._ordering: Ordering = ordering
        self._retention_events = retention_events
        self._routes = routes or {}
        self._control = RedisControl(self._way_to(url))
        self._control_turn = asyncio.Lock()
        self._watch = RedisControl(self._way_to(url))
        self._manager: Manager | None = None
        self._managing: asyncio.Task[None] | None = None
        self._name = ""
        self._connection = 0

    async def open(self) -> None:
        """Reach the control Redis."""
        async with self._control_turn:
            await self._control.ping()

    async def close(self) -> None:
        """Stop leading, and close the connections to the control Redis."""
        if self._manager is not None and self._managing is not None:
            await self._manager.stop()
            await self._managing
        await self._watch.close()
        await self._control.close()

    async def introduce(self, name: str) -> int:
        """See `Network.introduce`. From now on this connection stands for leading."""
        self._name = name
        async with self._control_turn:
            self._connection = await self._control.introduce(name)
        self.stand(RedisControl(self._way_to(self.url)))
        return self._connection

    def stand(self, control: Control) -> None:
        """Stand for leading until `close`. ``control``: a way to the control Redis for this alone."""
        hands = RedisHands(self.url, retention_events=self._retention_events, routes=self._routes)
        self._manager = Manager(control, hands, self._ordering)
        self._managing = asyncio.create_task(self._manager.run(), name="gamecast manager")

    async def renew(self) -> int:
        """See `Network.renew`."""
        async with self._control_turn:
            return await self._control.renew(self._name, self._connection)

    async def want(self, wish: Wish, published: frozenset[str]) -> None:
        """See `Network.want`."""
        async with self._control_turn:
            await self._control.want(self._name, wish, published)

    async def expect(self, overlaps: frozenset[Pair]) -> None:
        """See `Network.expect`."""
        async with self._control_turn:
            await self._control.expect(overlaps)

    async def beat(self) -> None:
        """See `Network.beat`."""
        async with self._control_turn:
            await self._control.beat(self._name, self._connection)

    async def leave(self) -> None:
        """See `Network.leave`."""
        async with self._control_turn:
            await self._control.leave(self._name, self._connection)

    async def announce_probe(self, name: str, text: bytes) -> None:
        """See `Network.announce_probe`."""
        async with self._control_turn:
            await self._control.announce_probe(name, text)

    async def withdraw_probe(self, name: str) -> None:
        """See `Network.withdraw_probe`."""
        async with self._control_turn:
            await self._control.withdraw_probe(name)

    async def probe_addresses(self) -> Mapping[str, bytes]:
        """See `Network.probe_addresses`."""
        async with self._control_turn:
            return await self._control.probe_addresses()

    async def news(self, after: Plan | None, *, block_ms: int) -> list[Record]:
        """See `Network.news`."""
        if after is None and (newest := await self._watch.newest()) is not None:
            return [newest]
        return await self._watch.news(after, block_ms=block_ms)

    async def stop_watching(self) -> None:
        """See `Network.stop_watching`."""
        await self._watch.close()

    async def plans(self) -> list[Plan]:
        """See `Network.plans`."""
        async with self._control_turn:
            return [record.plan for record in await self._control.announced()]

    async def latest_plan(self) -> Plan | None:
        """See `Network.latest_plan`."""
        async with self._control_turn:
            newest = await self._control.newest()
        return newest.plan if newest is not None else None

    async def register_node(self, name: str, url: str, *, may_lose: bool = False) -> None:
        """See `RedisControl.register_node`."""
        async with self._control_turn:
            await self._control.register_node(name, url, may_lose=may_lose)

    def lane(self, node: str, plan: Plan) -> RedisNode:
        """See `Network.lane`."""
        return RedisNode(node, self._way_to(plan.nodes[node] or self.url), plan)

    def reader(self, node: str, plan: Plan) -> RedisNode:
        """See `Network.reader`."""
        return self.lane(node, plan)

    def _way_to(self, url: str) -> str:
        return self._routes.get(url, url)
