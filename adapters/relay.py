"""Relays at work: connections, waits and tasks around `sequencing.relay`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from adapters.backoff import Backoff
from sequencing.node import LinkedFrame, TransferAnswer
from sequencing.plan import Plan
from sequencing.relay import Relay

BLOCK_MS = 200
"""How long a read waits before it is asked again."""

REFUSED_WAIT_S = 0.02
"""How long to wait for a node that cannot take a frame yet: its plan is being installed."""

logger = logging.getLogger("gamecast.relay")


class LinkSource(Protocol):
    """The node that a link leaves."""

    name: str

    async def read_link(self, target: str, after: int, *, frames_max: int, block_ms: int) -> Sequence[LinkedFrame]:
        """Return frames of the link after a link sequence."""

    async def acknowledge(self, target: str, accepted: int) -> None:
        """Drop from the link what was accepted."""

    async def close(self) -> None:
        """Release the connection."""


class LinkTarget(Protocol):
    """The node that a link leads to."""

    name: str

    async def transfer(self, source: str, frames: Sequence[LinkedFrame]) -> TransferAnswer:
        """Accept frames, each once and in order."""

    async def close(self) -> None:
        """Release the connection."""


class RelayTask:
    """Carries one link until stopped."""

    def __init__(self, source: LinkSource, target: LinkTarget) -> None:
        """``source`` and ``target`` belong to this relay alone."""
        self._source = source
        self._target = target
        self._stopping = False
        self._relay = Relay()

    async def run(self) -> None:
        """Move frames until `stop`; network trouble is waited out."""
        backoff = Backoff()
        try:
            while not self._stopping:
                try:
                    await self._move()
                    backoff.reset()
                except Exception as error:  # noqa: BLE001 - a relay that ends stops every region behind its link
                    if self._stopping:
                        return
                    logger.warning("relay %s → %s: %r", self._source.name, self._target.name, error)
                    await backoff.wait()
        finally:
            await self._target.close()
            await self._source.close()

    async def stop(self) -> None:
        """Let `run` return after the transfer under way; a read that waits is broken off."""
        self._stopping = True
        await self._source.close()

    @property
    def frames_moved(self) -> int:
        """How many frames this relay has seen accepted."""
        return self._relay.frames_moved

    async def _move(self) -> None:
        relay, target = self._relay, self._target.name
        read = await self._source.read_link(target, relay.after, frames_max=relay.frames_max, block_ms=BLOCK_MS)
        frames = relay.read(read)
        if not frames:
            return
        accepted = relay.answered(await self._target.transfer(self._source.name, frames))
        if accepted is not None:
            await self._source.acknowledge(target, accepted)
            relay.trimmed(accepted)
        if relay.refused:
            logger.info("relay %s → %s: refused after %d", self._source.name, target, relay.after)
            await asyncio.sleep(REFUSED_WAIT_S)


class Relays:
    """Relays for the links of a plan that leave certain nodes; follows the plan as it changes."""

    def __init__(
        self, open_relay: Callable[[str, str, Plan], RelayTask], sources: frozenset[str] | None = None
    ) -> None:
        """``sources``: the nodes whose links to carry, all when None."""
        self._open_relay = open_relay
        self._sources = sources
        self._running: dict[tuple[str, str], tuple[RelayTask, asyncio.Task[None]]] = {}

    def follow(self, plan: Plan) -> None:
        """Start relays for links that have none yet."""
        for source, target in sorted(plan.links):
            if (source, target) not in self._running and (self._sources is None or source in self._sources):
                relay = self._open_relay(source, target, plan)
                task = asyncio.create_task(relay.run(), name=f"gamecast relay {source} → {target}")
                self._running[source, target] = relay, task

    async def stop(self) -> None:
        """Stop all relays and wait for them."""
        await asyncio.gather(*(relay.stop() for relay, _ in self._running.values()))
        await asyncio.gather(*(task for _, task in self._running.values()))
        self._running.clear()
