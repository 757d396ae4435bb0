"""A connection that runs a classic protocol: what `gamecast.classic.connect` returns.

    groups = {"forest": ["a", "b"], "river": ["a", "b", "c"]} async with gamecast.classic.connect(url, name="a",
    protocol="isis-overlapping", groups=groups) as client: await client.publish("forest", {"type": "spell"}) async for
    event in client: ...

The calls are those of `gamecast.Client`, as far as the protocol supports them: there are no plans, no history, no
replay. The members of a region are fixed beforehand; `laboratory.protocols.connection` is the layer below.
"""

from __future__ import annotations

import asyncio
import time
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import orjson

from adapters.embedded.server import EmbeddedServer
from adapters.redis.places import SINGLE_SERVER_SCHEMES
from classic.protocols import process as protocols
from classic.protocols.catalogue import find_protocol
from gamecast.arguments import checked_url, pairs_of
from gamecast.client.bundle import Bundle, Outcome
from gamecast.client.configuration import default_url
from gamecast.client.payloads import unfit_payload
from gamecast.client.watching import Handlers, SomeHandler
from gamecast.event import Event, Gap, Receipt, Statistics
from laboratory.protocols import connection as classic
from sequencing.errors import GamecastError, NotConnected, UnknownScheme, UsageError
from sequencing.names import check_region

SCHEMES = (*SINGLE_SERVER_SCHEMES, "memory", "embedded")
EPOCH = 1
"""Membership is fixed, so there is one epoch."""


class ProtocolClient:
    """A process of a classic protocol, with the calls of `gamecast.Client`."""

    def __init__(
        self,
        url: str | None,
        *,
        name: str,
        protocol: str,
        processes: Sequence[str] = (),
        groups: Mapping[str, Iterable[str]] | None = None,
        tree: Sequence[tuple[str, str]] = (),
        open_groups: bool = False,
        network: str = "default",
    ) -> None:
        """Use `gamecast.classic.connect`."""
        self._url = checked_url(default_url() if url is None else url)
        parts = urlsplit(self._url)
        if parts.scheme not in SCHEMES or (parts.scheme == "embedded" and parts.query):
            raise UnknownScheme(
                f"the mailboxes of a protocol are on one server: {', '.join(f'{s}://' for s in SCHEMES)}, "
                f"not {parts.scheme}://{'…?' + parts.query if parts.query else ''}"
            )
        self.name = name
        self.protocol = protocol
        self.setup = classic.prepare(name, protocol, processes, groups, tree=tree, open_groups=open_groups)
        classic.check_network(network)
        self._network = f"{network} {parts.netloc}" if parts.scheme == "memory" else network
        self._client: classic.ClassicClient | None = None
        self._opened = self._left = False
        self._kind = find_protocol(protocol)
        self._stack = AsyncExitStack()
        self._drained = False
        self._published: Counter[str] = Counter()
        self._delivered: Counter[str] = Counter()
        self._gaps = 0
        self._handlers = Handlers()

    @property
    def url(self) -> str:
        """The URL of the mailboxes, which the other processes use to join."""
        self._working()
        return self._url

    @property
    def absent(self) -> Mapping[str, float]:
        """The other processes of its groups that have not been heard of for 3 s → for how many seconds.

        A protocol that assumes no crashes may wait for them for good, and deliver nothing meanwhile. One that takes
        reports of crashes goes on after `suspect`. The log says so, too, once for each.
        """
        return dict(self._working().absent)

    async def open(self) -> Self:
        """Begin to take part; messages that other processes have sent before are available."""
        if self._opened:
            raise UsageError("a connection opens once: make another one with gamecast.classic.connect()")
        self._opened = True
        if urlsplit(self._url).scheme == "embedded":
            self._url = (await self._stack.enter_async_context(EmbeddedServer())).url
        mailbox = classic.mailbox_at(self._url, self._network, self.name)
        client = classic.ClassicClient(self.name, self.protocol, self.setup, mailbox)
        self._client = await self._stack.enter_async_context(client)
        return self

    async def close(self) -> None:
        """End now. The others wait for a process that has ended, unless the protocol survives crashes."""
        self._client = None
        await self._stack.aclose()

    async def drain(self) -> None:
        """Let iteration end after the present deliveries; then `close`."""
        self._working()
        self._drained = True

    async def subscribe(self, *regions: str, since: int | str | None = None, at: str = "") -> None:
        """Check that this process is in regions: their members were given to `gamecast.connect`.

        With a protocol whose groups change, a process that is not in a group asks to join it, and this returns when it
        is a member: what any member publishes from then on is delivered here. That takes the other members' answers.
        ``at``: the process that it asks, with a protocol for one group; one that has left passes the request on, as
        long as it is open. Raises `UsageError` for regions of other processes only, for an unknown ``at``, for
        ``since``, as there is no history to replay, and if `unsubscribe` is called meanwhile; raises `NotConnected` if
        the process is closed or removed first.
        """
        self._working()
        if since is not None:
            raise UsageError(f"{self.protocol} keeps no history to replay: leave out since")
        for region in map(check_region, regions):
            if issubclass(self._kind, protocols.Regrouping):
                self._working().regroup(joins=[region])
                await self._working().joined(region)
            elif self.name in self.setup.members(region) and not self._left:
                continue
            elif issubclass(self._kind, protocols.Joinable):
                self._working().join(at)
                self._left = False
                await self._working().joined()
            else:
                raise UsageError(
                    f"{self.name} is not in {region}, and who is in a group is fixed with a classic protocol: name it "
                    "in connect(groups=…), at every process"
                )

    async def unsubscribe(self, *regions: str) -> None:
        """Leave groups, with a protocol whose groups change; raises `UsageError` otherwise.

        With a protocol for one group, iteration ends when it is left.
        """
        if not issubclass(self._kind, protocols.Joinable):
            self._working().regroup(leaves=regions)
            return
        self._left = True
        self._working().leave()

    async def publish(self, region: str, payload: Any) -> Receipt:
        """Publish an event by the protocol. Its ``sequence`` counts the events that this process has published to the
        region.

        Raises `UsageError` for an unknown region or, where groups are closed, a region that this process is not in.
        """
        return self._hand_over(region, payload)

    def publish_async(self, region: str, payload: Any) -> asyncio.Future[Receipt]:
        """Publish, and return a future as `gamecast.Client` does; here it is always done."""
        receipt: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        receipt.set_result(self._hand_over(region, payload))
        return receipt

    def publish_batch(self, events: Iterable[tuple[str, Any]]) -> asyncio.Future[list[Receipt]]:
        """Publish events, and return a future as `gamecast.Client` does; here it is always done."""
        receipts: asyncio.Future[list[Receipt]] = asyncio.get_running_loop().create_future()
        taken = pairs_of(events, "publish_batch", "(region, payload) pairs")
        bundle = Bundle(receipts, [region for region, _ in taken])
        for region, payload in taken:
            try:
                outcome: Outcome = self._hand_over(region, payload)
            except GamecastError as error:
                outcome = error
            bundle.note(region, [outcome])
        return receipts

    def _hand_over(self, region: str, payload: Any) -> Receipt:
        check_region(region)
        packed = [time.time_ns(), payload]
        if isinstance(payload, bytes):
            packed = [packed[0], b64encode(payload).decode(), "bytes"]
        try:
            self._working().publish_now(region, packed)
        except orjson.JSONEncodeError as error:
            raise unfit_payload(region, error) from error
        self._published[region] += 1
        return Receipt(region, EPOCH, self._published[region])

    def suspect(self, process: str) -> None:
        """Report to the protocol that another process has crashed.

        Raises `UsageError` if it is no other process, or if the protocol takes no such reports.
        """
        self._working().suspect(process)

    def __aiter__(self) -> Self:
        self._working()
        return self

    async def __anext__(self) -> Event | Gap | protocols.Install:
        """Return the next delivery: an event, or an announcement of the protocol between events: a gap or a new view.

        ``sequence`` counts this process's deliveries of the region. With total order, and from the same beginning, an
        event has the same number at every process.
        """
        while True:
            client = self._working()
            if self._drained and not client.waiting:
                raise StopAsyncIteration
            match await client.take():
                case None:
                    raise StopAsyncIteration
                case protocols.Message() as message:
                    return self._event(message)
                case protocols.Gap():
                    self._gaps += 1
                    [region] = self.setup.groups
                    number = self._delivered[region] + 1
                    return Gap(region, EPOCH, number, number, f"{self.protocol} gave up waiting for what is missing")
                case protocols.Install() as view:
                    return view
                case protocols.Halt() if self._left:
                    raise StopAsyncIteration
                case protocols.Halt(left=True):
                    continue
                case protocols.Halt(reason):
                    raise NotConnected(f"the others went on without this process: {reason}")
                case protocols.Scheduled():
                    continue

    async def batches(self) -> AsyncIterator[list[Event | Gap | protocols.Install]]:
        """Yield lists of deliveries."""
        async for item in self:
            batch = [item]
            while self._working().waiting:
                batch.append(await anext(self))
            yield batch

    def on(self, region_pattern: str) -> Callable[[SomeHandler], SomeHandler]:
        """Register a handler for the events of the regions that match a pattern; see `run`."""
        return self._handlers.on(region_pattern)

    async def run(self) -> None:
        """Pass events to the handlers, one after the other, in order, until the connection is drained."""
        async for item in self:
            for handler in self._handlers.of(item) if isinstance(item, Event) else ():
                result = handler(item)
                if result is not None:
                    await result

    def statistics(self) -> Statistics:
        """Return a snapshot of the counters; those that a protocol does not have are 0."""
        return Statistics(
            published_events=self._published.total(),
            refused_events=0,
            buffered_events=0,
            received_frames=0,
            delivered_events=self._delivered.total(),
            held_frames=0,
            gaps=self._gaps,
            inbox_events=self._working().waiting,
            reconnects=0,
        )

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _event(self, message: protocols.Message) -> Event:
        sent_at_ns, payload, *packed = orjson.loads(message.payload)
        if packed:
            payload = b64decode(payload)
        self._delivered[message.group] += 1
        number = self._delivered[message.group]
        return Event(message.group, message.sender, payload, EPOCH, number, sent_at_ns, time.time_ns())

    def _working(self) -> classic.ClassicClient:
        if self._client is None:
            raise NotConnected
        return self._client
