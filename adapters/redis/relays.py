"""The relays of a network in Redis: follow its plans and carry the links of some of its nodes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress

from adapters.background import keep_running
from adapters.backoff import Backoff
from adapters.outage import Outage
from adapters.redis.announced import Viewpoint
from adapters.redis.connection import RedisConnection
from adapters.redis.control import SOLE_NODE, new_box
from adapters.redis.controlkeys import ControlKeys
from adapters.redis.network import RedisNetwork
from adapters.relay import BLOCK_MS, Relays, RelayTask
from sequencing.errors import GamecastError, NetworkRestarted, SessionExpired
from sequencing.plan import Plan

TELL_S, CARRIED_MS = 3.0, 10_000
"""How often it is told that links are carried, and how long that is believed."""

logger = logging.getLogger("gamecast.relay")


class RedisRelays:
    """Follows the plans of a network and runs a relay for each link that leaves one of ``sources`` (all if None)."""

    def __init__(
        self,
        control_url: str,
        sources: frozenset[str] | None = None,
        *,
        routes: Mapping[str, str] | None = None,
    ) -> None:
        """``control_url``: the control Redis; ``routes``: see `RedisNetwork`. Nothing runs before `start`."""
        self._network = RedisNetwork(control_url, ordering="acyclic", retention_events=1, routes=routes)
        self._watch = self._network.way_to_control()
        self._watch.box = new_box()
        self._viewpoint = Viewpoint()
        self._relays = Relays(self._open_relay, sources)
        self._stopping = False
        self._task: asyncio.Task[None] | None = None
        self._sources = sources
        self._telling: asyncio.Task[None] | None = None
        self._teller = RedisConnection(control_url, SOLE_NODE)
        self._is_other = asyncio.Event()
        """Whether the nodes have changed since it was told that their links are carried."""
        self._nodes: frozenset[str] = frozenset()
        """Those of the newest plan."""

    def start(self) -> None:
        """Begin to follow the plans, and to tell whose links are carried."""
        self._telling = keep_running(self._tell, name="gamecast relays tell")
        self._task = keep_running(self._follow, name="gamecast relays")

    async def stop(self) -> None:
        """Stop all relays, each after its current transfer."""
        self._stopping = True
        if self._telling is not None:
            self._telling.cancel()
            await asyncio.gather(self._telling, return_exceptions=True)
        await self._teller.close()
        await self._watch.close()
        if self._task is not None:
            await self._task
            await self._watch.close()  # the task may have opened it again
        await self._relays.stop()
        await self._network.close()

    async def _follow(self) -> None:
        backoff, outage = Backoff(), Outage(logger, "relays cannot read the plans")
        plan: Plan | None = None
        while not self._stopping:
            try:
                news = await self._watch.news(plan, block_ms=BLOCK_MS, at_box=True)
                backoff.reset()
                outage.over()
            except Exception as error:  # noqa: BLE001 - without plans no link is carried
                if self._stopping:
                    return
                outage.failed(error)
                await backoff.wait()
                if isinstance(error, SessionExpired | NetworkRestarted):
                    # What was missed is read again whole: relays go on where their links are.
                    plan, self._viewpoint = None, Viewpoint()
                continue
            for told in news:
                plan = told.plan
                if self._nodes != plan.nodes.keys():
                    self._nodes = frozenset(plan.nodes)
                    self._is_other.set()
                self._relays.follow(self._viewpoint.record(told))

    async def _tell(self) -> None:
        """Say from time to time that the links of these nodes are carried, for who looks at the network."""
        while True:
            names = sorted(self._nodes if self._sources is None else self._sources)
            keeping = [("SET", ControlKeys.carried(name), b"", "PX", CARRIED_MS) for name in names]
            with suppress(GamecastError):  # links are carried without it
                if keeping:
                    await self._teller.pipeline(keeping)
            with suppress(TimeoutError):
                async with asyncio.timeout(TELL_S):
                    await self._is_other.wait()
            self._is_other.clear()

    def _open_relay(self, source: str, target: str, plan: Plan) -> RelayTask:
        ends = plan.link_end(source), plan.link_end(target)
        return RelayTask(self._network.node(source, plan), self._network.node(target, plan), ends)
