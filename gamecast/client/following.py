"""The half of a connection that follows the network: it tells what the connection wants, and hears of the plans."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from adapters.backoff import Backoff
from adapters.network import Forgotten, Network
from adapters.urls import redacted
from gamecast.client.watching import Health
from sequencing.errors import NetworkRestarted, is_passing, network_restarted_message
from sequencing.plan import Plan

if TYPE_CHECKING:
    from gamecast.client.incoming import Incoming
    from gamecast.client.outgoing import Outgoing

BLOCK_MS = 2_000
"""How long a look for news waits; closing breaks it off."""


class Following:
    """Follows for one connection, from `start` to `close`."""

    def __init__(self, network: Network, outgoing: Outgoing, incoming: Incoming, health: Health) -> None:
        self._network = network
        self._health = health
        self._outgoing = outgoing
        self._incoming = incoming
        self._to_tell = asyncio.Event()
        self._stopping = False
        self._placing = frozenset[str]()
        """The regions that the network was asked to place."""
        self.plan: Plan | None = None
        """The newest plan that it has heard of."""
        self._is_planned = False
        """Whether the leader makes plans: else the control store grants all that is asked for."""
        self._forgotten = 1
        """How often the network knew nothing of what is wanted: at first, and where it took the connection for gone."""
        self._told_all = 0
        """After which of these it was told all of it."""
        self._tasks: list[asyncio.Task[None]] = []
        self.on_plan: Callable[[Plan], None] = _no_listener
        """Called with each plan."""
        outgoing.on_unplaced = incoming.on_interest = self._to_tell.set

    def start(self) -> None:
        """Begin."""
        self._tasks = [
            asyncio.create_task(self._tell(), name="gamecast wishes"),
            asyncio.create_task(self._follow(), name="gamecast news"),
        ]

    async def close(self) -> None:
        """Stop."""
        self._stopping = True
        self._to_tell.set()
        await self._network.stop_watching()
        await asyncio.gather(*self._tasks)

    def tell_again(self) -> None:
        """Tell what the network has forgotten, because it took the connection for gone."""
        self._placing = frozenset()
        self._forgotten += 1
        self._to_tell.set()

    async def _tell(self) -> None:
        backoff = Backoff()
        while not self._stopping:
            try:
                if await self._tell_news():
                    backoff.reset()
                    self._health.mark_up("telling the network what is wanted")
                    continue
                self._to_tell.clear()
                await self._to_tell.wait()
            except Exception as error:  # noqa: BLE001 - whatever it is, the application must hear of it
                if not is_passing(error):
                    self.fail(error)
                    return
                self._placing = frozenset()
                self._health.mark_down("telling the network what is wanted", error)
                await backoff.wait()

    async def _tell_news(self) -> bool:
        """Tell the network what is wanted and was not told; return whether there was anything."""
        if self.plan is None:
            return False
        unplaced = self._outgoing.unplaced() if self._is_planned else frozenset[str]()
        is_new = not unplaced <= self._placing
        if is_new:
            await self._network.place(unplaced)
            self._placing = unplaced
        forgotten = self._forgotten
        request = self._incoming.request(whole=forgotten > self._told_all)
        if request is None:
            return is_new
        try:
            is_granted = await self._network.join(request)
        except Forgotten:
            self.tell_again()
            return True
        self._told_all = forgotten
        if is_granted:
            self._incoming.granted(request)
        else:
            self._is_planned = True
            self._incoming.noted(request)
        return True

    async def _follow(self) -> None:
        backoff = Backoff()
        plan: Plan | None = None
        while not self._stopping:
            try:
                for record in await self._network.news(plan, block_ms=BLOCK_MS):
                    if plan is not None and record.plan.first_epoch != plan.first_epoch:
                        raise NetworkRestarted(network_restarted_message(redacted(self._network.url)))
                    plan = record.plan
                    self._incoming.require_name(record)
                    self._outgoing.follow(plan)
                    self._incoming.follow(record)
                    self._outgoing.await_places()
                    self.on_plan(plan)
                    was_planned, was_unknown = self._is_planned, self.plan is None
                    self.plan = plan
                    self._is_planned = not plan.sole
                    if self._is_planned != was_planned or was_unknown:
                        self._to_tell.set()
                backoff.reset()
                self._health.mark_up("hearing of plans")
            except Exception as error:  # noqa: BLE001 - as above
                if self._stopping:
                    return
                if not is_passing(error):
                    self.fail(error)
                    return
                self._health.mark_down("hearing of plans", error)
                await backoff.wait()

    def fail(self, error: Exception) -> None:
        """Have the application hear of an error that ends the connection."""
        self._incoming.fail(error)
        self._outgoing.end(error)


def _no_listener(_: Plan) -> None:
    pass
