"""One process's publishing at one node, for all of its connections.

While a request is under way, what connections offer waits, and goes together in the next one. The busier the process,
the more frames per request; and one socket serves all. As long as nothing is in the way, requests go out and are
answered without a task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence, Sized

from adapters.background import keep_running
from adapters.network import Answered, Sender
from adapters.redis.deadline import Overdue
from adapters.redis.node import RedisNode
from adapters.redis.together import closed_error
from adapters.redis.wire import telling
from sequencing.errors import Unreachable
from sequencing.frames import PublishedFrame
from sequencing.node import Answer
from sequencing.plan import Plan

REQUEST_FRAMES_MAX = 256
REQUEST_BYTES_MAX = 4 * 1024 * 1024
"""A request with so much takes nothing more: Redis does nothing else while it processes it."""

REPLY_S_MAX = 10.0
"""A request without an answer is broken off after this, at the latest."""


class _Part:
    """What one connection has in a request. ``due_s``: when it waits no longer."""

    __slots__ = ("count", "due_s", "told")

    def __init__(self, count: int, due_s: float, told: Answered) -> None:
        self.count, self.due_s = count, due_s
        self.told: Answered | None = told

    def tell(self, answers: Sequence[Answer], error: Exception | None) -> None:
        """Tell it, unless it was told already."""
        told, self.told = self.told, None
        if told is not None:
            told(answers, error)


class Ingress:
    """The publishing of all connections of this process at one node."""

    def __init__(self, node: RedisNode, plan: Plan) -> None:
        """``node``: an access to it for this alone."""
        self.name = node.name
        self._node = node
        self._plan = plan
        self._node.follow(plan)
        self._offering: dict[IngressLane, None] = {}
        """Those that have something, the first first."""
        self._under_way: list[_Part] = []
        self._is_due = False
        """Whether there will be a look soon at what there is to publish."""
        self._needs_task = False
        """Whether some of it is to be published by a task, as it was refused without one: the script may be lacking."""
        self._loop = asyncio.get_running_loop()
        self._ready: Sized = getattr(self._loop, "_ready", ())
        """What runs in this round of the event loop, where it says so; a known name of asyncio's own."""
        self._limit = Overdue(REPLY_S_MAX, self._overdue)
        self._serving: asyncio.Task[None] | None = None
        self._landed = asyncio.Event()
        self._closing = False

    @property
    def run(self) -> str:
        """The run in which the node is addressed."""
        return self._plan.runs.get(self.name, "")

    def follow(self, plan: Plan) -> None:
        """Talk to the node in the run that the newest plan names."""
        if (plan.epoch, plan.version) > (self._plan.epoch, self._plan.version):
            self._plan = plan
            self._node.follow(plan)

    def lane(self, plan: Plan, sender: Sender | None = None) -> IngressLane:
        """Return the access of one connection."""
        self.follow(plan)
        return IngressLane(self, plan, sender)

    def offer(self, lane: IngressLane, *, by_task: bool = False) -> None:
        """Have a connection's frames taken, with those of others in this round of the event loop."""
        self._needs_task = self._needs_task or by_task
        if self._closing:
            lane.close_with(closed_error())
            return
        self._offering[lane] = None
        self._look_soon()

    def may_send(self, run: str) -> bool:
        """Return whether one frame for a run of the node can be published now, with nothing that could go with it."""
        return (
            not (self._under_way or self._is_due or self._offering or self._closing)
            and not self._ready
            and run == self.run
            and self._node.can_publish_at_once()
        )

    def send(self, lane: IngressLane, frame: PublishedFrame, told: Answered) -> None:
        """Publish one frame now."""
        self._under_way = [_Part(1, self._loop.time() + lane.limit_s, told)]
        self._limit.begin(lane.limit_s)
        self._node.publish_at_once((frame,), self._answered)

    async def close(self) -> None:
        """Close; requests in progress still get their answers."""
        self._closing = True
        while self._under_way:
            self._landed.clear()
            await self._landed.wait()
        if self._serving is not None:
            await self._serving
        offering, self._offering = self._offering, {}
        for lane in offering:
            lane.close_with(closed_error())
        self._limit.close()
        await self._node.close()

    def _look_soon(self) -> None:
        if not self._under_way and not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._look)

    def _look(self) -> None:
        self._is_due = False
        if not self._offering or self._under_way:
            return
        if self._needs_task or not self._node.can_publish_at_once():
            self._serving = keep_running(self._serve, name=f"gamecast publish {self.name}")
            self._under_way = [_NOTHING]  # until the task runs
        elif frames := self._next():
            self._node.publish_at_once(frames, self._answered)

    def _answered(self, answers: Sequence[Answer], error: Exception | None) -> None:
        parts, self._under_way = self._under_way, []
        self._limit.end()
        if len(parts) == 1:
            parts[0].tell(answers, error)
        else:
            place = 0
            for part in parts:
                part.tell(answers[place : place + part.count], error)
                place += part.count
        self._landed.set()
        if self._offering:
            self._look_soon()

    async def _serve(self) -> None:
        """Publish once by a task, which opens the connection, and brings the script to the server."""
        self._under_way = []
        frames = self._next()
        self._needs_task = any(lane.publishes for lane in self._offering)  # there was not room for all
        answers: Sequence[Answer] = ()
        failed: Exception | None = None
        if frames:
            try:
                answers = await self._node.publish(frames)
            except Exception as error:  # noqa: BLE001 - whatever it is, who offered must hear of it
                failed = error
        self._answered(answers, failed)

    def _next(self) -> Sequence[PublishedFrame]:
        """Take the frames that go together: those for the run in which the node is addressed."""
        run, offering, now_s = self.run, self._offering, self._loop.time()
        frames: list[PublishedFrame] = []
        size = 0
        while offering and len(frames) < REQUEST_FRAMES_MAX and size < REQUEST_BYTES_MAX:
            lane = next(iter(offering))
            del offering[lane]
            taken, told = lane.take()
            if not taken:
                continue
            if lane.run != run:
                gone = f"node {self.name!r} has restarted, and this connection has not received the new plan yet"
                told((), Unreachable(gone))
                continue
            self._under_way.append(_Part(len(taken), now_s + lane.limit_s, told))
            if not frames and not offering:
                frames = list(taken)
                break
            frames += taken
            size += sum(len(frame.body) for frame in taken)
        if frames:
            self._limit.begin(min([part.due_s for part in self._under_way]) - now_s)
        return frames

    def _overdue(self) -> None:
        """Give up what is waited for no longer."""
        now_s = self._loop.time()
        waiting = [part for part in self._under_way if part.told is not None]
        late = [part for part in waiting if part.due_s <= now_s]
        if len(late) == len(waiting):
            self._node.break_off()  # which tells them why
        for part in late:
            part.tell((), Unreachable(f"node {self.name!r} does not answer"))
        if len(late) < len(waiting):
            self._limit.begin(min(part.due_s for part in waiting if part.due_s > now_s) - now_s)


class IngressLane:
    """One connection's access to the publishing at a node. Implements `adapters.network.Lane`."""

    def __init__(self, ingress: Ingress, plan: Plan, sender: Sender | None) -> None:
        """Use `Ingress.lane`."""
        self._ingress, self._sender = ingress, sender
        self.run = plan.runs.get(ingress.name, "")
        self.limit_s = min(REPLY_S_MAX, sender.limit_s) if sender is not None else REPLY_S_MAX
        self._own: tuple[Sequence[PublishedFrame], Answered] | None = None
        """What `publish` has, until it is taken."""

    def follow(self, plan: Plan) -> None:
        """See `Lane.follow`."""
        self.run = plan.runs.get(self._ingress.name, "")
        self._ingress.follow(plan)

    async def publish(self, frames: Sequence[PublishedFrame]) -> list[Answer]:
        """See `Lane.publish`."""
        answered: asyncio.Future[Sequence[Answer]] = asyncio.get_running_loop().create_future()
        self._own = frames, telling(answered)
        self._ingress.offer(self, by_task=True)
        try:
            return list(await answered)
        finally:
            self._own = None

    def offer(self) -> None:
        """See `Lane.offer`."""
        self._ingress.offer(self)

    def may_send(self) -> bool:
        """See `Lane.may_send`."""
        return self._own is None and self._ingress.may_send(self.run)

    def send(self, frame: PublishedFrame) -> None:
        """See `Lane.send`."""
        assert self._sender is not None
        self._ingress.send(self, frame, self._sender.answered)

    @property
    def publishes(self) -> bool:
        """Whether a `publish` waits to be taken."""
        return self._own is not None

    def take(self) -> tuple[Sequence[PublishedFrame], Answered]:
        """Return what is to be published now, and who takes the answers."""
        own, self._own = self._own, None
        if own is not None or self._sender is None:
            return own or _NOTHING_MORE
        return self._sender.take(), self._sender.answered

    def close_with(self, error: Exception) -> None:
        """Hear that nothing is taken any more."""
        own, self._own = self._own, None
        if own is not None:
            own[1]((), error)
        elif self._sender is not None:
            self._sender.must_publish()

    async def close(self) -> None:
        """See `Lane.close`: the access stays open for the other connections."""


def _ignore(_answers: Sequence[Answer], _error: Exception | None) -> None:
    pass


_NOTHING_MORE: tuple[Sequence[PublishedFrame], Answered] = (), _ignore
_NOTHING = _Part(0, 0.0, _ignore)
