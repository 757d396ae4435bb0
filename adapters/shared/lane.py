"""One process's publishing at one node, for all of its connections that share it.

While a request is in progress, the offers of other connections wait and go together in the next one. The busier the
process, the more frames per request; and one socket serves all.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from adapters.background import keep_running
from adapters.network import Answered
from adapters.redis.deadline import Overdue
from adapters.redis.node import RedisNode
from adapters.redis.wire import telling
from adapters.shared.closed import closed_error
from sequencing.errors import Unreachable
from sequencing.frames import PublishedFrame
from sequencing.node import Answer
from sequencing.plan import Plan

REQUEST_FRAMES_MAX = 256
REQUEST_BYTES_MAX = 4 * 1024 * 1024
"""Redis does nothing else while it processes a request."""


REPLY_S_MAX = 10.0
"""A request without an answer is broken off after this."""


class _Offer:
    """The frames that one connection offers. ``told``: takes the answers, or what went wrong, once."""

    def __init__(self, frames: Sequence[PublishedFrame], run: str, told: Answered) -> None:
        self.frames, self.run = frames, run
        self._told: Answered | None = told

    def tell(self, answers: Sequence[Answer], error: Exception | None) -> None:
        """Tell it, unless it was told already."""
        told, self._told = self._told, None
        if told is not None:
            told(answers, error)


class SharedIngress:
    """The publishing of all connections of this process at one node."""

    def __init__(self, node: RedisNode, plan: Plan) -> None:
        self.name = node.name
        self._node = node
        self._plan = plan
        self._node.follow(plan)
        self._offers: deque[_Offer] = deque()
        self._under_way: list[_Offer] = []
        """What is offered without the task."""
        self._is_due = False
        """Whether there will be a look soon at what there is to offer."""
        self._loop = asyncio.get_running_loop()
        self._limit = Overdue(REPLY_S_MAX, node.break_off)
        self._serving: asyncio.Task[None] | None = None
        self._landed = asyncio.Event()
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
            raise closed_error()
        answered: asyncio.Future[Sequence[Answer]] = self._loop.create_future()
        self._offers.append(_Offer(frames, run, telling(answered)))
        self._begin_to_serve()
        return list(await answered)

    def offer(self, frames: Sequence[PublishedFrame], run: str, told: Answered) -> _Offer:
        """Offer frames, together with those of other connections in this round of the event loop; see `Lane.offer`."""
        offer = _Offer(frames, run, told)
        self._offers.append(offer)
        self._look_soon()
        return offer

    @property
    def can_offer(self) -> bool:
        """Whether `offer` can be called."""
        return not self._closing

    async def close(self) -> None:
        """Close; requests in progress still get their answers."""
        self._closing = True
        while self._under_way:
            self._landed.clear()
            await self._landed.wait()
        if self._offers:
            self._begin_to_serve()
        if self._serving is not None:
            await self._serving
        self._limit.close()
        await self._node.close()

    def _look_soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            # In the round after this: then the other connections have offered, too.
            self._loop.call_soon(self._offer_at_once)

    def _offer_at_once(self) -> None:
        self._is_due = False
        if not self._offers or self._under_way or (self._serving is not None and not self._serving.done()):
            return
        if not self._node.offer(self._take, self._answered):
            self._begin_to_serve()
        elif not self._under_way and self._offers:
            self._look_soon()

    def _take(self) -> Sequence[PublishedFrame]:
        self._under_way = self._next()
        if self._under_way:
            self._limit.begin()
        return [frame for offer in self._under_way for frame in offer.frames]

    def _answered(self, answers: Sequence[Answer], error: Exception | None) -> None:
        offers, self._under_way = self._under_way, []
        self._limit.end()
        self._tell(offers, answers, error)
        self._landed.set()
        if self._offers:
            self._look_soon()

    def _begin_to_serve(self) -> None:
        if not self._under_way and (self._serving is None or self._serving.done()):
            self._serving = keep_running(self._serve, name=f"gamecast shared publish {self.name}")

    async def _serve(self) -> None:
        while self._offers:
            offers = self._next()
            try:
                answers = await self._node.publish([frame for offer in offers for frame in offer.frames])
            except Exception as error:  # noqa: BLE001 - whatever it is, who offered must hear of it
                self._tell(offers, (), error)
            else:
                self._tell(offers, answers, None)

    @staticmethod
    def _tell(offers: Sequence[_Offer], answers: Sequence[Answer], error: Exception | None) -> None:
        place = 0
        for offer in offers:
            own = answers[place : place + len(offer.frames)]
            place += len(offer.frames)
            offer.tell(own, error)

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
            else:
                gone = f"node {self.name!r} has restarted, and this connection has not received the new plan yet"
                offer.tell((), Unreachable(gone))
        return offers


class SharedLane:
    """One publisher's access to the shared publishing at a node. Implements `adapters.network.Lane`."""

    def __init__(self, ingress: SharedIngress, plan: Plan) -> None:
        """Use `SharedIngress.lane`."""
        self._ingress = ingress
        self._run = plan.runs.get(ingress.name, "")
        self._offer: _Offer | None = None

    def follow(self, plan: Plan) -> None:
        """See `Lane.follow`."""
        self._run = plan.runs.get(self._ingress.name, "")
        self._ingress.follow(plan)

    async def publish(self, frames: Sequence[PublishedFrame]) -> list[Answer]:
        """See `Lane.publish`."""
        return await self._ingress.publish(frames, self._run)

    def offer(self, frames: Callable[[], Sequence[PublishedFrame]], told: Answered) -> bool:
        """See `Lane.offer`."""
        if not self._ingress.can_offer:
            return False
        if offered := frames():
            self._offer = self._ingress.offer(offered, self._run, told)
        return True

    def break_off(self) -> None:
        """See `Lane.break_off`: others' requests go on."""
        if self._offer is not None:
            self._offer.tell((), Unreachable(f"node {self._ingress.name!r} does not answer"))

    async def close(self) -> None:
        """See `Lane.close`: the access stays open for the other connections."""
