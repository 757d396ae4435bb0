"""A network whose control plane and sequencing nodes are in Redis.

The control Redis has, under one hash tag, the data of `adapters.redis.control` and the registry of nodes. Each
connection runs a leader candidate: no daemon is needed, but one may run as well.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from adapters.background import keep_running
from adapters.leadership import RESUME_S, Control, NodeOperator
from adapters.manager import Manager
from adapters.network import UpdateUser
from adapters.redis.announced import Viewpoint, with_people
from adapters.redis.control import RedisControl, new_box
from adapters.redis.controlclient import ControlClient
from adapters.redis.leadercontrol import LeaderControl
from adapters.redis.node import RedisNode
from adapters.urls import as_user_of
from sequencing.errors import Superseded, superseded_message
from sequencing.extras import first_missing
from sequencing.listing import listed
from sequencing.plan import Ordering, Plan
from sequencing.record import Record

if TYPE_CHECKING:
    from adapters.redis.updates import HubPort, UpdateHub

logger = logging.getLogger("gamecast.manager")
persistence = logging.getLogger("gamecast.persistence")

_warned: set[str] = set()
"""The URLs of control Redis servers about which this process has logged a warning."""


class RedisNetwork(ControlClient):
    """One connection's view of a network in Redis. Implements `adapters.network.Network`."""

    def __init__(
        self,
        url: str,
        *,
        ordering: Ordering,
        retention_events: int,
        resume_s: float = RESUME_S,
        routes: Mapping[str, str] | None = None,
    ) -> None:
        """``url``: of the control Redis. ``ordering``, ``retention_events`` and ``resume_s`` apply to plans made here.

        ``routes``: URL in the network → URL by which this process reaches the server, if that differs.
        """
        self.url = url
        self._is_private = False
        """Whether the servers end with this connection, so that no data outlives it."""
        self._ordering: Ordering = ordering
        self._retention_events = retention_events
        self._resume_s = resume_s
        self._routes = routes or {}
        super().__init__(self.way_to_control(), asyncio.Lock())
        self._watch = self.way_to_control()
        self._control.box = self._watch.box = new_box()
        self._viewpoint = Viewpoint()
        self._manager: Manager | None = None
        self._managing: asyncio.Task[None] | None = None

    @property
    def cannot_lead(self) -> Exception | None:
        """See `ControlClient`."""
        return self._manager.cannot_plan if self._manager is not None else None

    async def open(self) -> None:
        """See `Network.open`.

        Logs a warning, once per process, about a control Redis that loses its data in a restart.
        """
        await super().open()
        if self.url in _warned or self._is_private:
            return
        async with self._turn:
            is_volatile = await self._control.is_volatile()
        if is_volatile:
            _warned.add(self.url)
            persistence.warning(
                "the control Redis at %s does not keep its data (appendonly no): if it restarts, subscriptions, "
                "positions and history are lost, and every connection ends with NetworkRestarted. Set `appendonly yes` "
                "and `appendfsync always` there for more than a trial",
                self._control.where,
            )

    async def close(self) -> None:
        """Stop leading, and close the connections to the control Redis."""
        if self._manager is not None and self._managing is not None:
            await self._manager.stop()
            await self._managing
        await self._watch.close()
        await self._control.close()

    async def introduce(self, name: str) -> int:
        """See `Network.introduce`. From now on this connection is a leader candidate, see `stand`."""
        connection = await super().introduce(name)
        self._viewpoint.belong_to(name, connection)
        self.stand(self.way_to_leading())
        return connection

    def stand(self, control: Control) -> None:
        """Run a leader candidate until `close`; of a network of several nodes, it leads only with the planner's extra.

        ``control``: an access to the control Redis for the candidate alone.
        """
        lacks = first_missing("planner", "leading a network of several nodes")
        self._manager = Manager(control, self._operator, self._ordering, resume_s=self._resume_s, lacks=lacks)
        self._managing = keep_running(self._manager.run, name="gamecast manager")

    def _operator(self) -> NodeOperator:
        from adapters.redis.operating import RedisNodeOperator  # only a leader needs it

        return RedisNodeOperator(self.url, retention_events=self._retention_events, routes=self._routes)

    async def news(self, after: Plan | None, *, block_ms: int) -> list[Record]:
        """See `Network.news`; of what others are granted in place, the connection may hear late."""
        told = await self._watch.news(after, block_ms=block_ms, at_box=True)
        if self._watch.superseded.pop(self._name, 0) > self._connection:
            raise Superseded(superseded_message(self._name))
        self._watch.superseded.clear()
        return [self._viewpoint.record(each) for each in told]

    async def listed(self) -> Record | None:
        """See `Network.listed`."""
        async with self._turn:
            record = await self._control.newest()
            if record is None:
                return None
            if not record.plan.sole:
                return with_people(record, await self._control.standings())
            interests = await self._control.interests()
        node = self.lane(record.plan.sole, record.plan)
        try:
            return listed(record, interests, await node.begun(record.plan.epoch))
        finally:
            await node.close()

    async def stop_watching(self) -> None:
        """See `Network.stop_watching`."""
        await self._watch.close()

    async def register_node(self, name: str, url: str, *, may_lose: bool = False) -> None:
        """See `LeaderControl.register_node`."""
        control = self.way_to_leading()
        try:
            await control.register_node(name, url, may_lose=may_lose)
        finally:
            await control.close()

    def lane(self, node: str, plan: Plan) -> RedisNode:
        """See `Network.lane`."""
        return RedisNode(node, self._way_to(plan.nodes[node] or self.url), plan, self.report_loss)

    def reader(self, node: str, plan: Plan) -> RedisNode:
        """See `Network.reader`."""
        return self.lane(node, plan)

    def updates(self, user: UpdateUser) -> HubPort:
        """See `Network.updates`."""
        return self.update_hub().port(user, owns_hub=True)

    def update_hub(self) -> UpdateHub:
        """Return an access to the updates at all nodes, for any number of connections."""
        from adapters.redis.updates import UpdateHub  # only who uses updates needs it

        return UpdateHub(lambda url: self._way_to(url or self.url))

    def way_to_control(self) -> RedisControl:
        """Return an access to the control Redis, for one task."""
        return RedisControl(self._way_to(self.url))

    def way_to_leading(self) -> LeaderControl:
        """Return an access to the control Redis, for one leader candidate."""
        return LeaderControl(self._way_to(self.url))

    def _way_to(self, url: str) -> str:
        return self._routes.get(url) or as_user_of(url, self.url)
