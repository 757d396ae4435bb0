"""The connection that `gamecast.connect` returns."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Mapping
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar
from urllib.parse import urlsplit

from adapters.network import Network
from adapters.places import Position
from gamecast.arguments import checked_handler, checked_regions, pairs_of
from gamecast.client.authority import Authority, Owners
from gamecast.client.calls import Calls, Entering
from gamecast.client.closing import CLOSE_S_MAX, FOLLOWING_ENDS_S, HALVES_END_S, close_until, until
from gamecast.client.configuration import Configuration
from gamecast.client.following import Following
from gamecast.client.heartbeat import Heartbeat
from gamecast.client.history import ReplayOrder, Since
from gamecast.client.incoming import Incoming
from gamecast.client.keys import NO_CONDITION, OnlyIf, Regions, about_event
from gamecast.client.networks import network_of
from gamecast.client.outgoing import Outgoing
from gamecast.client.pulling import Batches, Puller
from gamecast.client.receipts import Token
from gamecast.client.watching import (
    Callbacks,
    Handlers,
    Health,
    PublishErrorReporter,
    SomeGapHandler,
    SomeHandler,
    SomePresenceHandler,
    SomeStateHandler,
    Status,
)
from gamecast.event import Item, Presence, Receipt, State, Statistics, Update
from gamecast.positions import parse_position
from sequencing.doing import Doing
from sequencing.errors import GamecastError, NotConnected, UnknownPosition, UnorderedHistory, UsageError
from sequencing.plan import Plan
from sequencing.record import pair_of
from sequencing.session import Session

if TYPE_CHECKING:
    from gamecast.client.presence import Presences
    from gamecast.client.updating import Updating
    from gamecast.recording.attached import AttachedRecorder
    from gamecast.recording.options import RecordingStatistics

SomeCallback = TypeVar("SomeCallback", bound=Callable[[Any], Awaitable[None] | None])


class Client:
    """A connection: publishes into the network, and hands out the events of its regions in order.

    Not safe for use from several threads, see `gamecast.blocking`. Several tasks of one event loop may share it: each
    event goes to one of them, and each gets its own in order; one may get an event after another has got a later one.
    """

    def __init__(
        self,
        configuration: Configuration,
        view: Callable[[], Network] | None = None,
        all_open: set[Client] | None = None,
    ) -> None:
        """Use `gamecast.connect`.

        ``view``: returns the network as one connection sees it; None: found by the URL. ``all_open``: where the client
        is listed from `open` until it is closed.
        """
        self.name = configuration.name
        self._configuration = configuration
        self._view = view or partial(network_of, configuration)
        self._all_open = all_open if all_open is not None else set[Client]()
        self._handlers = Handlers()
        self._health = Health()
        self._quiet = PublishErrorReporter()
        self._caught_up = Callbacks("a replay that has ended")
        self._is_opening = False
        self._reset()

    def _reset(self) -> None:
        """Be as new, but for what the application has registered."""
        self._network = self._view()
        self._open_halves: tuple[Outgoing, Incoming] | None = None
        self._outgoing: Outgoing | None = None
        self._following: Following | None = None
        self._heartbeat: Heartbeat | None = None
        self._recorder: AttachedRecorder | None = None
        self._closing: asyncio.Task[None] | None = None
        self._clearing: set[asyncio.Task[None]] = set()
        """What looks for keys of entities in regions that these have left."""
        self._current: deque[Item] = deque()
        """What was read, and is delivered next: shared with the puller."""
        self._puller: Puller | None = None
        self._calls = Calls()
        self._session: Session[Token] | None = None
        self._presences: Presences | None = None
        """None until the application uses presence."""
        self._updating: Updating | None = None
        """None until the application uses updates."""

    @property
    def url(self) -> str:
        """The control URL, by which other connections join the same network."""
        self._halves()
        return self._network.url

    async def open(self) -> Self:
        """Reach the network. Raises `NetworkError` or `OtherSideError` and its kinds, with nothing left half-open."""
        if self._is_opening or self._open_halves is not None or self._closing is not None:
            raise UsageError("a connection opens once: make another one with gamecast.connect()")
        self._is_opening = True
        try:
            return await self._open()
        finally:
            self._is_opening = False

    async def _open(self) -> Self:
        try:
            await self._network.open()
            incarnation = await self._network.introduce(self.name)
            if self._configuration.record is not None:
                from gamecast.recording.attached import AttachedRecorder

                self._recorder = await AttachedRecorder.open(self._configuration, self._network, incarnation)
        except BaseException:
            await self._network.close()
            raise
        causal = self._configuration.ordering == "causal"
        session: Session[Token] = Session(self.name, incarnation, causal=causal)
        tap = self._recorder.tap if self._recorder is not None else None
        outgoing = Outgoing(self._network, self._configuration, session, self._health, self._quiet, tap)
        self._outgoing = outgoing
        incoming = Incoming(self._network, self._configuration, session, outgoing, self._health, tap)
        self._puller = Puller(incoming, self._current, self._caught_up)
        self._open_halves = outgoing, incoming
        self._all_open.add(self)
        self._following = Following(self._network, outgoing, incoming, self._health)
        self._session = session
        self._health.opened()
        self._following.start()
        self._heartbeat = Heartbeat(self._network, self._following, self._health, self._doing)
        return self

    async def reconnect(self) -> Self:
        """Close what is left of the connection and open it again, under the same name, with the same handlers.

        For a connection that has ended with `SessionExpired`, `NetworkRestarted`, `TooSlow` or `Superseded`, or that
        was closed. Nothing is subscribed to: subscribe again, after `NetworkRestarted` without ``since``, else with the
        positions of the last events that were taken. What was read and not taken is dropped, and iterations that are
        under way end. Raises as `open`; it can be called again then.
        """
        await self.close()
        if self._is_opening or self._is_open:
            raise UsageError("another task opens this connection again: one call of reconnect() is enough")
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
        for task in tuple(self._clearing):
            task.cancel()
        if self._heartbeat is not None:
            self._heartbeat.stop()
        began = asyncio.get_running_loop().time()
        if self._presences is not None:
            await until(began + FOLLOWING_ENDS_S, self._presences.close())
        try:
            if self._following is not None:
                await until(began + FOLLOWING_ENDS_S, self._following.close())
            await until(began + HALVES_END_S, asyncio.gather(outgoing.close(), incoming.close()))
            if self._updating is not None:
                await until(began + HALVES_END_S, self._updating.close())
            if self._puller is not None:
                await self._puller.close()
            if self._heartbeat is not None:
                await until(began + CLOSE_S_MAX, self._heartbeat.task)
            with suppress(GamecastError):  # without it, the network takes us for gone soon
                await until(began + CLOSE_S_MAX, self._network.leave())
        finally:
            try:
                if self._recorder is not None:
                    await self._recorder.close()
            finally:
                try:
                    if urlsplit(self._configuration.url).scheme == "embedded":
                        await self._network.close()  # its servers end with it
                    else:
                        await close_until(began + CLOSE_S_MAX, self._network.close())
                finally:
                    self._all_open.discard(self)
                    self._health.ended()

    async def drain(self) -> None:
        """Finish first: publish what is buffered, and let iteration end after what has arrived; then `close`."""
        outgoing, incoming = self._working()
        await outgoing.flush()
        incoming.drain()

    async def subscribe(
        self,
        *regions: str | Iterable[str],
        since: Since | None = None,
        order: ReplayOrder = "common",
        state: bool = False,
        presence: Mapping[str, Any] | Literal["watch"] | None = None,
    ) -> dict[str, str]:
        """Follow regions, at any time; returns when everything published from now on will be delivered.

        ``regions``: one by one, or in lists. All of them have names: a pattern like ``e:*`` is refused.

        Returns region → the position after which its events come: with those of the last events that were taken, it is
        from where another connection of this name goes on, when given as ``since`` of one call.

        ``since``: a position of the region, or an epoch (0 is the oldest), after which to replay; or one for each
        region, as a mapping. What was published before comes first, as far as it is kept, in the order of everybody,
        and a `Gap` for what is not kept; without a hole or a repeat it is followed by what is published from now on.
        ``order="any"``: regions that have no common order are replayed too, in any order; see `ReplayOrder`.
        Events from history have ``replayed`` set, and `on_caught_up` hears when they have been delivered. Against other
        regions that are subscribed to already, history has no order: it comes late. Their live events do not wait for
        it; so what is published in the new regions before it has caught up may come late, too, and then has
        ``replayed`` set.

        ``state=True``: a `State` comes first, with the last event of each key of the regions (see `publish`), and then
        everything after it, without a hole or a repeat, also where no history is kept. It has its place in the order of
        all regions.

        ``presence``: what others are to see of this connection in these regions, for as long as it is there; and
        `Presence` items tell it who else arrives and leaves, in their places among the events. ``"watch"``: only that.
        A `State` comes first, as with ``state=True``, and who is there already: see `present`. A leave comes for
        certain: if a connection is not heard of for 10 s, others publish it, and it ends with `SessionExpired`. Each
        arrival and leave is an event for all in the region, so this is for regions of up to 1,000 connections. Raises
        `UsageError` with ``since``, and in causal order.

        Raises `InvalidName`, `Superseded`, and `Unreachable` when that takes longer than ``subscribe_timeout_s``: the
        regions stay asked for, and another call waits on; but to begin with their state, unsubscribe first. Raises
        `BufferFull` when too many events come meanwhile, untaken. With ``since``, raises `UnknownPosition` for
        one that the network never gave, and `UnorderedHistory`, unless ``order="any"``, for regions of which no
        subscriber had both while events came. Then nothing is subscribed to.
        """
        self._working()
        wanted = frozenset(checked_regions(regions, "subscribe"))
        with self._calls.entering(wanted) as call:
            await call.begun()
            if wanted and not call.regions:
                return {}
            if isinstance(since, Mapping) and call.regions != wanted:
                since = {region: at for region, at in since.items() if region in call.regions}
            if presence is None:
                begins = await self._enter(call, since, order, state=state)
            else:
                begins = await self._enter_visibly(call, since, order, presence)
            return {region: f"{epoch}-{sequence}" for region, (epoch, sequence) in begins.items()}

    async def _enter(
        self, call: Entering, since: Since | None, order: ReplayOrder, *, state: bool
    ) -> dict[str, Position]:
        incoming = self._working()[1]
        try:
            return await incoming.subscribe(call.regions, since, order, state=state)
        except (UnknownPosition, UnorderedHistory):
            left = call.regions
            with self._calls.leaving(left):
                await incoming.unsubscribe(left)
            raise

    async def _enter_visibly(
        self, call: Entering, since: Since | None, order: ReplayOrder, presence: Mapping[str, Any] | Literal["watch"]
    ) -> dict[str, Position]:
        regions, incoming = call.regions, self._working()[1]
        presences = self._presences_for(regions, since, presence)
        try:
            begins = await incoming.subscribe(regions, since, order, state=True)
        except BaseException:
            incoming.unwatch_presence(regions)
            raise
        if presence != "watch":  # where it has not been left meanwhile
            await presences.arrive([region for region in begins if region in call.regions], dict(presence))
        return begins

    def watch_presence(self, *regions: str) -> None:
        """Have `Presence` items come with what is replayed, and follows, of regions that are resumed with ``since``.

        For who knows already who was there at these positions, like a gateway's client: `present` does not.
        """
        self._presences_for((), None, "watch")
        self._working()[1].watch_presence(regions, partly=True)

    async def arrive(self, regions: Mapping[str, Mapping[str, Any]]) -> None:
        """Say to others that this connection is in regions that it is subscribed to, as ``presence`` of `subscribe`."""
        for region, info in regions.items():
            await self._presences_for((), None, info).arrive([region], info)

    def present(self, region: str) -> dict[str, Any]:
        """Return who is in a region, name → what it says of itself, as of all that was taken.

        While you handle what `fetch` returned, that is the end of the batch: see `Presence.fold`.

        Raises `UsageError` unless the region is subscribed to with ``presence``.
        """
        roster = dict(self._halves()[1].roster(region))
        for item in reversed([*self._pulling().untaken()]):
            if isinstance(item, State) and region in item.values:
                return {}
            if isinstance(item, Presence) and item.region == region:
                if item.before is None:
                    roster.pop(item.name, None)
                else:
                    roster[item.name] = item.before
        return roster

    async def unsubscribe(self, *regions: str | Iterable[str]) -> None:
        """Follow these regions no more: when this has returned, nothing of them is delivered.

        With ``ordering="causal"`` what was published in them has to come back first, or what is published next could
        overtake it: raises `BufferFull` if that cannot be read, because the application takes no events, and
        `Unreachable` if it takes too long; the regions stay subscribed then.
        """
        self._working()
        left = frozenset(checked_regions(regions, "unsubscribe"))
        with self._calls.leaving(left):
            await self._leave(left)

    async def _leave(self, regions: frozenset[str]) -> None:
        if self._presences is not None:
            await self._presences.leave(regions)
        await self._working()[1].unsubscribe(regions)
        self._pulling().forget(regions)
        if self._updating is not None:
            self._updating.left(regions)
        if self._presences is not None:  # a subscribe that was under way may have just arrived
            await self._presences.leave(regions)

    async def declare_overlaps(self, overlaps: Iterable[tuple[str, str]]) -> None:
        """Declare pairs of regions that some subscribers will have both of: of a grid, cells that lie side by side.

        They are ordered from now on, used or not. In a network where overlaps are expected, who walks from one
        of them into another joins in place; all that somebody has at once and that was not expected takes a new epoch,
        as it does everywhere. Declared is declared: there is no way back, and saying it again changes nothing. Returns
        when the network knows; what follows takes some time. Raises `InvalidName`, and `UsageError` for a region
        with itself.
        """
        pairs = pairs_of(overlaps, "declare_overlaps", "pairs of regions")
        expected = frozenset(pair_of(one, other) for one, other in pairs)
        self._working()
        await self._network.declare_overlaps(expected)

    async def declare_joint(self, sets: Iterable[tuple[str, ...]]) -> None:
        """Declare sets of regions that events will be published to at once, so that the first of these need not wait.

        On several nodes, the paths of the regions of a set meet from then on, and one of them passes where all others
        begin. A set that was published to is declared by that. Declared is declared, as in `declare_overlaps`. Returns
        when events can be published. Raises `InvalidName`, `NotTogether` as `publish` does, and `UsageError` for a set
        of less than two regions.
        """
        await self._working()[0].declare_joint(sets)

    async def publish(
        self, region: Regions, payload: Any, *, key: str | None = None, only_if: OnlyIf = NO_CONDITION
    ) -> Receipt:
        """Publish an event; returns when the region's ingress has it.

        ``payload``: whatever orjson takes, or `bytes`. Waits while the buffer is full, or raises `BufferFull`, as
        configured. Raises `InvalidPayload`, `PayloadTooLarge`, `InvalidName`, `PlanError`, `Refused`, `Unreachable`, or
        `PublishUncertain`, the only one after which the event may have been published.

        ``key``: the event sets this key of the region, or, with the payload None, deletes it. Subscribers see it in
        `Event.key`. Raises `TooManyKeys` beyond 3,584 keys in a region.

        ``only_if``: publish only if the key was last set by the event at this position, as in `Receipt.position` and
        `Event.position`; None: only if it is not set. Or of some keys of the region: key → position. The ingress checks
        it in the step that gives the event its place in the order. Raises `Conflict` otherwise: then nothing was
        published, and the error tells which event came first.

        ``region``: a tuple of several publishes the event to all of them at once, or to none. It has one place in the
        order, and comes once to each that has any of them: see `Event.regions`. The receipt has `Receipt.positions`. It
        names its key in all of them; ``only_if`` names (region, key). On several nodes, the first event of a set waits
        for a plan in which its regions meet: see `declare_joint`. Raises `NotTogether` in causal order, and on
        several nodes that order double overlaps only.
        """
        outgoing = self._halves()[0]
        if key is None and only_if is NO_CONDITION and type(region) is str:
            return await outgoing.publish(region, payload)
        first, told = about_event(region, key, only_if)
        return await outgoing.publish(first, payload, told)

    def publish_async(
        self, region: Regions, payload: Any, *, key: str | None = None, only_if: OnlyIf = NO_CONDITION
    ) -> asyncio.Future[Receipt]:
        """Publish an event without waiting: returns a future of its receipt, which fails as `publish` does.

        What is called in one go shares frames. Raises at once for what can never be published, and `BufferFull`.
        ``key``, ``only_if``: see `publish`.
        """
        if self._outgoing is None:
            raise NotConnected
        if key is None and only_if is NO_CONDITION and type(region) is str:
            return self._outgoing.publish_async(region, payload)
        first, told = about_event(region, key, only_if)
        return self._outgoing.publish_async(first, payload, told)

    def publish_nowait(
        self, region: Regions, payload: Any, *, key: str | None = None, only_if: OnlyIf = NO_CONDITION
    ) -> None:
        """Publish an event and forget it: nothing is returned, and nothing waits.

        `Statistics.refused_events` counts those that were not published, or may not have been, and `on_publish_error`
        tells of them. Raises at once for what can never be published, and `BufferFull`. ``key``, ``only_if``: see
        `publish`.
        """
        if self._outgoing is None:
            raise NotConnected
        if key is None and only_if is NO_CONDITION and type(region) is str:
            self._outgoing.publish_nowait(region, payload)
        else:
            first, told = about_event(region, key, only_if)
            self._outgoing.publish_nowait(first, payload, told)

    def publish_batch(self, events: Iterable[tuple[Regions, Any]]) -> asyncio.Future[list[Receipt]]:
        """Publish events, (region, payload) each, without waiting: returns a future of their receipts, in this order.

        A region may be a tuple of several, as for `publish`.

        For what comes together, like all that happened within a tick: it takes less than a future for each. Events of
        one region are published in this order. Raises at once, and publishes nothing, for what can never be published,
        and `BufferFull`. The future fails with `PartlyPublished`, which tells of each event, unless none of them was
        published for certain: then as `publish` does.
        """
        if self._outgoing is None:
            raise NotConnected
        return self._outgoing.publish_batch(events)

    async def authority(self, region: str, entity: str, *, after: str | None = None) -> Authority:
        """Become the owner of an entity: the only connection that publishes for it. Use the result with ``async with``.

        This publishes an event that sets the key ``owner:ENTITY`` of the region. Raises `Conflict` if the entity has an
        owner: ``position`` of the error is that of the event which made it the owner. The region need not be subscribed
        to.

        ``after``: that position, to take over from an owner that is gone, or from an earlier connection of this name.
        Of all that try, one succeeds. The owner before is refused from then on, also if it is alive. Raises `Conflict`
        if the entity has been claimed, handed over or released since.

        Raises `PublishUncertain` if the outcome stays unknown after it was tried twice: if it was accepted, the event
        with that key and this name as its sender comes to subscribers, and its position is for ``after``. A claim whose
        caller is cancelled is given back. Otherwise raises as `publish` does.
        """
        return await Owners(self.name, self._working()[0], self._network, self._clearing).claim(region, entity, after)

    async def accept(self, event: object) -> Authority | None:
        """Accept an entity that a delivered event hands to this client; None if it hands none to it, or not any more.

        Call it with what iteration returns, and with the values of a `State`. `Authority.hand_to` publishes such
        events. Accepting is a claim ``after`` the event: of several connections of one name, and of several calls, one
        gets the authority. The key that the entity has in the region it came from is deleted soon after. Takes one
        round trip, and another one if keys move with it. Raises as `authority` does, but for `Conflict`.

        All who may publish in the region can publish such an event, but the clients of a gateway cannot. So check
        ``state`` as you would any payload.
        """
        return await Owners(self.name, self._working()[0], self._network, self._clearing).accept(event)

    def update(self, region: str, key: str, payload: Any, *, position: str | None = None) -> None:
        """Tell those who follow a region the newest value of a key: for positions and animations, many times a second.

        An update is no event. It may be lost, newer ones take the place of those that are not sent or taken yet, and
        none is stored. But no reader gets it before the events that this connection had been given, or had published,
        in the region before. Raises `InvalidPayload`, `PayloadTooLarge`, `InvalidName` and `NotConnected`.

        ``position``: up to where its maker had seen the region, for programs that relay updates of others. Readers see
        that as `Update.position`. Default: up to where this connection was given it.
        """
        self._updates().update(region, key, payload, position)

    def updates(self) -> list[Update]:
        """Return the newest update of each region, key and sender since the last call; not one's own.

        Take events first: an update comes when the application has been given the events that its sender had seen.
        Updates of the regions that are subscribed to are received from the first call on.
        """
        return self._updates().updates()

    async def next_updates(self) -> list[Update]:
        """As `updates`, and wait until there are some. Raises `NotConnected` when the connection closes.

        An update waits for the events that its sender had seen: take these meanwhile, or there is none.
        """
        return await self._updates().next_updates()

    def __aiter__(self) -> Self:
        self._halves()
        return self

    async def __anext__(self) -> Item:
        """Return the next event in order, or a `Gap` in the place of missing ones; ends when the connection closes.

        A call that is cancelled, by a timeout say, takes no event with it.
        """
        if not self._current:
            batch = await self._next_batch()
            if batch is None:
                raise StopAsyncIteration
            self._current.extend(batch)
        return self._current.popleft()

    async def fetch(self, max_events: int = 1_000, timeout: float | None = 0) -> list[Item]:  # noqa: ASYNC109
        """Return the next events in order, at most so many, and none if none come within ``timeout`` seconds.

        Made for tick loops: with 0 it returns what is there; what follows a replay, another call returns. None waits
        until something is. Raises `NotConnected` when nothing more will come; `asyncio.timeout` around it takes no
        event away.
        """
        return await self._pulling().fetch(max_events, timeout)

    async def caught_up(self, region: str, position: str) -> None:
        """Return when the application has had all events of a region up to a position: it asks for what comes next.

        With the position of a `Conflict`, the event that came first has been handled by then. Something else must take
        the events meanwhile: another task, as a rule. Raises `UsageError` for what is no position, and for a region
        that is not subscribed to, or is given up meanwhile; `NotConnected` when the connection closes.
        """
        parsed = parse_position(position)
        if parsed is None:
            raise UsageError(f"caught_up waits for a position like '3-120', not {position!r}")
        await self._pulling().caught_up(region, parsed)

    def batches(self) -> Batches:
        """Iterate over lists of events, as they become deliverable: the fastest way to take many."""
        self._halves()
        return Batches(self._next_batch)

    def _next_batch(self) -> Coroutine[Any, Any, list[Item] | None]:
        """Return the next batch of the connection that is open now: it may be another one after `reconnect`."""
        return self._pulling().next_batch()

    def on(self, region_pattern: str) -> Callable[[SomeHandler], SomeHandler]:
        """Register a handler for the events of the regions that match a pattern; see `run`.

        ``*`` matches any characters but ``/``, ``**`` any characters, and all else itself, as in tokens.
        """
        return self._handlers.on(region_pattern)

    def on_gap(self, handler: SomeGapHandler) -> SomeGapHandler:
        """Register a handler for gaps: `run` calls it with each `Gap`, in its place among the events."""
        return self._handlers.on_gap(handler)

    def on_state(self, handler: SomeStateHandler) -> SomeStateHandler:
        """Register a handler for states: `run` calls it with each `State`, in its place among the events."""
        return self._handlers.on_state(handler)

    def on_presence(self, handler: SomePresenceHandler) -> SomePresenceHandler:
        """Register a handler for who arrives and leaves: `run` calls it with each `Presence`, in its place."""
        return self._handlers.on_presence(handler)

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
        """Return the network's newest plan, None before there is one. A plan of one node has the regions in use."""
        self._working()
        record = await self._network.listed()
        return record.plan if record is not None else None

    async def ping(self) -> None:
        """Return when the network has said that this is the connection of its name; raises `Superseded` if not."""
        self._working()
        if self._heartbeat is not None:
            await self._heartbeat.beat()

    def _doing(self) -> Doing:
        """Return what heartbeats report: what was delivered, what order holds, and what waits for the program."""
        _, incoming = self._halves()
        return Doing(incoming.delivered_events, incoming.held_frames, incoming.inbox_events)

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
            own_events=incoming.own_events[0],
            overtaken_events=incoming.own_events[1],
            sent_updates=self._updating.sent_updates if self._updating is not None else 0,
            taken_updates=self._updating.taken_updates if self._updating is not None else 0,
            dropped_updates=self._updating.dropped_updates if self._updating is not None else 0,
            pending_retries=outgoing.pending_retries,
        )

    def recording(self) -> RecordingStatistics | None:
        """Return what is recorded and what could not be, None where nothing is; also after closing."""
        return self._recorder.statistics() if self._recorder is not None else None

    def __await__(self) -> Generator[Any, None, Self]:
        """As `open`."""
        return self.open().__await__()

    async def __aenter__(self) -> Self:
        """Open, unless that was done before with ``await``."""
        return self if self._is_open else await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close; without an exception, publish first what is still buffered."""
        try:
            if kind is None and self._closing is None:
                await self._halves()[0].flush()
        finally:
            await self.close()

    @property
    def _is_open(self) -> bool:
        return self._open_halves is not None and self._closing is None

    def _halves(self) -> tuple[Outgoing, Incoming]:
        if self._open_halves is None:
            raise NotConnected
        return self._open_halves

    def _presences_for(
        self, regions: Iterable[str], since: Since | None, presence: Mapping[str, Any] | Literal["watch"]
    ) -> Presences:
        outgoing, incoming = self._working()
        if since is not None or self._configuration.ordering == "causal":
            raise UsageError("presence begins with the state of the regions: not with since, and not in causal order")
        if presence != "watch" and not isinstance(presence, Mapping):
            raise UsageError(f"presence is a mapping that others see, or 'watch', not {presence!r}")
        if self._presences is None:
            from gamecast.client.presence import Presences  # most connections have none

            assert self._session is not None
            assert self._following is not None
            self._presences = Presences(self._network, self._session, outgoing, self._following)
        if presence != "watch":
            self._presences.require_fit(regions, dict(presence))
        incoming.watch_presence(regions)
        self._presences.watch()
        return self._presences

    def _updates(self) -> Updating:
        if self._updating is None:
            outgoing, incoming = self._working()
            from gamecast.client.updating import Updating  # most connections have none

            assert self._session is not None
            assert self._following is not None
            limits = self._configuration.limits
            self._updating = Updating(self._network, self._session, outgoing, incoming, self._pulling(), limits)
            if self._following.plan is not None:
                self._updating.follow(self._following.plan)
            self._following.on_plan = self._updating.follow
        return self._updating

    def _pulling(self) -> Puller:
        if self._puller is None:
            raise NotConnected
        return self._puller

    def _working(self) -> tuple[Outgoing, Incoming]:
        if self._closing is not None:
            raise NotConnected("the connection is closed: open another one")
        return self._halves()
