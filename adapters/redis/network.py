"""A network whose control plane and sequencing nodes are in Redis.

The control Redis has, under one hash tag, the data of `adapters.redis.control` and the registry of nodes. Each
process runs a leader candidate: no daemon is needed, but one may run as well.

A process reaches it by one `RedisNetwork` for any number of connections, or for one alone. Each of them has its own
name, regions and guarantees, and sees the network by a `RedisView`. They share one access to the control Redis, one
leader candidate, one reader of the news, and for each node one `Egress` and one `Ingress`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from adapters.background import keep_running
from adapters.leadership import RESUME_S, Control, NodeOperator
from adapters.manager import Manager
from adapters.network import UpdateUser
from adapters.redis.announced import with_people
from adapters.redis.control import RedisControl, new_box
from adapters.redis.controlclient import ControlClient
from adapters.redis.egress import Egress
from adapters.redis.ingress import Ingress
from adapters.redis.leadercontrol import LeaderControl
from adapters.redis.news import News
from adapters.redis.node import RedisNode
from adapters.redis.together import Together, Turn, closed_error
from adapters.urls import as_user_of
from sequencing.extras import first_missing
from sequencing.listing import listed
from sequencing.plan import Ordering, Plan
from sequencing.record import Record, Request

if TYPE_CHECKING:
    from adapters.redis.updates import HubPort, UpdateHub

logger = logging.getLogger("gamecast.manager")
persistence = logging.getLogger("gamecast.persistence")

_warned: set[str] = set()
"""The URLs of control Redis servers about which this process has logged a warning."""


class RedisNetwork(ControlClient):
    """The access of one process to a network in Redis."""

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
        """Whether the servers end with this access, so that no data outlives it."""
        self._ordering: Ordering = ordering
        self._retention_events = retention_events
        self._resume_s = resume_s
        self._routes = routes or {}
        self.control, self.turn = self.way_to_control(), Turn()
        """``turn``: who uses ``control``, one request at a time."""
        self.control.box = new_box()
        super().__init__(self.control, self.turn)
        self.joins: Together[tuple[str, Request], bool] = Together(self.control.join, self.turn, "joins")
        self.beats: Together[tuple[str, int, int, str], bool] = Together(self.control.beats, self.turn, "heartbeats")
        self._news: News | None = None
        self._egresses: dict[str, Egress] = {}
        self._ingresses: dict[str, Ingress] = {}
        self._updates: UpdateHub | None = None
        self._manager: Manager | None = None
        self._managing: asyncio.Task[None] | None = None
        self._closing = False

    @property
    def cannot_lead(self) -> Exception | None:
        """See `ControlClient`."""
        return self._manager.cannot_plan if self._manager is not None else None

    async def open(self) -> None:
        """Connect to the control Redis; see `Network.open`.

        Logs a warning, once per process, about a control Redis that loses its data in a restart.
        """
        await super().open()
        if self.url in _warned or self._is_private:
            return
        async with self.turn:
            is_volatile = await self.control.is_volatile()
        if is_volatile:
            _warned.add(self.url)
            persistence.warning(
                "the control Redis at %s does not keep its data (appendonly no): if it restarts, subscriptions, "
                "positions and history are lost, and every connection ends with NetworkRestarted. Set `appendonly yes` "
                "and `appendfsync always` there for more than a trial",
                self.control.where,
            )

    async def close(self) -> None:
        """Release everything; connections that are still open then fail with `NotConnected`."""
        self._closing = True
        nodes: list[Ingress | Egress] = [*self._ingresses.values(), *self._egresses.values()]
        closing = [each.close() for each in nodes]
        if self._updates is not None:
            closing.append(self._updates.close())
        if self._news is not None:
            closing.append(self._news.close())
        closing += [together.close() for together in (self.joins, self.beats)]
        # At once: where a server hangs, the others do not wait for it.
        await asyncio.gather(self._stop_leading(), *closing)
        await self.turn.close()
        await self.control.close()

    async def _stop_leading(self) -> None:
        if self._manager is not None and self._managing is not None:
            await self._manager.stop()
            await self._managing

    def require_open(self) -> None:
        """Raise `NotConnected` once this closes: a connection that it does not know of would begin something new."""
        if self._closing:
            raise closed_error()

    def stand_by(self) -> None:
        """Run the leader candidate of this process until `close`, if none runs."""
        self.require_open()
        if self._manager is None:
            self.stand(self.way_to_leading())

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

    @property
    def news(self) -> News:
        """What is announced, for all connections."""
        self.require_open()
        if self._news is None:
            reading = self.way_to_control()
            reading.box = self.control.box
            self._news = News(reading)
        return self._news

    async def listed(self) -> Record | None:
        """See `Network.listed`."""
        async with self.turn:
            record = await self.control.newest()
            if record is None:
                return None
            if not record.plan.sole:
                return with_people(record, await self.control.standings())
            interests = await self.control.interests()
        node = self.node(record.plan.sole, record.plan)
        try:
            return listed(record, interests, await node.begun(record.plan.epoch))
        finally:
            await node.close()

    async def register_node(self, name: str, url: str, *, may_lose: bool = False) -> None:
        """See `LeaderControl.register_node`."""
        control = self.way_to_leading()
        try:
            await control.register_node(name, url, may_lose=may_lose)
        finally:
            await control.close()

    def node(self, name: str, plan: Plan) -> RedisNode:
        """Return an access to a node, for one task."""
        return RedisNode(name, self._way_to(plan.nodes[name] or self.url), plan, self.report_loss)

    def reader(self, name: str, plan: Plan) -> RedisNode:
        """Return an access to what a node has, for one who waits for nothing."""
        return self.node(name, plan)

    def egress(self, name: str, plan: Plan) -> Egress:
        """Return the reading at a node, for all connections."""
        self.require_open()
        if name not in self._egresses:
            self._egresses[name] = Egress(partial(self.node, name, plan), name, plan)
        return self._egresses[name]

    def ingress(self, name: str, plan: Plan) -> Ingress:
        """Return the publishing at a node, for all connections."""
        self.require_open()
        if name not in self._ingresses:
            self._ingresses[name] = Ingress(self.node(name, plan), plan)
        return self._ingresses[name]

    def updates(self, user: UpdateUser) -> HubPort:
        """Return one connection's access to the updates at all nodes."""
        self.require_open()
        if self._updates is None:
            from adapters.redis.updates import UpdateHub  # only who uses updates needs it

            self._updates = UpdateHub(lambda url: self._way_to(url or self.url))
        return self._updates.port(user)

    def way_to_control(self) -> RedisControl:
        """Return an access to the control Redis, for one task."""
        return RedisControl(self._way_to(self.url))

    def way_to_leading(self) -> LeaderControl:
        """Return an access to the control Redis, for one leader candidate."""
        return LeaderControl(self._way_to(self.url))

    def _way_to(self, url: str) -> str:
        return self._routes.get(url) or as_user_of(url, self.url)
