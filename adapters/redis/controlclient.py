"""The control Redis as one connection to a network uses it: its registration, reports and requests."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from adapters.redis.control import RedisControl
from sequencing.errors import GamecastError, NetworkRestarted, NoLeader, Superseded, network_restarted_message
from sequencing.plan import Plan
from sequencing.record import Pair, Request

if TYPE_CHECKING:
    from adapters.presence import Presence

logger = logging.getLogger("gamecast")


class ControlClient:
    """The part of `adapters.network.Network` that uses the control Redis."""

    def __init__(self, control: RedisControl, turn: asyncio.Lock) -> None:
        """``control``: an access that may be shared with others, who take it by ``turn``."""
        self._control = control
        self._turn = turn
        self._name = ""
        self._connection = 0
        self._born = b""
        self._said = 0
        """Up to which ``said`` the network knows what the connection wants."""
        self._reported: dict[str, str] = {}
        """Node → the run in which its loss was logged."""

    @property
    def cannot_lead(self) -> Exception | None:
        """The reason why this process cannot lead, as far as it is known."""
        return None

    async def open(self) -> None:
        """Connect to the control Redis; see `Network.open`."""
        async with self._turn:
            await self._control.ping()

    async def introduce(self, name: str) -> int:
        """See `Network.introduce`."""
        self._name = name
        async with self._turn:
            self._connection = await self._control.introduce(name)
            self._born = self._control.born
        return self._connection

    async def renew(self, after: int = 0) -> int:
        """See `Network.renew`."""
        async with self._speaking(), self._turn:
            return await self._control.renew(self._name, self._connection, after)

    async def no_leader_error(self) -> NoLeader | None:
        """See `Network.no_leader_error`."""
        if self.cannot_lead is None:
            return None
        try:
            async with self._turn:
                if await self._control.is_led():
                    return None
        except GamecastError:
            return None  # unknown
        return NoLeader(
            f"no leader is running, so no plans are made, and all requests wait: run `gamecast "
            f"manager`, or let this process lead; {self.cannot_lead}"
        )

    async def join(self, request: Request) -> bool:
        """See `Network.join`."""
        async with self._speaking(), self._turn:
            [answer] = await self._control.join([(self._name, request)])
            if isinstance(answer, Exception):
                raise answer
            self._said = request.said
            return answer

    async def place(self, regions: frozenset[str]) -> None:
        """See `Network.place`."""
        async with self._speaking(), self._turn:
            await self._control.place(self._name, self._connection, regions)

    async def declare_overlaps(self, overlaps: frozenset[Pair]) -> None:
        """See `Network.expect`."""
        async with self._turn:
            await self._control.declare_overlaps(overlaps)

    async def report_loss(self, node: str, run: str, lost: str, first_epoch: int) -> None:
        """Report to the leader that a node has lost something; see `adapters.redis.evidence`.

        ``first_epoch``: with which the network began that has lost it.
        """
        if self._reported.get(node) != run:
            self._reported[node] = run
            logger.warning("node %s has lost acknowledged events: %s", node, lost)
        with suppress(GamecastError):  # it is reported again at the next try
            async with self._turn:
                latest = await self._control.latest_plan()
                if (
                    latest is None or not first_epoch or latest.first_epoch <= first_epoch
                ):  # else a network that lost nothing began since
                    await self._control.doubt(self._name, node, run)

    async def beat(self, *, at_once: bool = True, doing: str = "") -> bool:
        """See `Network.beat`."""
        async with self._speaking(), self._turn:
            return await self._control.beat(self._name, self._connection, self._said, doing)

    async def leave(self) -> None:
        """See `Network.leave`."""
        async with self._turn:
            # A control Redis that came back empty assigns the same numbers again, to a newer connection of this name.
            if not await self._control.has_lost(self._connection, self._born):
                await self._control.leave(self._name, self._connection)

    def presence(self) -> Presence:
        """See `Network.presence`."""
        from adapters.redis.presence import RedisPresence  # only who says that it is there needs it

        return RedisPresence(self._control, self._turn, self._name, self._connection)

    async def announce_probe(self, name: str, text: bytes) -> None:
        """See `Network.announce_probe`."""
        async with self._turn:
            await self._control.announce_probe(name, text)

    async def withdraw_probe(self, name: str) -> None:
        """See `Network.withdraw_probe`."""
        async with self._turn:
            await self._control.withdraw_probe(name)

    async def probe_addresses(self) -> Mapping[str, bytes]:
        """See `Network.probe_addresses`."""
        async with self._turn:
            return await self._control.probe_addresses()

    async def plans(self, regions: Collection[str], after: int) -> list[Plan]:
        """See `Network.plans`."""
        return await self._control.plans(regions, after, self._turn)

    async def ending(self) -> frozenset[tuple[str, int]]:
        """See `Network.ending`."""
        return await self._control.ending(self._turn)

    async def latest_plan(self) -> Plan | None:
        """See `Network.latest_plan`."""
        return await self._control.latest_plan(self._turn)

    @asynccontextmanager
    async def _speaking(self) -> AsyncIterator[None]:
        """Raise `NetworkRestarted` in the place of `Superseded` if the control Redis has lost its data."""
        try:
            yield
        except Superseded as error:
            async with self._turn:
                has_lost = await self._control.has_lost(self._connection, self._born)
            if has_lost:
                raise NetworkRestarted(network_restarted_message(self._control.where)) from error
            raise
