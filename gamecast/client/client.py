"""`connect` and the connection that it returns."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, overload
from urllib.parse import urlsplit

from adapters.backoff import Backoff
from adapters.network import Network
from adapters.redis.control import TTL_MS
from gamecast.client.arguments import check_take, checked_handler, pairs_of
from gamecast.client.closing import CLOSE_S_MAX, FOLLOWING_ENDS_S, HALVES_END_S, close_until, until
from gamecast.client.configuration import Configuration, LimitOptions, WhenBehind, WhenFull, configured
from gamecast.client.following import Following
from gamecast.client.history import ReplayOrder, Since
from gamecast.client.incoming import Incoming
from gamecast.client.networks import network_of
from gamecast.client.outgoing import Outgoing
from gamecast.client.watching import (
    Callbacks,
    Handlers,
    Health,
    PublishErrorReporter,
    SomeGapHandler,
    SomeHandler,
    Status,
)
from gamecast.event import Event, Gap, Receipt, Statistics
from gamecast.version import __version__
from sequencing.errors import GamecastError, NetworkRestarted, NotConnected, Superseded, UsageError
from sequencing.plan import Ordering, Plan
from sequencing.record import pair_of

if TYPE_CHECKING:
    from gamecast.classic.protocolclient import ProtocolClient
    from gamecast.recording.options import Recording, RecordingStatistics
    from gamecast.recording.probes import Prober
    from gamecast.recording.recorder import Recorder
    from gamecast.recording.tap import Tap

SomeCallback = TypeVar("SomeCallback", bound=Callable[[Any], Awaitable[None] | None])


@overload
def connect(
    url: str | None = None,
    *,
    name: str | None = None,
    protocol: None = None,
    ordering: Ordering = "acyclic",
    when_full: WhenFull = "wait",
    when_behind: WhenBehind = "wait",
    routes: Mapping[str, str] | None = None,
    record: str | Path | Recording | None = None,
    **limits: Unpack[LimitOptions],
) -> Client: ...


@overload
def connect(
    url: str | None = None,
    *,
    name: str,
    protocol: str,
    processes: Sequence[str] = (),
    groups: Mapping[str, Iterable[str]] | None = None,
    tree: Sequence[tuple[str, str]] = (),
    open_groups: bool = False,
    network: str = "default",
) -> ProtocolClient: ...


def connect(
    url: str | None = None,
    *,
    name: str | None = None,
    protocol: str | None = None,
    **options: Any,
) -> Client | ProtocolClient:
    """Return a connection to a network; it opens with ``async with``, or with ``await connection.open()``.

    ``url``: ``redis://``, ``rediss://`` or ``unix://`` (the control Redis), ``redis+sentinel://HOST:PORT,…/SERVICE`` or
    ``redis+cluster://HOST:PORT,…`` (wherever it is now), ``memory://NAME`` (this process), ``embedded://`` or
    ``embedded://?nodes=3`` (private redis-servers, started and stopped by the connection). None means the environment's
    ``GAMECAST_URL``, else ``embedded://``.

    ``name``: by which subscribers know the sender; unique in the network, a newer connection takes it over. Generated
    when None. ``ordering``: what the network orders if it is new, see `Ordering`; in one with causal order, whoever
    publishes must ask for it, and publishes only to regions that it subscribes to. ``when_full``: whether a publish
    waits or is refused when the buffer is full; ``when_behind``: see `WhenBehind`. ``limits``: see `Limits`.

    ``routes``: where this process reaches a server of the network by another URL than the one that the network knows it
    by (through a tunnel, a port mapping, a proxy): known URL → URL to connect to. ``url`` is a known one too. Servers
    that Sentinel or a cluster names are not looked up in it.

    ``record``: the directory of a session, or a `Recording`, to which all is written that this connection publishes,
    receives and delivers; any number of connections may record into one. Needs the extra ``recording``. A full disk
    never makes the game wait: see `Client.recording`.

    ``protocol``: run a classic protocol instead of the sequencing network, by its name in the catalogue, over mailboxes
    on one server. Then ``name`` is needed, and everybody says the same ``groups`` (region → members) or, for one group
    of all, ``processes``; ``tree``, ``open_groups`` and ``network``: see `gamecast.classic.connect`. What the protocol
    assumes and that does not offer is refused, naming the protocols that would fit.

    Raises `UsageError` and its kinds at once when an argument cannot be right; does not block.
    """
    if protocol is None:
        return Client(configured(url, name=name, **options))
    if name is None:
        raise UsageError("with a classic protocol every process has a name that the others know: give name=…")
    from gamecast.classic.protocolclient import ProtocolClient  # and thirty protocols, for whoever asks for one

    try:
        return ProtocolClient(url, name=name, protocol=protocol, **options)
    except TypeError as error:
        raise UsageError(f"connect() has no such option with a protocol: {error}") from error


class Client:
    """A connection: publishes into the network, and hands out the events of its regions in order.

    Not safe for use from several threads, see `gamecast.blocking`; several tasks of one event loop may share it.
    """

    def __init__(self, configuration: Configuration, view: Callable[[], Network] | None = None) -> None:
        """Use `connect`. ``view``: returns the network as one connection sees it; found by the URL when None."""
        self.name = configuration.name
        self._configuration = configuration
        self._view = view or partial(network_of, configuration)
        self._handlers = Handlers()
        self._health = Health()
        self._quiet = PublishErrorReporter()
        self._caught_up = Callbacks("a replay that has ended")
        self._reset()

    def _reset(self) -> None:
        """Be as new, but for what the application has registered."""
        self._network = self._view()
        self._open_halves: tuple[Outgoing, Incoming] | None = None
        self._outgoing: Outgoing | None = None
        self._following: Following | None = None
        self._heart: asyncio.Task[None] | None = None
        self._recorder: Recorder | None = None
        self._tap: Tap | None = None
        self._prober: Prober | None = None
        self._stop_beating = asyncio.Event()
        self._closing: asyncio.Task[None] | None = None
        self._current: deque[Event | Gap] = deque()
        """What was read, and is to be handed out next."""
        self._reading = asyncio.Lock()
        self._coming: asyncio.Task[list[Event | Gap] | None] | None = None
        """The next batch, where `fetch` did not wait for it."""
        self._taking: list[list[Event | Gap]] = []
        """What calls of `fetch` have and have not returned yet."""
        self._ended_replays: list[frozenset[str]] = []
        """The regions of replays whose last events the application may still be looking at."""
        self._asking = 0
        """How many calls wait for events and have none to return."""

    @property
    def url(self) -> str:
        """The control URL, by which other connections join the same network."""
        self._halves()
        return self._network.url

    async def open(self) -> Self:
        """Reach the network. Raises `NetworkError` or `OtherSideError` and its kinds, with nothing left half-open."""
        if self._open_halves is not None or self._closing is not None:
            raise UsageError("a connection opens once: make another one with gamecast.connect()")
        try:
            await self._network.open()
            incarnation = await self._network.introduce(self.name)
            await self._begin_recording(incarnation)
        except BaseException:
            await self._network.close()
            raise
        outgoing = Outgoing(self._network, self._configuration, incarnation, self._health, self._quiet, self._tap)
        self._outgoing = outgoing
        incoming = Incoming(self._network, self._configuration, incarnation, outgoing, self._health, self._tap)
        incoming.on_caught_up = self._replay_ended
        self._open_halves = outgoing, incoming
        self._following = Following(self._network, outgoing, incoming, self._health)
        self._health.opened()
        self._following.start()
        self._heart = asyncio.create_task(self._beat(), name="gamecast heartbeat")
        return self

    async def reconnect(self) -> Self:
        """Close what is left of the connection and open it again, under the same name, with the same handlers.

        For a connection that has ended with `SessionExpired`, `NetworkRestarted`, `TooSlow` or `Superseded`, or that
        was closed. Nothing is subscribed to: subscribe again, after `NetworkRestarted` without ``since``, else with the
        positions of the last events that were taken. What was read and not taken is dropped, and iterations that are
        under way end. Raises as `open`; it can be called again then.
        """
        await self.close()
        self._reset()
        self._health.begin_again()
        return await self.open()

    async def close(self) -> None:
        """End now: reading stops, events that were not sent fail with `NotConnected`.

        Takes 2 s at most if a server does not answer: events that it has been sent then fail with `PublishUncertain`.
        Harmless when repeated; goes on to its end when the caller is cancelled.
        """
        if self._open_halves is None:
            return
        if self._closing is None:
            self._closing = asyncio.create_task(self._close(*self._open_halves), name="gamecast close")
        await asyncio.shield(self._closing)

    async def _close(self, outgoing: Outgoing, incoming: Incoming) -> None:
        self._stop_beating.set()
        began = asyncio.get_running_loop().time()
        try:
            if self._following is not None:
                await until(began + FOLLOWING_ENDS_S, self._following.close())
            await until(began + HALVES_END_S, asyncio.gather(outgoing.close(), incoming.close()))
            if self._coming is not None:
                self._coming.cancel()
                await asyncio.wait((self._coming,))
            if self._heart is not None:
                await until(began + CLOSE_S_MAX, self._heart)
            with suppress(GamecastError):  # without it, the network takes us for gone soon
                await until(began + CLOSE_S_MAX, self._network.leave())
        finally:
            try:
                await self._end_recording()
            finally:
                try:
                    if urlsplit(self._configuration.url).scheme == "embedded":
                        await self._network.close()  # its servers end with it
                    else:
                        await close_until(began + CLOSE_S_MAX, self._network.close())
                finally:
                    self._health.ended()

    async def _begin_recording(self, incarnation: int) -> None:
        record = self._configuration.record
        if record is None:
            return
        from gamecast.recording.recorder import open_recorder

        self._recorder = await asyncio.to_thread(
            open_recorder,
            record,
            version=__version__,
            ordering=self._configuration.ordering,
            url=self._network.url,
            is_private=urlsplit(self._configuration.url).scheme in ("embedded", "memory"),
        )
        self._tap = self._recorder.tap(self.name, incarnation)
        if record.probe_host is None:
            return
        from gamecast.recording.probes import Prober

        prober = Prober(self._network, self._recorder, record, self.name)
        try:
            await prober.start()
        except BaseException:
            await self._end_recording()
            raise
        self._prober = prober

    async def _end_recording(self) -> None:
        if self._prober is not None:
            await self._prober.close()
        if self._recorder is not None and self._tap is not None:
            self._recorder.close_tap(self._tap)
            await asyncio.to_thread(self._recorder.release)

    async def drain(self) -> None:
        """Finish first: publish what is buffered, and let iteration end after what has arrived; then `close`."""
        outgoing, incoming = self._working()
        await outgoing.flush()
        incoming.drain()

    async def subscribe(
        self, *regions: str, since: Since | None = None, order: ReplayOrder = "common"
    ) -> dict[str, str]:
        """Follow regions, at any time; returns when everything published from now on will be delivered.

        Returns region → the position after which its events come: with those of the last events that were taken, it is
        from where another connection of this name goes on, when given as ``since`` of one call.

        ``since``: a position of the region, or an epoch (0 is the oldest), after which to replay; or one for each
        region, as a mapping. What was published before comes first, as far as it is kept, in the order of everybody,
        and a `Gap` for what is not kept; without a hole or a repeat it is followed by what is published from now on.
        ``order="any"``: regions that have no common order are replayed too, in any order; see `ReplayOrder`.
        Events from history have ``replayed`` set, and `on_caught_up` hears when they have been delivered. Against other
        regions that are subscribed to already, history has no order: it comes late.

        Raises `InvalidName`, `Superseded`, and `Unreachable` when that takes longer than ``subscribe_timeout_s``: the
        regions stay asked for, and another call waits on. Raises `BufferFull` when too many events come meanwhile that
        nobody takes. With ``since``, raises `UnknownPosition` for one that the network never gave, and
        `UnorderedHistory`, unless ``order="any"``, for regions of which no subscriber had both while events came. Then
        nothing is subscribed to.
        """
        begins = await self._working()[1].subscribe(regions, since, order)
        return {region: f"{epoch}-{sequence}" for region, (epoch, sequence) in begins.items()}

    async def unsubscribe(self, *regions: str) -> None:
        """Follow these regions no more: when this has returned, nothing of them is handed out.

        With ``ordering="causal"`` what was published in them has to come back first, or what is published next could
        overtake it: raises `BufferFull` if that cannot be read, because the application takes no events, and
        `Unreachable` if it takes too long; the regions stay subscribed then.
        """
        await self._working()[1].unsubscribe(regions)
        if self._coming is not None and self._coming.done() and self._coming.exception() is None:
            self._current.extend(self._coming.result() or ())
            self._coming = None
        kept = [event for event in self._current if event.region not in regions]
        self._current.clear()
        self._current.extend(kept)
        for taken in self._taking:
            taken[:] = [event for event in taken if event.region not in regions]

    async def declare_overlaps(self, overlaps: Iterable[tuple[str, str]]) -> None:
        """Declare pairs of regions that some subscribers will have both of: of a grid, cells that lie side by side.

        They are ordered from now on, whoever is there. In a network where overlaps are expected, who walks from one
        of them into another joins in place; all that somebody has at once and that was not expected takes a new epoch,
        as it does everywhere. Declared is declared: there is no way back, and saying it again changes nothing. Returns
        when the network knows; what follows takes some time. Raises `InvalidName`, and `UsageError` for a region
        with itself.
        """
        pairs = pairs_of(overlaps, "declare_overlaps", "pairs of regions")
        expected = frozenset(pair_of(one, other) for one, other in pairs)
        self._working()
        await self._network.declare_overlaps(expected)

    async def publish(self, region: str, payload: Any) -> Receipt:
        """Publish an event; returns when the region's ingress has it.

        ``payload``: whatever orjson takes, or `bytes`. Waits while the buffer is full, or raises `BufferFull`, as
        configured. Raises `InvalidPayload`, `PayloadTooLarge`, `InvalidName`, `PlanError`, `Refused`, `Unreachable`, or
        `PublishUncertain`, the only one after which the event may have been published.
        """
        return await self._halves()[0].publish(region, payload)

    def publish_async(self, region: str, payload: Any) -> asyncio.Future[Receipt]:
        """Publish an event without waiting: returns a future of its receipt, which fails as `publish` does.

        What is called in one go shares frames. Raises at once for what can never be published, and `BufferFull`.
        """
        if self._outgoing is None:
            raise NotConnected
        return self._outgoing.publish_async(region, payload)

    def publish_nowait(self, region: str, payload: Any) -> None:
        """Publish an event and forget it: nothing is returned, and nobody has to wait.

        `Statistics.refused_events` counts those that were not published, or may not have been, and `on_publish_error`
        tells of them. Raises at once for what can never be published, and `BufferFull`.
        """
        if self._outgoing is None:
            raise NotConnected
        self._outgoing.publish_nowait(region, payload)

    def publish_batch(self, events: Iterable[tuple[str, Any]]) -> asyncio.Future[list[Receipt]]:
        """Publish events, (region, payload) each, without waiting: returns a future of their receipts, in this order.

        For what comes together, like all that happened within a tick: it takes less than a future for each. Events of
        one region are published in this order. Raises at once, and publishes nothing, for what can never be published,
        and `BufferFull`. The future fails with `PartlyPublished`, which tells of each event, unless none of them was
        published for certain: then as `publish` does.
        """
        if self._outgoing is None:
            raise NotConnected
        return self._outgoing.publish_batch(events)

    def __aiter__(self) -> Self:
        self._halves()
        return self

    async def __anext__(self) -> Event | Gap:
        """Return the next event in order, or a `Gap` in the place of missing ones; ends when the connection closes.

        A call that is cancelled, by a timeout say, takes no event with it.
        """
        if not self._current:
            batch = await self._next_batch()
            if batch is None:
                raise StopAsyncIteration
            self._current.extend(batch)
        return self._current.popleft()

    async def fetch(self, max_events: int = 1_000, timeout: float | None = 0) -> list[Event | Gap]:  # noqa: ASYNC109
        """Return the next events in order, at most so many, and none if none come within ``timeout`` seconds.

        Made for tick loops: with 0 it returns what is there. None waits until something is. Raises `NotConnected` when
        nothing more will come; `asyncio.timeout` around it takes no event away.
        """
        check_take(max_events, timeout)
        incoming, current, taken = self._halves()[1], self._current, list[Event | Gap]()
        deadline = None if timeout is None else time.monotonic() + timeout
        self._taking.append(taken)
        try:
            while True:
                if self._ended_replays and not current and not taken:
                    self._tell_ended_replays()
                while current and len(taken) < max_events:
                    taken.append(current.popleft())
                if len(taken) == max_events:
                    return taken
                if self._coming is None and incoming.has_next and not self._reading.locked():
                    batch = await (self._read() if taken else self._read_for_somebody())
                else:
                    # A read of history that a tick did not wait for goes on until the next one.
                    coming = self._coming
                    if coming is None:
                        coming = self._coming = asyncio.create_task(self._read(), name="gamecast fetch")
                    had_some = bool(taken)
                    left_s = None if deadline is None else max(0.0, deadline - time.monotonic())
                    await (self._wait_for(coming, left_s) if not had_some else asyncio.wait((coming,), timeout=0))
                    if self._coming is not coming:
                        continue  # another task has it, and may have left something
                    if had_some and not taken and not coming.done() and (left_s is None or left_s > 0):
                        continue  # all of it was of regions that another task has unsubscribed from
                    if not coming.done() or (taken and coming.exception() is not None):
                        return taken
                    self._coming = None
                    batch = coming.result()
                if batch is None:
                    if not taken:
                        raise NotConnected("the connection is closed, and all that came before has been taken")
                    return taken
                current.extend(batch)
        except BaseException:
            current.extendleft(reversed(taken))
            raise
        finally:
            # By identity: lists compare by what they have.
            self._taking = [each for each in self._taking if each is not taken]

    async def _next_batch(self) -> list[Event | Gap] | None:
        """Return what others have left, or else what comes next; None at the end."""
        while not self._current:
            if self._ended_replays:
                self._tell_ended_replays()
            coming = self._coming
            if coming is None:
                batch = await self._read_for_somebody()
            else:
                await self._wait_for(coming, None)
                if self._coming is not coming:
                    continue  # another task has it, and may have left something
                self._coming = None
                batch = coming.result()
            if batch is None or batch:
                return batch
        left = [*self._current]
        self._current.clear()
        return left

    async def _read(self) -> list[Event | Gap] | None:
        """Return what comes next, None at the end; nothing where something is left by the time of one's turn.

        Whoever reads history is alone with it; and what a task leaves comes before all that is read after it.
        """
        async with self._reading:
            return [] if self._current else await self._halves()[1].next_batch()

    async def _read_for_somebody(self) -> list[Event | Gap] | None:
        """As `_read`, for a call that has nothing to return yet."""
        self._asking += 1
        try:
            return await self._read()
        finally:
            self._asking -= 1

    async def _wait_for(self, coming: asyncio.Task[list[Event | Gap] | None], timeout_s: float | None) -> None:
        """Wait for the next batch, for a call that has nothing to return yet."""
        self._asking += 1
        try:
            await asyncio.wait((coming,), timeout=timeout_s)
        finally:
            self._asking -= 1

    def _replay_ended(self, regions: frozenset[str]) -> None:
        """Report that a replay has ended, at once if its events have been returned and the application asks for more.

        `fetch` reads ahead of what it returns: then the next call reports it.
        """
        self._ended_replays.append(regions)
        if self._asking:
            self._tell_ended_replays()

    def _tell_ended_replays(self) -> None:
        ended, self._ended_replays = self._ended_replays, []
        for regions in ended:
            self._caught_up.tell(regions)

    def batches(self) -> Batches:
        """Iterate over lists of events, as they become deliverable: the fastest way to take many."""
        self._halves()
        return Batches(self._next_batch)

    def on(self, region_pattern: str) -> Callable[[SomeHandler], SomeHandler]:
        """Register a handler for the events of the regions that match a pattern (``*``, ``?``, ``[…]``); see `run`."""
        return self._handlers.on(region_pattern)

    def on_gap(self, handler: SomeGapHandler) -> SomeGapHandler:
        """Register a handler for gaps: `run` calls it with each `Gap`, in its place among the events."""
        return self._handlers.on_gap(handler)

    def on_caught_up(self, callback: SomeCallback) -> SomeCallback:
        """Register a function that is called when a replay has ended, with its regions, a `frozenset`.

        That is once for each ``subscribe(…, since=…)``, also if there was nothing to replay, with those of its regions
        that are still subscribed to. It is called when the application asks for more after the last replayed event:
        ``async for``, `fetch`, `batches` and `run` alike. A plain function returns before the next event is delivered;
        a coroutine function is started, and nothing waits for it.
        """
        self._caught_up.add(checked_handler(callback))
        return callback

    def on_status(self, callback: SomeCallback) -> SomeCallback:
        """Register a function that is called with the `Status` whenever that changes: also while nothing comes."""
        self._health.callbacks.add(checked_handler(callback))
        return callback

    def on_publish_error(self, callback: SomeCallback) -> SomeCallback:
        """Register a function that is called with `PublishFailure` for events that were not published.

        It has their region, error and payloads, so that they can be published again. It is called for events of
        `publish_nowait`, and for those whose futures, of `publish_async` and `publish_batch`, nobody has awaited a
        second after they failed.
        """
        self._quiet.callbacks.add(checked_handler(callback))
        return callback

    @property
    def status(self) -> Status:
        """How the connection stands."""
        return self._health.status

    async def run(self) -> None:
        """Hand events to the handlers, one after the other, in order, until the connection closes.

        Gaps go to those of `on_gap`; without one, they are logged.
        """
        async for item in self:
            for handler in self._handlers.of(item):
                result = handler(item)
                if result is not None:
                    await result

    async def plan(self) -> Plan | None:
        """Return the network's newest plan, None before the first publish."""
        self._working()
        return await self._network.latest_plan()

    async def ping(self) -> None:
        """Return when the network has said that this is the connection of its name; raises `Superseded` if not."""
        self._working()
        await self._tell_of_life()

    def statistics(self) -> Statistics:
        """Return a snapshot of the counters."""
        outgoing, incoming = self._halves()
        return Statistics(
            published_events=outgoing.published_events,
            refused_events=outgoing.refused_events,
            buffered_events=outgoing.buffered_events,
            received_frames=incoming.received_frames,
            delivered_events=incoming.delivered_events,
            held_frames=incoming.held_frames,
            gaps=incoming.gaps,
            inbox_events=incoming.inbox_events,
            reconnects=outgoing.reconnects + incoming.reconnects,
            hold=incoming.holding.times,
        )

    def recording(self) -> RecordingStatistics | None:
        """Return what is recorded and what could not be, None where nothing is; also after closing."""
        return self._recorder.statistics() if self._recorder is not None else None

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close; without an exception, publish first what is still buffered."""
        try:
            if kind is None and self._closing is None:
                await self._halves()[0].flush()
        finally:
            await self.close()

    def _halves(self) -> tuple[Outgoing, Incoming]:
        if self._open_halves is None:
            raise NotConnected
        return self._open_halves

    def _working(self) -> tuple[Outgoing, Incoming]:
        if self._closing is not None:
            raise NotConnected("the connection is closed: open another one")
        return self._halves()

    async def _tell_of_life(self) -> None:
        if await self._network.beat() and self._following is not None:
            self._following.tell_again()

    async def _beat(self) -> None:
        backoff = Backoff()
        wait_s = usual_s = TTL_MS / 3000
        while not self._stop_beating.is_set():
            try:
                async with asyncio.timeout(wait_s):
                    await self._stop_beating.wait()
            except TimeoutError:
                try:
                    await self._tell_of_life()
                    backoff.reset()
                    self._health.mark_up("heartbeat")
                    wait_s = usual_s
                except (Superseded, NetworkRestarted) as error:
                    if self._following is not None:
                        self._following.fail(error)
                    return
                except Exception as error:  # noqa: BLE001 - without a heartbeat the network takes us for gone
                    self._health.mark_down("heartbeat", error)
                    wait_s = backoff.next_s()


class Batches:
    """An async iterator over lists of events; cancelling a call takes no event with it."""

    def __init__(self, next_batch: Callable[[], Awaitable[list[Event | Gap] | None]]) -> None:
        """Use `Client.batches`."""
        self._next_batch = next_batch

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> list[Event | Gap]:
        """Return the next events; ends when the connection closes."""
        batch = await self._next_batch()
        if batch is None:
            raise StopAsyncIteration
        return batch
