"""One process's connections to a network in Redis, for all of its subscribers and publishers that share them.

Each of them is a connection of its own to the network, with its own name, regions and guarantees. They share the
transport: one access to the control Redis, one leader candidate, one reader of the news, and for each node one
`adapters.shared.streams` and one `adapters.shared.lane`.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from adapters.backoff import Backoff
from adapters.redis.control import RedisControl
from adapters.redis.controlclient import ControlClient
from adapters.redis.network import RedisNetwork
from adapters.shared.lane import SharedIngress, SharedLane
from adapters.shared.reader import SharedReader
from adapters.shared.streams import SharedNode
from sequencing.errors import NetworkRestarted, is_passing
from sequencing.plan import Plan
from sequencing.record import Interest, Record

NEWS_BLOCK_MS = 2_000

Place = tuple[int, int]
"""Epoch and version of a plan."""

WISHES_MAX = 256
"""Redis does nothing else while it processes a request."""

RECORDS_KEPT = 32
"""Large records take megabytes; a connection that is further behind requests what it missed."""


class SharedNetwork:
    """The shared access of some connections of this process, from `open` to `close`."""

    def __init__(self, base: RedisNetwork) -> None:
        """``base``: the network, not open yet; what it starts lives as long as this object."""
        self._base = base
        self.turn = asyncio.Lock()
        self.control: RedisControl
        self.interests: SharedInterests
        self.news: SharedNews
        self._nodes: dict[str, SharedNode] = {}
        self._ingresses: dict[str, SharedIngress] = {}

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
        self.control, self.news = self._base.way_to_control(), SharedNews(self._base.way_to_control())
        self.interests = SharedInterests(self.control, self.turn)
        self._base.stand(self._base.way_to_control())

    async def close(self) -> None:
        """Release everything; connections that are still open then fail."""
        await asyncio.gather(*(ingress.close() for ingress in self._ingresses.values()))
        await asyncio.gather(*(node.close() for node in self._nodes.values()))
        await self.news.close()
        await self.interests.close()
        await self.control.close()
        await self._base.close()

    def view(self) -> SharedView:
        """Return the network as one connection sees it."""
        return SharedView(self)

    def node(self, name: str, plan: Plan) -> SharedNode:
        """Return the shared reading at a node."""
        if name not in self._nodes:
            self._nodes[name] = SharedNode(partial(self._base.lane, name, plan), name, plan)
        return self._nodes[name]

    def ingress(self, name: str, plan: Plan) -> SharedIngress:
        """Return the shared publishing at a node."""
        if name not in self._ingresses:
            self._ingresses[name] = SharedIngress(self._base.lane(name, plan), plan)
        return self._ingresses[name]


class SharedNews:
    """The announced records, read once for all connections of this process."""

    def __init__(self, control: RedisControl) -> None:
        self._control = control
        self._records: list[Record] = []
        self._waiting: set[SharedView] = set()
        self._failure: Exception | None = None
        self._closing = False
        self.restarts: list[NetworkRestarted] = []
        """The times at which the control Redis lost what it had announced."""
        self._task = asyncio.create_task(self._run(), name="gamecast shared news")

    def after(self, place: Place | None) -> list[Record] | None:
        """Return the records announced after a plan, in order, or the newest of all; None if they are not kept here."""
        if place is None or not self._records:
            return self._records[-1:]
        if place < _place(self._records[0].plan):
            return None
        return self._records[bisect_right(self._records, place, key=lambda record: _place(record.plan)) :]

    async def change(self, view: SharedView) -> None:
        """Wait until a view is woken: by a record that concerns it, or because there will be no more records.

        Raises the error that ended the reading.
        """
        if self._failure is not None:
            raise self._failure
        if not self._closing:
            self._waiting.add(view)
            await view.changed.wait()
            self._waiting.discard(view)

    def _wake(self) -> None:
        for view in self._waiting:
            view.changed.set()

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
                newest = await self._control.newest() if plan is None else None
                records = [newest] if newest else await self._control.news(plan, block_ms=NEWS_BLOCK_MS)
                backoff.reset()
            except Exception as error:  # noqa: BLE001 - whatever it is, the applications must hear of it
                if self._closing:
                    break
                if isinstance(error, NetworkRestarted):  # for existing connections, not for new ones
                    self.restarts.append(error)
                    self._records, plan = [], None
                    self._wake()
                    continue
                if not is_passing(error):
                    self._failure = error
                    self._wake()
                    break
                await backoff.wait()
                continue
            if records:
                self._records += records
                del self._records[:-RECORDS_KEPT]
                plan = records[-1].plan
                for view in self._waiting:
                    view.offer(records)
        await self._control.close()


class _Wanting(NamedTuple):
    """The interest of one connection, until ``heard`` is done."""

    name: str
    interest: Interest
    published: frozenset[str]
    heard: asyncio.Future[None]


class SharedInterests:
    """Stores the interests of this process's connections together: while a request is in progress, others gather.

    If they were stored one by one, the interests of a joining crowd would reach the leader one by one, and it would
    make a plan for every few of them.
    """

    def __init__(self, control: RedisControl, turn: asyncio.Lock) -> None:
        """``control``: an access that is shared with others, who take it by ``turn``."""
        self._control = control
        self._turn = turn
        self._waiting: list[_Wanting] = []
        self._telling: asyncio.Task[None] | None = None

    async def set_interest(self, name: str, interest: Interest, published: frozenset[str]) -> None:
        """See `RedisControl.set_interest`."""
        wanting = _Wanting(name, interest, published, asyncio.get_running_loop().create_future())
        self._waiting.append(wanting)
        if self._telling is None or self._telling.done():
            self._telling = asyncio.create_task(self._tell(), name="gamecast shared wishes")
        await wanting.heard

    async def close(self) -> None:
        """Close; the request in progress still gets its answer."""
        if self._telling is not None:
            await self._telling

    async def _tell(self) -> None:
        while self._waiting:
            async with self._turn:
                together, self._waiting = self._waiting[:WISHES_MAX], self._waiting[WISHES_MAX:]
                try:
                    refused = await self._control.set_interests(
                        [(one.name, one.interest, one.published) for one in together]
                    )
                except Exception as error:  # noqa: BLE001 - whatever it is, who wants must hear of it
                    failures: list[Exception | None] = [error] * len(together)
                else:
                    failures = [*refused]
            for one, failure in zip(together, failures, strict=True):
                if one.heard.done():
                    continue
                if failure is None:
                    one.heard.set_result(None)
                else:
                    one.heard.set_exception(failure)


class SharedView(ControlClient):
    """A shared network as one connection sees it. Implements `adapters.network.Network`."""

    def __init__(self, shared: SharedNetwork) -> None:
        """Use `SharedNetwork.view`."""
        super().__init__(shared.control, shared.turn)
        self._shared = shared
        self.url = shared.url
        self.changed = asyncio.Event()
        """Set when there may be news for this connection."""
        self._told: tuple[Plan, Interest | None, frozenset[str] | None] | None = None
        """The relevant content of the last record that concerned it.

        The whole record has the interests of all others.
        """
        self._passed: Place = 0, 0
        self._restarts = len(shared.news.restarts)
        self._stopping = False

    @property
    def cannot_lead(self) -> Exception | None:
        """See `ControlClient`."""
        return self._shared.cannot_lead

    async def set_interest(self, interest: Interest, published: frozenset[str]) -> None:
        """See `Network.set_interest`."""
        async with self._speaking():
            await self._shared.interests.set_interest(self._name, interest, published)

    async def close(self) -> None:
        """See `Network.close`: the shared access stays open."""
        await self.stop_watching()

    async def news(self, after: Plan | None, *, block_ms: int) -> list[Record]:
        """See `Network.news`; records that concern only others are left out. Waits for as long as it takes."""
        while not self._stopping:
            if len(restarts := self._shared.news.restarts) > self._restarts:
                raise restarts[-1]
            records = self._shared.news.after(max(_place(after), self._passed) if after is not None else None)
            if records is None:
                records = await self._control.news(after, block_ms=1, turn=self._turn)
            told = list[Record]()
            for record in records:
                if self._concerns(record):
                    self._told = record.plan, record.heard.get(self._name), record.members.get(self._name)
                    told.append(record)
            if told:
                return told
            if records:
                self._passed = _place(records[-1].plan)
                continue
            self.changed.clear()
            await self._shared.news.change(self)
        return []

    def offer(self, records: Sequence[Record]) -> None:
        """Wake this connection if a record concerns it; otherwise skip the records."""
        if any(map(self._concerns, records)):
            self.changed.set()
        else:
            self._passed = _place(records[-1].plan)

    def _concerns(self, record: Record) -> bool:
        """Return whether a record has news for this connection; most records are about other subscribers that join."""
        if self._told is None:
            return True
        plan, (told, heard, granted) = record.plan, self._told
        if not plan.is_laid_out_as(told) or plan.nodes != told.nodes or plan.runs != told.runs:
            return True
        return record.heard.get(self._name) != heard or record.members.get(self._name) != granted

    async def stop_watching(self) -> None:
        """See `Network.stop_watching`."""
        self._stopping = True
        self.changed.set()

    def lane(self, node: str, plan: Plan) -> SharedLane:
        """See `Network.lane`."""
        return self._shared.ingress(node, plan).lane(plan)

    def reader(self, node: str, plan: Plan) -> SharedReader:
        """See `Network.reader`."""
        shared = self._shared.node(node, plan)
        shared.follow(plan)
        return SharedReader(shared, plan)


def _place(plan: Plan) -> Place:
    return plan.epoch, plan.version
