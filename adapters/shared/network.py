"""One process's connections to a network in Redis, for all of its subscribers and publishers that share them.

Each of them is a connection of its own to the network, with its own name, regions and guarantees. They share the
transport: one access to the control Redis, one leader candidate, one reader of the news, and for each node one
`adapters.shared.streams` and one `adapters.shared.lane`.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Generic, Literal, TypeVar

from adapters.background import keep_running
from adapters.backoff import Backoff
from adapters.network import UpdateUser
from adapters.redis.announced import Told, Viewpoint
from adapters.redis.control import RedisControl, new_box
from adapters.redis.controlclient import ControlClient
from adapters.redis.network import RedisNetwork
from adapters.shared.closed import closed_error
from adapters.shared.lane import SharedIngress, SharedLane
from adapters.shared.reader import SharedReader
from adapters.shared.streams import SharedNode
from sequencing.errors import NetworkRestarted, Superseded, is_passing, superseded_message
from sequencing.plan import Plan
from sequencing.record import Record, Request

if TYPE_CHECKING:
    from adapters.redis.updates import HubPort, UpdateHub

NEWS_BLOCK_MS = 3_000

Place = tuple[int, int]
"""Epoch and version of a plan."""

BEAT_WITHIN_S = 0.25
"""Heartbeats that come so soon after one another are sent together, and from then on at the same time."""

WISHES_MAX = 256
"""Redis does nothing else while it processes a request."""

RECORDS_KEPT = 64
"""A connection that is further behind requests what it missed, unless all of that was read at once."""


class SharedNetwork:
    """The shared access of some connections of this process, from `open` to `close`."""

    def __init__(self, base: RedisNetwork) -> None:
        """``base``: the network, not open yet; what it starts lives as long as this object."""
        self._base = base
        self.turn = Turn()
        self._closing = False
        self.control: RedisControl
        self.joins: Together[tuple[str, Request], bool]
        self.beats: Together[tuple[str, int, int], bool]
        self.news: SharedNews
        self._nodes: dict[str, SharedNode] = {}
        self._ingresses: dict[str, SharedIngress] = {}
        self._updates: UpdateHub | None = None

    @property
    def url(self) -> str:
        """The control URL."""
        return self._base.url

    @property
    def cannot_lead(self) -> Exception | None:
        """See `ControlClient`."""
        return self._base.cannot_lead

    async def open(self) -> None:
        """Connect to the control Redis, and run a leader candidate."""
        try:
            await self._base.open()
        except BaseException:
            await self._base.close()
            raise
        self.control, reading = self._base.way_to_control(), self._base.way_to_control()
        self.control.box = reading.box = new_box()
        self.news = SharedNews(reading)
        self.joins = Together(self.control.join, self.turn, "joins")
        self.beats = Together(self.control.beats, self.turn, "heartbeats")
        self._base.stand(self._base.way_to_leading())

    async def close(self) -> None:
        """Release everything; connections that are still open then fail with `NotConnected`."""
        self._closing = True
        await asyncio.gather(*(ingress.close() for ingress in self._ingresses.values()))
        await asyncio.gather(*(node.close() for node in self._nodes.values()))
        if self._updates is not None:
            await self._updates.close()
        await self.news.close()
        for together in (self.joins, self.beats):
            await together.close()
        await self.turn.close()
        await self.control.close()
        await self._base.close()

    def require_open(self) -> None:
        """Raise `NotConnected` once this closes: a connection that it does not know of would begin something new."""
        if self._closing:
            raise closed_error()

    def view(self) -> SharedView:
        """Return the network as one connection sees it."""
        return SharedView(self)

    async def listed(self) -> Record | None:
        """See `Network.listed`."""
        return await self._base.listed()

    def updates(self, user: UpdateUser) -> HubPort:
        """Return one connection's access to the shared updates."""
        self.require_open()
        if self._updates is None:
            self._updates = self._base.update_hub()
        return self._updates.port(user)

    def node(self, name: str, plan: Plan) -> SharedNode:
        """Return the shared reading at a node."""
        self.require_open()
        if name not in self._nodes:
            self._nodes[name] = SharedNode(partial(self._base.lane, name, plan), name, plan)
        return self._nodes[name]

    def ingress(self, name: str, plan: Plan) -> SharedIngress:
        """Return the shared publishing at a node."""
        self.require_open()
        if name not in self._ingresses:
            self._ingresses[name] = SharedIngress(self._base.lane(name, plan), plan)
        return self._ingresses[name]


class Turn(asyncio.Lock):
    """Taken for each request to the control Redis, which would open the connection again that was closed."""

    _is_over = False

    async def close(self) -> None:
        """Let the request under way end, and make those that wait, and all later ones, fail with `NotConnected`."""
        async with self:
            self._is_over = True

    async def acquire(self) -> Literal[True]:
        """Take it."""
        if not self._is_over:
            await super().acquire()
            if not self._is_over:
                return True
            self.release()
        raise closed_error()


class SharedNews:
    """What is announced, read once for all connections of this process."""

    def __init__(self, control: RedisControl) -> None:
        self._control = control
        self._told: list[Told] = []
        self._waiting: dict[str, set[SharedView]] = {}
        """Name → its connections that wait."""
        self._awaiting_places: set[SharedView] = set()
        """Those of them that wait for a place of a region, too."""
        self._failure: Exception | None = None
        self._closing = False
        self.superseded: dict[str, int] = {}
        """Name → incarnation, of connections of this process that others have superseded."""
        self.restarts: list[NetworkRestarted] = []
        """The times at which the control Redis lost what it had announced."""
        self._task = keep_running(self._run, name="gamecast shared news", on_failure=self._fail)

    def after(self, place: Place | None) -> list[Told] | None:
        """Return what was announced after a plan, in order, or the newest of all; None if that is not kept here."""
        if place is None or not self._told:
            return self._told[-1:]
        if place < _place(self._told[0].plan):
            return None
        return self._told[bisect_right(self._told, place, key=lambda told: _place(told.plan)) :]

    async def change(self, view: SharedView) -> None:
        """Wait until a view is woken: by a record that concerns it, or because there will be no more records.

        Raises the error that ended the reading, and `NotConnected` when it was closed: a wait that returned at once
        would have its caller wait again, for good, and nothing else of the event loop would run.
        """
        if self._failure is not None:
            raise self._failure
        if self._closing:
            raise closed_error()
        self._waiting.setdefault(view.name, set()).add(view)
        self.await_places(view)
        try:
            await view.changed.wait()
        finally:
            self._awaiting_places.discard(view)
            self._waiting[view.name].discard(view)
            if not self._waiting[view.name]:
                del self._waiting[view.name]

    def await_places(self, view: SharedView) -> None:
        """Tell a view of the first places that it waits for, if it waits at all."""
        if view.awaits_places and view in self._waiting.get(view.name, ()):
            self._awaiting_places.add(view)

    @property
    def latest(self) -> Place:
        """The newest plan."""
        return _place(self._told[-1].plan) if self._told else (0, 0)

    def _wake(self) -> None:
        for view in chain.from_iterable(self._waiting.values()):
            view.wake(self.latest)

    def _offer(self, told: Sequence[Told]) -> None:
        """Add announcements, and wake those whom they concern."""
        passed = self.latest
        self._told += told
        del self._told[: -max(RECORDS_KEPT, len(told) + 1)]
        concerned = set(self._awaiting_places)
        for each in told:
            names = each.people if each.is_growth else self._waiting
            concerned.update(chain.from_iterable(self._waiting.get(name, ()) for name in names))
        for view in concerned:
            if view.is_concerned_by(told):
                view.wake(passed)

    def _tell_superseded(self) -> None:
        newer, self._control.superseded = self._control.superseded, {}
        for name, incarnation in newer.items():
            for view in self._waiting.get(name, ()):
                if incarnation > view.connection:
                    self.superseded[name] = incarnation
                    view.wake(self.latest)

    def _fail(self, error: Exception) -> None:
        self._failure = error
        self._wake()

    async def close(self) -> None:
        """Stop."""
        self._closing = True
        self._wake()
        await self._control.close()
        await self._task

    async def _run(self) -> None:
        backoff = Backoff()
        plan: Plan | None = None
        while not self._closing:
            try:
                told = await self._control.news(plan, block_ms=NEWS_BLOCK_MS, at_box=True)
                backoff.reset()
            except Exception as error:  # noqa: BLE001 - whatever it is, the applications must hear of it
                if self._closing:
                    break
                if isinstance(error, NetworkRestarted):  # for existing connections, not for new ones
                    self.restarts.append(error)
                    self._told, plan = [], None
                    self._wake()
                    continue
                if not is_passing(error):
                    self._fail(error)
                    break
                await backoff.wait()
                continue
            self._tell_superseded()
            if told:
                self._offer(told)
                plan = told[-1].plan
        await self._control.close()


Asked = TypeVar("Asked")
Answer = TypeVar("Answer")


class Together(Generic[Asked, Answer]):
    """Sends the same requests of this process's connections together: while one is in progress, others gather.

    If requests were sent one by one, those of a joining crowd would reach the leader one by one, and it would make a
    plan for every few of them.
    """

    def __init__(
        self, send: Callable[[Sequence[Asked]], Awaitable[Sequence[Answer | Exception]]], turn: asyncio.Lock, what: str
    ) -> None:
        """``send``: returns the answer to each, in order, or its error; ``turn``: taken for each request."""
        self._send, self._turn, self._what = send, turn, what
        self._waiting: list[tuple[Asked, asyncio.Future[Answer]]] = []
        self._sending: asyncio.Task[None] | None = None
        self._at_once = asyncio.Event()
        self._closing = False

    async def ask(self, what: Asked, *, within_s: float = 0.0) -> Answer:
        """Return the answer; the request is sent within some seconds, with others."""
        if self._closing:
            raise closed_error()
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((what, answer))
        if not within_s:
            self._at_once.set()
        if self._sending is None or self._sending.done():
            self._sending = keep_running(partial(self._run, within_s), name=f"gamecast shared {self._what}")
        return await answer

    async def close(self) -> None:
        """Close; the requests in progress still get their answers."""
        self._closing = True
        self._at_once.set()
        if self._sending is not None:
            await self._sending

    async def _run(self, within_s: float) -> None:
        if within_s:
            with suppress(TimeoutError):
                async with asyncio.timeout(within_s):
                    await self._at_once.wait()
        while self._waiting:
            async with self._turn:
                self._at_once.clear()
                together, self._waiting = self._waiting[:WISHES_MAX], self._waiting[WISHES_MAX:]
                answers: Sequence[Answer | Exception]
                try:
                    answers = await self._send([asked for asked, _ in together])
                except Exception as error:  # noqa: BLE001 - whatever it is, who asks must hear of it
                    answers = [error] * len(together)
            for (_, heard), answer in zip(together, answers, strict=True):
                if heard.done():
                    continue
                if isinstance(answer, Exception):
                    heard.set_exception(answer)
                else:
                    heard.set_result(answer)


class SharedView(ControlClient):
    """A shared network as one connection sees it. Implements `adapters.network.Network`."""

    def __init__(self, shared: SharedNetwork) -> None:
        """Use `SharedNetwork.view`."""
        super().__init__(shared.control, shared.turn)
        self._shared = shared
        self.url = shared.url
        self.changed = asyncio.Event()
        """Cleared while this connection waits for news."""
        self.changed.set()
        self._viewpoint = Viewpoint()
        self._wants_newest = False
        """Whether it is to hear the newest plan, although that did not concern it."""
        self._passed: Place = 0, 0
        self._restarts = len(shared.news.restarts)
        self._stopping = False

    @property
    def name(self) -> str:
        """The name of the connection."""
        return self._name

    @property
    def connection(self) -> int:
        """Its incarnation."""
        return self._connection

    @property
    def cannot_lead(self) -> Exception | None:
        """See `ControlClient`."""
        return self._shared.cannot_lead

    async def introduce(self, name: str) -> int:
        """See `Network.introduce`."""
        connection = await super().introduce(name)
        self._shared.require_open()  # else what follows goes on without it
        self._viewpoint.belong_to(name, connection)
        return connection

    async def place(self, regions: frozenset[str]) -> None:
        """See `Network.place`."""
        self._viewpoint.await_places(regions)
        self._shared.news.await_places(self)
        newest = self._shared.news.after(None)
        placed = regions - newest[-1].plan.without_place(regions) if newest else frozenset[str]()
        if placed:
            # They were given one in an announcement that did not concern this connection then.
            self._wants_newest = True
            self.wake(self._shared.news.latest)
        if regions - placed:
            await super().place(regions - placed)

    async def join(self, request: Request) -> bool:
        """See `Network.join`."""
        async with self._speaking():
            is_granted = await self._shared.joins.ask((self._name, request))
            self._said = request.said
            return is_granted

    async def beat(self, *, at_once: bool = True) -> bool:
        """See `Network.beat`."""
        async with self._speaking():
            within_s = 0.0 if at_once else BEAT_WITHIN_S
            return await self._shared.beats.ask((self._name, self._connection, self._said), within_s=within_s)

    async def listed(self) -> Record | None:
        """See `Network.listed`."""
        return await self._shared.listed()

    async def close(self) -> None:
        """See `Network.close`: the shared access stays open."""
        await self.stop_watching()

    async def news(self, after: Plan | None, *, block_ms: int) -> list[Record]:
        """See `Network.news`; records that concern only others are left out. Waits for as long as it takes."""
        while not self._stopping:
            if len(restarts := self._shared.news.restarts) > self._restarts:
                raise restarts[-1]
            if self._shared.news.superseded.get(self._name, 0) > self._connection:
                raise Superseded(superseded_message(self._name))
            told = self._shared.news.after(max(_place(after), self._passed) if after is not None else None)
            if told is None:
                told = await self._control.news(after, block_ms=1, turn=self._turn)
            concerning = [each for each in told if after is None or self._viewpoint.concerns(each)]
            if not concerning and not told and self._wants_newest:
                self._wants_newest = False
                concerning = self._shared.news.after(None) or []
            records = [self._viewpoint.record(each) for each in concerning]
            if records:
                return records
            if told:
                self._passed = _place(told[-1].plan)
                continue
            self.changed.clear()
            await self._shared.news.change(self)
        return []

    @property
    def awaits_places(self) -> bool:
        """See `Viewpoint`."""
        return self._viewpoint.awaits_places

    def is_concerned_by(self, told: Sequence[Told]) -> bool:
        """Return whether one of some announcements has news for this connection."""
        return any(map(self._viewpoint.concerns, told))

    def wake(self, passed: Place) -> None:
        """Have this connection look for news after a plan; those before it did not concern it."""
        if not self.changed.is_set():  # else it has yet to read what was before that
            self._passed = passed
            self.changed.set()

    async def stop_watching(self) -> None:
        """See `Network.stop_watching`."""
        self._stopping = True
        self.wake(self._passed)

    def lane(self, node: str, plan: Plan) -> SharedLane:
        """See `Network.lane`."""
        return self._shared.ingress(node, plan).lane(plan)

    def reader(self, node: str, plan: Plan) -> SharedReader:
        """See `Network.reader`."""
        shared = self._shared.node(node, plan)
        shared.follow(plan)
        return SharedReader(shared, plan)

    def updates(self, user: UpdateUser) -> HubPort:
        """See `Network.updates`."""
        return self._shared.updates(user)


def _place(plan: Plan) -> Place:
    return plan.epoch, plan.version
