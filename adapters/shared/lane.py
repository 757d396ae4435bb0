"""One process's publishing at one node, for all of its connections that share it.

While a request is in progress, the offers of other connections wait and go together in the next one. The busier the
process, the more frames per request; and one socket serves all.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from adapters.network import Answered
from adapters.redis.node import RedisNode
from sequencing.errors import NotConnected, Unreachable
from sequencing.frames import PublishedFrame
from sequencing.node import Answer
from sequencing.plan import Plan

REQUEST_FRAMES_MAX = 256
REQUEST_BYTES_MAX = 4 * 1024 * 1024
"""Redis does nothing else while it processes a request."""


class _Offer(NamedTuple):
    """The frames that one connection offers; each stays unanswered until ``answered`` is done."""

    frames: Sequence[PublishedFrame]
    run: str
    answered: asyncio.Future[list[Answer]]


class SharedIngress:
    """The publishing of all connections of this process at one node."""

    def __init__(self, node: RedisNode, plan: Plan) -> None:
        self.name = node.name
        self._node = node
        self._plan = plan
        self._node.follow(plan)
        self._offers: deque[_Offer] = deque()
        self._serving: asyncio.Task[None] | None = None
        self._closing = False

    def follow(self, plan: Plan) -> None:
        """Talk to the node in the run that the newest plan names."""
        if (plan.epoch, plan.version) > (self._plan.epoch, self._plan.version):
            self._plan = plan
            self._node.follow(plan)

    def lane(self, plan: Plan) -> SharedLane:
        """Return the access of one publisher."""
        self.follow(plan)
        return SharedLane(self, plan)

    async def publish(self, frames: Sequence[PublishedFrame], run: str) -> list[Answer]:
        """Offer frames to the node in a run; see `Lane.publish`."""
        if self._closing:
            raise NotConnected("the shared network access of this process was closed before this connection")
        offer = _Offer(frames, run, asyncio.get_running_loop().create_future())
        self._offers.append(offer)
        if self._serving is None or self._serving.done():
            self._serving = asyncio.create_task(self._serve(), name=f"gamecast shared publish {self.name}")
        return await offer.answered

    async def close(self) -> None:
        """Close; requests in progress still get their answers."""
        self._closing = True
        if self._serving is not None:
            await self._serving
        await self._node.close()

    async def _serve(self) -> None:
        while self._offers:
            offers = self._next()
            try:
                answers = iter(await self._node.publish([frame for offer in offers for frame in offer.frames]))
            except Exception as error:  # noqa: BLE001 - whatever it is, who offered must hear of it
                for offer in offers:
                    if not offer.answered.done():
                        offer.answered.set_exception(error)
            else:
                for offer in offers:
                    own = [next(answers) for _ in offer.frames]
                    if not offer.answered.done():
                        offer.answered.set_result(own)

    def _next(self) -> list[_Offer]:
        """Return the offers that go together: those for the run in which the node is addressed."""
        run, frames, size = self._plan.runs.get(self.name, ""), 0, 0
        offers: list[_Offer] = []
        while self._offers:
            offer = self._offers[0]
            frames += len(offer.frames)
            size += sum(len(frame.body) for frame in offer.frames)
            if offers and (frames > REQUEST_FRAMES_MAX or size > REQUEST_BYTES_MAX):
                break
            self._offers.popleft()
            if offer.run == run:
                offers.append(offer)
            elif not offer.answered.done():
                offer.answered.set_exception(
                    Unreachable(
                        f"node {self.name!r} has restarted, and this connection has not received the new plan yet"
                    )
                )
        return offers


class SharedLane:
    """One publisher's access to the shared publishing at a node. Implements `adapters.network.Lane`."""

    def __init__(self, ingress: SharedIngress, plan: Plan) -> None:
        """Use `SharedIngress.lane`."""
        self._ingress = ingress
        self._run = plan.runs.get(ingress.name, "")

    def follow(self, plan: Plan) -> None:
        """See `Lane.follow`."""
        self._run = plan.runs.get(self._ingress.name, "")
        self._ingress.follow(plan)

    async def publish(self, frames: Sequence[PublishedFrame]) -> list[Answer]:
        """See `Lane.publish`."""
        return await self._ingress.publish(frames, self._run)

    def offer(self, frames: Callable[[], Sequence[PublishedFrame]], told: Answered) -> bool:
        """See `Lane.offer`: not here."""
        return False

    def break_off(self) -> None:
        """See `Lane.break_off`."""

    async def close(self) -> None:
        """See `Lane.close`: the access stays open for the other connections."""
