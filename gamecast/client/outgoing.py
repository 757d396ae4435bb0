"""The publishing half of a connection: it carries out what its session (`sequencing.session`) has to publish.

One task a node offers its frames (`gamecast.client.serving`). What a broken connection leaves open is asked again with
the same frames, which the ingress recognises. Events fail only when that stays impossible for ``publish_timeout_s``.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, cast

import orjson

from adapters.backoff import Backoff
from adapters.network import Network
from gamecast.arguments import pairs_of
from gamecast.client.bundle import Bundle
from gamecast.client.configuration import Configuration
from gamecast.client.keys import ABOUT_NOTHING, NO_CONDITION, About, Regions, about_event
from gamecast.client.payloads import LETTER_OF_NULL, NULL, lacks_number, unfit_number, unfit_payload
from gamecast.client.receipts import ReceiptFuture, Receipts, Token
from gamecast.client.serving import REQUEST_S_MIN, NodeService, as_ours, way_to
from gamecast.client.watching import Health, PublishErrorReporter
from gamecast.event import Receipt
from sequencing.depth import is_deeper
from sequencing.errors import (
    BufferFull,
    GamecastError,
    NotConnected,
    NotTogether,
    PayloadTooLarge,
    PublishUncertain,
    Unreachable,
    UsageError,
)
from sequencing.joint import is_set, label, set_name
from sequencing.names import check_region
from sequencing.plan import Plan
from sequencing.resolved import Resolved
from sequencing.session import Effects, Session
from sequencing.together import not_together

if TYPE_CHECKING:
    from gamecast.recording.tap import Tap

_log = logging.getLogger(__name__)

MARK_AGAIN_S = 0.2
"""When a marker that could not be published is published again: somebody waits to join."""

ASK_S_MAX = 0.5
"""How long to look for the reason why events have no place; they fail anyway."""

_copied = b"".join
"""As `sequencing.compact` does, without the call, which takes as long as it takes to look for a null."""


class Outgoing:
    """Publishes for one connection, once it is open."""

    def __init__(
        self,
        network: Network,
        configuration: Configuration,
        session: Session[Token],
        health: Health,
        quiet: PublishErrorReporter,
        tap: Tap | None = None,
    ) -> None:
        """``quiet``: reports errors of events without a future."""
        self._health = health
        self._quiet = quiet
        self._loop = asyncio.get_running_loop()
        self._network = network
        self._configuration = configuration
        self._limits = configuration.limits
        self._payload_bytes_max = self._limits.payload_bytes_max
        self._payload_depth_max = self._limits.payload_depth_max
        self._shallow_bytes = 2 * self._payload_depth_max
        """What is no longer than this cannot be nested deeper."""
        self._receipts = Receipts(quiet, tap)
        self._causal = configuration.ordering == "causal"
        self._session = session
        self._buffered = session.buffered
        self._unfit: GamecastError | None = None
        """Why nothing can be published any more."""
        self._nodes: dict[str, NodeService] = {}
        self._room = asyncio.Event()
        self._unplaced: set[str] = set()
        """What the network was asked to place."""
        self._awaited: set[str] = set()
        """That for whose place there is a time limit."""
        self._stale: set[tuple[str, int]] = set()
        self._renewing: asyncio.Task[None] | None = None
        self._asking: set[asyncio.Task[None]] = set()
        self._came_back = asyncio.Event()
        self._plan: Plan | None = None
        self._plan_came = asyncio.Event()
        self.on_unplaced: Callable[[], None] = self._room.set
        self.on_renewed: Callable[[int], Awaitable[None]] | None = None
        """Called with each new incarnation before any event has it."""
        self.on_settled: Callable[[], None] | None = None
        """Called when events have their answers."""
        self.is_closing = False
        self._fit_regions: set[str] = set()
        """Regions that may be published to, as far as is known: one look here saves four elsewhere."""
        factor = 1 if configuration.when_full == "refuse" else self._limits.overflow_factor
        self._async_events_max = factor * self._limits.buffer_events_max
        self._async_bytes_max = factor * self._limits.buffer_bytes_max

    @property
    def buffered_events(self) -> int:
        """Events that have no answer yet."""
        return self._buffered.events

    @property
    def published_events(self) -> int:
        """Events that an ingress acknowledged."""
        return self._receipts.published_events

    @property
    def refused_events(self) -> int:
        """Events that failed."""
        return self._receipts.refused_events

    @property
    def reconnects(self) -> int:
        """Requests without an answer."""
        return sum(node.reconnects for node in self._nodes.values())

    @property
    def pending_retries(self) -> int:
        """See `Statistics.pending_retries`."""
        return sum(node.pending_retries for node in self._nodes.values())

    async def publish(self, region: str, payload: Any, about: About = ABOUT_NOTHING) -> Receipt:
        """See `Client.publish`."""
        encoded = self.encoded(region, payload)
        buffered, limits = self._buffered, self._limits
        while buffered.events >= limits.buffer_events_max or buffered.bytes >= limits.buffer_bytes_max:
            if self._configuration.when_full == "refuse":
                raise self._full()
            self._room.clear()
            await self._room.wait()
            self._require_fit(region)
        future: ReceiptFuture = asyncio.Future(loop=self._loop)
        is_binary = type(payload) is bytes
        is_lone = about is ABOUT_NOTHING and not buffered.events
        if is_lone and self._is_sent(region, encoded, is_binary, time.time_ns(), future):
            return await future
        self._add(region, encoded, is_binary, future, about)
        return await future

    def _is_sent(self, region: str, encoded: bytes, binary: bool, now_ns: int, token: Token) -> bool:
        """Send an event now, if nothing is in the way of it, and nothing else could go with it; return whether it was
        sent."""
        sent = self._session.publish_lone(region, encoded, binary, now_ns, token, self._may_send)
        if sent is None:
            return False
        self._nodes[sent[0]].send(sent[1])
        return True

    def _may_send(self, node: str) -> bool:
        return node in self._nodes and self._nodes[node].may_send()

    def publish_async(self, region: str, payload: Any, about: About = ABOUT_NOTHING) -> ReceiptFuture:
        """See `Client.publish_async`."""
        self._require_room()
        encoded = self.encoded(region, payload)
        future: ReceiptFuture = asyncio.Future(loop=self._loop)
        self._add(region, encoded, type(payload) is bytes, future, about)
        return future

    def publish_nowait(self, region: str, payload: Any, about: About = ABOUT_NOTHING) -> None:
        """See `Client.publish_nowait`."""
        self._require_room()
        encoded, self._receipts.has_other_tokens = self.encoded(region, payload), True
        self._add(region, encoded, type(payload) is bytes, self._quiet, about)

    def publish_batch(self, events: Iterable[tuple[Regions, Any]]) -> asyncio.Future[list[Receipt]]:
        """See `Client.publish_batch`."""
        self._require_room()
        pairs = pairs_of(events, "publish_batch", "(region, payload) pairs")
        if tuple in set(map(type, map(itemgetter(0), pairs))):
            return self._publish_mixed(pairs)
        each_alone = cast("Sequence[tuple[str, Any]]", pairs)
        encoded = [(region, self.encoded(region, payload), type(payload) is bytes) for region, payload in each_alone]
        future: asyncio.Future[list[Receipt]] = asyncio.Future(loop=self._loop)
        bundle = Bundle(future, [region for region, _, _ in encoded])
        self._receipts.has_other_tokens = True
        publish, now_ns = self._session.publish, time.time_ns()
        if len(encoded) == 1 and not self._buffered.events and self._is_sent(*encoded[0], now_ns, bundle):
            return future
        at = set[str]()
        for region, payload, is_binary in encoded:
            node = publish(region, payload, is_binary, now_ns, bundle)
            if node is None:
                self._await_place(region)
            else:
                at.add(node)
        for node in at:
            self._nodes[node].offer()
        return future

    def _publish_mixed(self, pairs: Sequence[tuple[Regions, Any]]) -> asyncio.Future[list[Receipt]]:
        """Publish a batch some of whose events have several regions."""
        calls: list[tuple[str, bytes, bool, About]] = []
        for regions, payload in pairs:
            first, told = about_event(regions, None, NO_CONDITION)
            calls.append((first, self.encoded(first, payload), type(payload) is bytes, told))
            if told.regions:
                self._require_all_fit(told.regions)
                if not self._session.can_be_together(told.regions):
                    raise not_together(told.regions)
        future: asyncio.Future[list[Receipt]] = asyncio.Future(loop=self._loop)
        bundle = Bundle(future, [first for first, *_ in calls])
        self._receipts.has_other_tokens = True
        for first, encoded, is_binary, told in calls:
            self._add(first, encoded, is_binary, bundle, told)
        return future

    async def flush(self) -> None:
        """Return when every buffered event has its answer."""
        while self._buffered.events:
            self._room.clear()
            await self._room.wait()

    async def close(self) -> None:
        """End now: what is under way gets its answer, what waits fails with `NotConnected`."""
        self.is_closing = True
        self._fit_regions.clear()
        self._room.set()
        self._came_back.set()
        self._plan_came.set()
        for node in self._nodes.values():
            node.close()
        try:
            await asyncio.gather(*(node.task for node in self._nodes.values()))
            if self._renewing is not None:
                await self._renewing
            await asyncio.gather(*self._asking)
        finally:
            closed = NotConnected("the connection was closed before these events were sent")
            self._fail(self._session.published_regions(), closed)
            self._receipts.close()

    def encoded(self, region: str, payload: Any) -> bytes:
        """Return a payload as it is sent; raises what hinders publishing it to a region."""
        try:
            if region not in self._fit_regions:
                self._require_fit(region)
        except TypeError:
            check_region(region)  # what has no hash is no name
            raise
        encoded: bytes
        if type(payload) is bytes:
            encoded = payload
        else:
            try:
                text = orjson.dumps(payload)
            except (TypeError, RecursionError) as error:
                raise unfit_payload(region, error) from error
            if len(text) > self._shallow_bytes and is_deeper(payload, text, self._payload_depth_max):
                raise unfit_payload(region, f"it is nested deeper than payload_depth_max={self._payload_depth_max}")
            # Most texts lack the letter, which is found sooner than the word; and this way of finding that is quickest.
            if LETTER_OF_NULL in text and text.rpartition(NULL)[1] and lacks_number(payload):
                raise unfit_number(region)
            encoded = _copied((text, b""))
        if len(encoded) > self._payload_bytes_max:
            raise PayloadTooLarge(
                f"the payload for region {region!r} has {len(encoded):,} bytes encoded, more than payload_bytes_max="
                f"{self._payload_bytes_max:,}: send less, or a reference to it"
            )
        return encoded

    def _require_fit(self, region: str) -> None:
        """Raise what hinders publishing to a region, or note that nothing does, for good."""
        self._require_open()
        check_region(region)
        if self._unfit is not None:
            raise self._unfit
        if not self._causal:
            self._fit_regions.add(region)
        elif region not in self._session.joined:
            raise UsageError(
                f"with ordering='causal' a connection publishes to regions that it subscribes to, and {region!r} is "
                "not one of them"
            )

    def _require_room(self) -> None:
        """Raise `BufferFull` where there is no room for what does not wait for it."""
        buffered = self._buffered
        if buffered.events >= self._async_events_max or buffered.bytes >= self._async_bytes_max:
            raise self._full()

    def _add(self, region: str, encoded: bytes, binary: bool, token: Token, about: About) -> None:
        if about is ABOUT_NOTHING:
            node = self._session.publish(region, encoded, binary, time.time_ns(), token)
        elif about.regions:
            node = self._publish_joint(encoded, binary, token, about)
        else:
            deletes = not binary and encoded == NULL
            node = self._session.publish_keyed(
                *(region, encoded, binary, time.time_ns(), token),
                key=about.key,
                deletes=deletes,
                conditions=about.conditions,
            )
        if node is not None:
            self._nodes[node].offer()
        else:
            for each in about.regions or (region,):
                self._await_place(each)
            if about.regions and self._configuration.ordering != "overlap":
                self._await_place(set_name(about.regions))

    def _publish_joint(self, encoded: bytes, binary: bool, token: Token, about: About) -> str | None:
        self._require_all_fit(about.regions)
        deletes = not binary and encoded == NULL
        return self._session.publish_joint(
            *(about.regions, encoded, binary, time.time_ns(), token),
            key=about.key,
            deletes=deletes,
            conditions=about.conditions,
        )

    def _require_all_fit(self, regions: tuple[str, ...]) -> None:
        """Raise what hinders publishing to each of several regions, or to several at once anywhere."""
        if self._causal:
            raise NotTogether("with ordering='causal' an event has one region: publish to each")
        for region in regions:
            if region not in self._fit_regions:
                self._require_fit(region)

    def _await_place(self, region: str) -> None:
        if region not in self._unplaced:
            self._unplaced.add(region)
            self.on_unplaced()
        if region not in self._awaited:
            self._awaited.add(region)
            self._loop.call_later(self._limits.publish_timeout_s, self._require_place, region)

    def want_place(self, region: str) -> None:
        """Have the next plan give a region a place, however long that takes."""
        if region not in self._unplaced:
            self._unplaced.add(region)
            self.on_unplaced()

    def _require_place(self, region: str) -> None:
        """Give events up that have waited for a place for too long."""
        self._awaited.discard(region)
        if region in self._session.unassigned():
            asking = asyncio.create_task(self._give_up_place(region), name="gamecast unplaced")
            self._asking.add(asking)
            asking.add_done_callback(self._asking.discard)

    async def _give_up_place(self, region: str) -> None:
        error: GamecastError | None
        try:
            async with asyncio.timeout(ASK_S_MAX):
                error = await self._network.no_leader_error()
        except TimeoutError:
            error = Unreachable(f"{_no_place(region)}, and the control Redis does not answer: see that its server runs")
        except GamecastError as failed:
            error = failed
        if region in self._session.unassigned():
            self._unplaced.discard(region)
            self._fail([region], error or Unreachable(f"{_no_place(region)}: `gamecast doctor` may tell why"))

    def watch_stale(self) -> None:
        """Give events up whose ingress does not know their region, when no plan comes that tells where else to go."""
        for refused in self._session.stale.items() - self._stale:
            self._stale.add(refused)
            self._loop.call_later(self._limits.publish_timeout_s, self._require_plan, *refused)

    def _require_plan(self, region: str, epoch: int) -> None:
        self._stale.discard((region, epoch))
        if self._session.stale.get(region) == epoch:
            self._fail(
                [region],
                Unreachable(
                    f"the ingress of region {region!r} does not know it, and no plan puts it elsewhere: `gamecast "
                    "doctor` may tell why"
                ),
            )

    def await_places(self) -> None:
        """Ask for places of the regions that the latest plan took them from."""
        for region in self._session.unassigned():
            self._await_place(region)

    async def declare_joint(self, sets: Iterable[Any]) -> None:
        """See `Client.declare_joint`."""
        names: set[str] = set()
        for regions in sets:
            if not isinstance(regions, tuple) or len(regions) < 2:
                raise UsageError(f"declare_joint takes tuples of two regions or more, not {regions!r}")
            _, told = about_event(regions, None, NO_CONDITION)
            self._require_all_fit(told.regions)
            if not self._session.can_be_together(told.regions):
                raise not_together(told.regions)
            names |= {*told.regions, set_name(told.regions)}
        for name in names:
            self._await_place(name)
        try:
            async with asyncio.timeout(self._limits.publish_timeout_s):
                while self._plan is None or self._plan.without_place(names):
                    self._require_open()
                    self._plan_came.clear()
                    await self._plan_came.wait()
        except TimeoutError:
            missing = sorted(names if self._plan is None else self._plan.without_place(names))
            raise Unreachable(f"{_no_place(missing[-1])}: `gamecast doctor` may tell why") from None

    def unplaced(self) -> frozenset[str]:
        """Return the regions and sets that events wait for a place for, and those that did."""
        return frozenset(self._unplaced)

    def follow(self, plan: Plan) -> None:
        """Have a lane to each ingress of the next plan, before the session follows it."""
        if self._causal != (plan.ordering == "causal") and self._unfit is None:
            self._unfit = UsageError(f"the network's order is {plan.ordering}: connect with ordering={plan.ordering!r}")
            self._fit_regions.clear()
            self.fail(self._unfit)
        self._plan = plan
        self._plan_came.set()
        for service in self._nodes.values():
            service.lane.follow(plan)
        for node in self._nodes.keys() - plan.ingresses:
            self._health.mark_up(way_to(node))  # no region needs it
        for node in plan.ingresses - self._nodes.keys():
            lane, timeout_s = partial(self._network.lane, node, plan), self._limits.publish_timeout_s
            self._nodes[node] = NodeService(node, lane, self, self._session, self._health, timeout_s=timeout_s)

    def carry_out(self, effects: Effects[Token]) -> None:
        """Carry out what of a session's effects concerns publishing: fates, markers and frames to offer."""
        for resolved in effects.resolve:
            self._receipts.resolve(resolved)
        if self.on_settled is not None and effects.resolve:
            self.on_settled()
        if not self.is_closing:
            for marker in effects.mark_again:
                self._loop.call_later(MARK_AGAIN_S, self._mark_again, *marker)
        self._room.set()
        self._came_back.set()
        for node in effects.publish:
            self._nodes[node].offer()
        if not self.is_closing and (self._renewing is None or self._renewing.done()) and self._session.doubtful():
            self._renewing = asyncio.create_task(self._renew(), name="gamecast renewal")

    def resolve(self, resolved: Resolved[Token]) -> None:
        """See `Host.resolve`."""
        self._receipts.resolve(resolved)
        if self.on_settled is not None:
            self.on_settled()
        self._room.set()

    def _mark_again(self, region: str, body: bytes) -> None:
        if not self.is_closing:
            self.carry_out(self._session.mark(region, body))

    def awaits(self, regions: AbstractSet[str]) -> bool:
        """Return whether events that were published in regions have to come back before others go out: when causal."""
        return not self.is_closing and self._session.awaits_own(regions)

    async def came_back(self) -> None:
        """Return when `awaits` may have changed."""
        self._came_back.clear()
        await self._came_back.wait()

    def fail(self, error: Exception) -> None:
        """Fail everything that is buffered."""
        self._fail(self._session.published_regions(), as_ours(error))

    def end(self, error: Exception) -> None:
        """Fail all that is buffered, and all that is published from now on."""
        self._unfit = as_ours(error)
        self._fit_regions.clear()
        with suppress(Exception):  # what is wrong may be wrong here, too
            self.fail(error)
        self._room.set()

    async def _renew(self) -> None:
        """Renumber the events of regions in which something was given up that may have been accepted."""
        backoff = Backoff()
        while (doubtful := self._session.doubtful()) and not self.is_closing:
            try:
                incarnation = await self._renewed()
            except Exception as unreachable:  # noqa: BLE001 - whatever it is, the events' futures must tell
                self._fail(doubtful, as_ours(unreachable))
                await backoff.wait()
            else:
                self.carry_out(self._session.renew(doubtful, incarnation))

    async def _renewed(self) -> int:
        limit_s = max(REQUEST_S_MIN, self._limits.publish_timeout_s)
        try:
            async with asyncio.timeout(limit_s):
                incarnation = await self._network.renew(self._session.forgotten)
                if self.on_renewed is not None:
                    await self.on_renewed(incarnation)
                return incarnation
        except TimeoutError as error:
            raise Unreachable(f"the control Redis has not answered for {limit_s:g} s") from error

    def _fail(self, regions: Iterable[str], error: GamecastError) -> None:
        """Fail all events of some regions; whether those in flight are published is unknown."""
        in_flight = PublishUncertain(f"these events were under way: {error}") if error.definite else error
        self.carry_out(self._session.failed(regions, in_flight=in_flight, waiting=error))

    def _require_open(self) -> None:
        if self.is_closing:
            raise NotConnected("the connection is closed: open another one")

    def _full(self) -> BufferFull:
        return BufferFull(
            f"{self._buffered.events:,} events of {self._buffered.bytes:,} bytes wait for their "
            "ingress already: publish slower, or raise buffer_events_max and buffer_bytes_max"
        )


def _no_place(name: str) -> str:
    """Return what is missing, of a region or a set."""
    if is_set(name):
        return f"no plan has regions {label(name)} together yet"
    return f"no plan has a place for region {name!r} yet"
