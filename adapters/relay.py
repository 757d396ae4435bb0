"""Relays: what carries frames from a node's link to the next node.

A relay reads the link, offers the frames to the next node's step, and trims from the link what that node says it has
accepted. It keeps no state that matters: the receiving node accepts each link sequence once and in order, so a relay
may die at any point, start again from the beginning of the link, or run twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import astuple
from typing import Protocol

from adapters.backoff import Backoff
from sequencing.node import LinkedFrame, TransferAnswer, TransferVerdict
from sequencing.plan import Plan

FRAMES_MAX = 256
TRANSFER_BYTES = 4 * 1024 * 1024
"""Frames a transfer: enough to spread its cost, and about so many bytes, that Redis does not block for long."""

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


class Relay:
    """Carries one link until stopped."""

    def __init__(self, source: LinkSource, target: LinkTarget) -> None:
        """``source`` and ``target`` belong to this relay alone."""
        self._source = source
        self._target = target
        self._stopping = False
        self._frames_max = FRAMES_MAX
        self.frames_moved = 0

    async def run(self) -> None:
        """Move frames until `stop`; network trouble is waited out."""
        backoff = Backoff()
        after = 0
        try:
            while not self._stopping:
                try:
                    after = await self._move(after)
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

    async def _move(self, after: int) -> int:
        target, frames_max = self._target.name, self._frames_max
        frames = await self._source.read_link(target, after, frames_max=frames_max, block_ms=BLOCK_MS)
        if not frames:
            return after
        largest_bytes = max(len(linked.frame.body) for linked in frames)
        self._frames_max = max(1, min(FRAMES_MAX, 2 * frames_max, TRANSFER_BYTES // (largest_bytes + 1)))
        answer = await self._target.transfer(self._source.name, frames)
        if answer.accepted > after:
            self.frames_moved += answer.accepted - after
            await self._source.acknowledge(self._target.name, answer.accepted)
        if answer.verdict is not TransferVerdict.OK:
            logger.info("relay %s → %s: %s after %d", self._source.name, self._target.name, *astuple(answer))
            await asyncio.sleep(REFUSED_WAIT_S)
        return answer.accepted


class Relays:
    """Relays for the links of a plan that leave certain nodes; follows the plan as it changes."""

    def __init__(self, open_relay: Callable[[str, str, Plan], Relay], sources: frozenset[str] | None = None) -> None:
        """``sources``: the nodes whose links to carry, all when None."""
        self._open_relay = open_relay
        self._sources = sources
        self._running: dict[tuple[str, str], tuple[Relay, asyncio.Task[None]]] = {}

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
