"""The publishing half of a connection: it carries out what its session (`sequencing.session`) has to publish.

One task a node offers its frames, one request at a time. What a broken connection leaves open is asked again with the
same frames, which the ingress recognises; only when that stays impossible for ``publish_timeout_s`` do events fail.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from functools import partial
from itertools import count, groupby, repeat
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import orjson

from adapters.backoff import Backoff
from adapters.network import Lane, Network
from adapters.redis.deadline import Deadline
from gamecast.arguments import pairs_of
from gamecast.client.bundle import Bundle
from gamecast.client.configuration import Configuration
from gamecast.client.payloads import LETTER_OF_NULL, NULL, lacks_number, unfit_number, unfit_payload
from gamecast.client.watching import Health, Late, PublishErrorReporter
from gamecast.event import Receipt
from sequencing.depth import is_deeper
from sequencing.errors import (
    BufferFull,
    GamecastError,
    NetworkError,
    NotConnected,
    OtherSideError,
    PayloadTooLarge,
    PublishUncertain,
    Unreachable,
    UsageError,
)
from sequencing.frames import PublishedFrame
from sequencing.names import check_region
from sequencing.node import Answer, Verdict
from sequencing.plan import Plan
from sequencing.resolved import Resolved
from sequencing.session import Effects, Session

if TYPE_CHECKING:
    from gamecast.recording.tap import Tap

_log = logging.getLogger(__name__)

LINGER_FROM_EVENTS = 64
LINGER_UNTIL_EVENTS = 2048
LINGER_S = 0.01
"""After a request of many events, the next one waits while the application goes on publishing, until there are really
many: what each frame costs its subscribers is spread over more events. No event waits for a pause: the first round of
the event loop without a new event ends it. Under light load, requests are small and never wait."""

WAIT_S = 0.002
"""How long to wait for an ingress that opens soon."""

MARK_AGAIN_S = 0.2
"""When a marker that could not be published is published again: somebody waits to join."""

LATE_S = 1.5
"""A request that is not answered within this counts as a way that is lost, and waits on."""

REQUEST_S_MIN = 1.0
"""A request is not given up sooner, also if ``publish_timeout_s`` is shorter: the answer may be there, and this process
too busy to read it."""

ASK_S_MAX = 0.5
"""How long to look for the reason why events have no place; they fail anyway."""

UNSEEN_S = 1.0
"""How long the application has to look at a future that has failed, before its error is reported as one of
`publish_nowait`."""

ReceiptFuture = asyncio.Future[Receipt]
Token = ReceiptFuture | Bundle | PublishErrorReporter
"""What stands for an event."""

_copied = b"".join
"""As `sequencing.compact` does, without the call, which takes as long as it takes to look for a null."""

_new_receipt = partial(tuple.__new__, Receipt)


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
        self._tap = tap
        self._causal = configuration.ordering == "causal"
        self._session = session
        self._unfit: GamecastError | None = None
        """Why nothing can be published any more."""
        self._lanes: dict[str, tuple[asyncio.Task[None], Lane]] = {}
        self._wakes: dict[str, asyncio.Event] = {}
        self._room = asyncio.Event()
        self._unplaced: set[str] = set()
        self._stale: set[tuple[str, int]] = set()
        self._renewing: asyncio.Task[None] | None = None
        self._asking: set[asyncio.Task[None]] = set()
        self._came_back = asyncio.Event()
        self._unseen: list[_Failed] = []
        self._looking: asyncio.TimerHandle | None = None
        self.on_unplaced: Callable[[], None] = self._room.set
        self._closing = False
        self._fit_regions: set[str] = set()
        """Regions that may be published to, as far as is known: one look here saves four elsewhere."""
        factor = 1 if configuration.when_full == "refuse" else self._limits.overflow_factor
        self._async_events_max = factor * self._limits.buffer_events_max
        self._async_bytes_max = factor * self._limits.buffer_bytes_max
        self._bundles = False
        """Whether tokens were ever other than futures: without, there is a shorter way to tell the events' fates."""
        self.published_events = 0
        self.refused_events = 0
        self.reconnects = 0

    @property
    def buffered_events(self) -> int:
        """Events that have no answer yet."""
        return self._session.buffered_events

    async def publish(self, region: str, payload: Any) -> Receipt:
        """See `Client.publish`."""
        encoded = self._encoded(region, payload)
        session, limits = self._session, self._limits
        while session.buffered_events >= limits.buffer_events_max or session.buffered_bytes >= limits.buffer_bytes_max:
            if self._configuration.when_full == "refuse":
                raise self._full()
            self._room.clear()
            await self._room.wait()
            self._require_fit(region)
        future: ReceiptFuture = asyncio.Future(loop=self._loop)
        self._add(region, encoded, type(payload) is bytes, future)
        return await future

    def publish_async(self, region: str, payload: Any) -> ReceiptFuture:
        """See `Client.publish_async`."""
        self._require_room()
        encoded = self._encoded(region, payload)
        future: ReceiptFuture = asyncio.Future(loop=self._loop)
        self._add(region, encoded, type(payload) is bytes, future)
        return future

    def publish_nowait(self, region: str, payload: Any) -> None:
        """See `Client.publish_nowait`."""
        self._require_room()
        encoded, self._bundles = self._encoded(region, payload), True
        self._add(region, encoded, type(payload) is bytes, self._quiet)

    def publish_batch(self, events: Iterable[tuple[str, Any]]) -> asyncio.Future[list[Receipt]]:
        """See `Client.publish_batch`."""
        self._require_room()
        pairs = pairs_of(events, "publish_batch", "(region, payload) pairs")
        encoded = [(region, self._encoded(region, payload), type(payload) is bytes) for region, payload in pairs]
        future: asyncio.Future[list[Receipt]] = asyncio.Future(loop=self._loop)
        bundle, self._bundles = Bundle(future, [region for region, _, _ in encoded]), True
        publish, now_ns = self._session.publish, time.time_ns()
        for region, payload, is_binary in encoded:
            node = publish(region, payload, is_binary, now_ns, bundle)
            if node is None:
                self._await_place(region)
            else:
                self._wakes[node].set()
        return future

    async def flush(self) -> None:
        """Return when every buffered event has its answer."""
        while self._session.buffered_events:
            self._room.clear()
            await self._room.wait()

    async def close(self) -> None:
        """End now: what is under way gets its answer, what waits fails with `NotConnected`."""
        self._closing = True
        self._fit_regions.clear()
        self._room.set()
        self._came_back.set()
        for wake in self._wakes.values():
            wake.set()
        try:
            await asyncio.gather(*(task for task, _ in self._lanes.values()))
            if self._renewing is not None:
                await self._renewing
            await asyncio.gather(*self._asking)
        finally:
            closed = NotConnected("the connection was closed before these events were sent")
            self._fail(self._session.published_regions(), closed)
            if self._looking is not None:
                self._looking.cancel()
                # The loop may end soon. Tasks that wait for their events look first.
                self._loop.call_soon(self._loop.call_soon, self._report_unseen)

    def _encoded(self, region: str, payload: Any) -> bytes:
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
        session = self._session
        if session.buffered_events >= self._async_events_max or session.buffered_bytes >= self._async_bytes_max:
            raise self._full()

    def _add(self, region: str, encoded: bytes, binary: bool, token: ReceiptFuture | PublishErrorReporter) -> None:
        node = self._session.publish(region, encoded, binary, time.time_ns(), token)
        if node is not None:
            self._wakes[node].set()
        else:
            self._await_place(region)

    def _await_place(self, region: str) -> None:
        if region not in self._unplaced:
            self._unplaced.add(region)
            self.on_unplaced()
            self._loop.call_later(self._limits.publish_timeout_s, self._require_place, region)

    def _require_place(self, region: str) -> None:
        """Give events up that have waited for a place for too long."""
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
            error = Unreachable(
                f"no plan has a place for region {region!r} yet, and the control Redis does not answer: see that its "
                "server runs"
            )
        except GamecastError as failed:
            error = failed
        if region in self._session.unassigned():
            self._unplaced.discard(region)
            none = Unreachable(f"no plan has a place for region {region!r} yet: `gamecast doctor` may tell why")
            self._fail([region], error or none)

    def _watch_stale(self) -> None:
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

    def unplaced(self) -> frozenset[str]:
        """Return the regions that events wait for a place for, and those that did."""
        return frozenset(self._unplaced)

    def follow(self, plan: Plan) -> None:
        """Have a lane to each ingress of the next plan, before the session follows it."""
        if self._causal != (plan.ordering == "causal") and self._unfit is None:
            self._unfit = UsageError(f"the network's order is {plan.ordering}: connect with ordering={plan.ordering!r}")
            self._fit_regions.clear()
            self.fail(self._unfit)
        for _, lane in self._lanes.values():
            lane.follow(plan)
        for node in self._lanes.keys() - plan.ingresses:
            self._health.mark_up(_way(node))  # no region needs it
        for node in plan.ingresses - self._lanes.keys():
            self._wakes[node] = asyncio.Event()
            lane = self._network.lane(node, plan)
            task = asyncio.create_task(self._serve(node, lane), name=f"gamecast publish {node}")
            self._lanes[node] = task, lane

    def carry_out(self, effects: Effects[Token]) -> None:
        """Carry out what of a session's effects concerns publishing: fates, markers and frames to offer."""
        for resolved in effects.resolve:
            self._resolve(resolved)
        if not self._closing:
            for marker in effects.mark_again:
                self._loop.call_later(MARK_AGAIN_S, self._mark_again, *marker)
        self._room.set()
        self._came_back.set()
        for node in effects.publish:
            self._wakes[node].set()
        if not self._closing and (self._renewing is None or self._renewing.done()) and self._session.doubtful():
            self._renewing = asyncio.create_task(self._renew(), name="gamecast renewal")

    def _mark_again(self, region: str, body: bytes) -> None:
        if not self._closing:
            self.carry_out(self._session.mark(region, body))

    def awaits(self, regions: AbstractSet[str]) -> bool:
        """Return whether events that were published in regions have to come back before others go out: when causal."""
        return not self._closing and self._session.awaits_own(regions)

    async def came_back(self) -> None:
        """Return when `awaits` may have changed."""
        self._came_back.clear()
        await self._came_back.wait()

    def fail(self, error: Exception) -> None:
        """Fail everything that is buffered."""
        self._fail(self._session.published_regions(), _as_ours(error))

    def end(self, error: Exception) -> None:
        """Fail all that is buffered, and all that is published from now on."""
        self._unfit = _as_ours(error)
        self._fit_regions.clear()
        with suppress(Exception):  # what is wrong may be wrong here, too
            self.fail(error)
        self._room.set()

    async def _serve(self, node: str, lane: Lane) -> None:
        wake, limit, late = self._wakes[node], Deadline(), Late(self._health, _way(node), LATE_S)
        busy = False
        try:
            while not self._closing:
                if busy:
                    await self._linger(node)
                frames = self._session.take(node)
                if not frames:
                    wake.clear()
                    if not self._closing:  # which may have begun while this one lingered
                        await wake.wait()
                    continue
                try:
                    answers = await self._offer(node, lane, frames, limit, late)
                except Exception as error:  # noqa: BLE001 - whatever it is, the events' futures must tell
                    if not isinstance(error, OtherSideError):
                        self._session.unanswered(node)
                    self._give_up(node, _as_ours(error))
                    continue
                self.carry_out(self._session.answered(node, answers))
                self._watch_stale()
                if any(answer.verdict is Verdict.WAIT for answer in answers):
                    await asyncio.sleep(WAIT_S)
                busy = sum(frame.count for frame in frames) >= LINGER_FROM_EVENTS
        except Exception as error:  # noqa: BLE001 - whatever it is, whoever publishes must hear of it
            _log.exception("publishing through node %s has ended", node)
            self.end(error)
        finally:
            limit.close()
            late.close()
            await lane.close()

    async def _linger(self, node: str) -> None:
        deadline = time.monotonic() + LINGER_S
        before, waiting = -1, self._session.waiting_events(node)
        while before < waiting < LINGER_UNTIL_EVENTS and time.monotonic() < deadline:
            await asyncio.sleep(0)
            before, waiting = waiting, self._session.waiting_events(node)

    async def _offer(
        self, node: str, lane: Lane, frames: Sequence[PublishedFrame], limit: Deadline, late: Late
    ) -> list[Answer]:
        """Offer frames until the node answers; raises the last error when that takes too long.

        ``limit`` and ``late``: of this node, for one request at a time.
        """
        backoff, way = Backoff(), _way(node)
        began = time.monotonic()
        deadline = began + self._limits.publish_timeout_s
        while True:
            left_s = max(REQUEST_S_MIN, deadline - time.monotonic())
            late.begin()
            try:
                with limit.within(left_s):
                    answers = await lane.publish(frames)
                self._health.mark_up(way)
                return answers
            except (NetworkError, TimeoutError) as failed:
                error = failed if isinstance(failed, NetworkError) else Unreachable(f"node {node!r} does not answer")
                self._session.unanswered(node)
                self.reconnects += 1
                self._health.mark_down(way, error)
                if not self._session.is_in_flight(node):
                    return []  # given up meanwhile: the node was reset
                wait_s = backoff.next_s()
                if self._closing or time.monotonic() + wait_s > deadline:
                    raise PublishUncertain(
                        f"no answer from the ingress for {time.monotonic() - began:.1f} s, so these events may or may "
                        f"not have been published: {error}"
                    ) from failed
                await asyncio.sleep(wait_s)
            finally:
                late.end()

    def _give_up(self, node: str, error: GamecastError) -> None:
        """Fail what is buffered for a node."""
        cause = error.__cause__ if isinstance(error.__cause__, GamecastError) else "it does not answer"
        waiting = error if error.definite else Unreachable(f"the ingress {node!r} cannot be reached: {cause}")
        self.carry_out(self._session.give_up(node, in_flight=error, waiting=waiting))

    async def _renew(self) -> None:
        """Renumber the events of regions in which something was given up that may have been accepted."""
        backoff = Backoff()
        while (doubtful := self._session.doubtful()) and not self._closing:
            try:
                incarnation = await self._renewed()
            except Exception as unreachable:  # noqa: BLE001 - whatever it is, the events' futures must tell
                self._fail(doubtful, _as_ours(unreachable))
                await backoff.wait()
            else:
                self.carry_out(self._session.renew(doubtful, incarnation))

    async def _renewed(self) -> int:
        limit_s = max(REQUEST_S_MIN, self._limits.publish_timeout_s)
        try:
            async with asyncio.timeout(limit_s):
                return await self._network.renew(self._session.forgotten)
        except TimeoutError as error:
            raise Unreachable(f"the control Redis has not answered for {limit_s:g} s") from error

    def _fail(self, regions: Iterable[str], error: GamecastError) -> None:
        """Fail all events of some regions; whether those in flight are published is unknown."""
        in_flight = PublishUncertain(f"these events were under way: {error}") if error.definite else error
        self.carry_out(self._session.failed(regions, in_flight=in_flight, waiting=error))

    def _resolve(self, resolved: Resolved[Token]) -> None:
        if self._tap is not None:
            self._tap.published(resolved)
        outcomes: Iterator[Receipt | GamecastError]
        if resolved.error is None:
            self.published_events += len(resolved.tokens)
            same = repeat(resolved.region), repeat(resolved.epoch)
            receipts = map(_new_receipt, zip(*same, count(resolved.first_sequence), strict=False))
            if not self._bundles:
                _receive(cast("list[ReceiptFuture]", resolved.tokens), receipts)
                return
            outcomes = receipts
        else:
            self.refused_events += len(resolved.tokens)
            outcomes = repeat(resolved.error)
        end = 0
        for token, several in groupby(cast("list[ReceiptFuture | Bundle | PublishErrorReporter]", resolved.tokens)):
            told = [outcome for _, outcome in zip(several, outcomes, strict=False)]
            begin, end = end, end + len(told)
            if isinstance(token, PublishErrorReporter):
                token.note(resolved.region, told, partial(_payloads, resolved, begin, end))
            elif isinstance(token, Bundle):
                token.note(resolved.region, told)
                if resolved.error is not None:
                    self._await_look(_Failed(token.future, resolved, begin, end))
            elif token.done():
                continue  # its owner has cancelled it
            elif isinstance(told[0], Receipt):
                token.set_result(told[0])
            else:
                token.set_exception(told[0])
                self._await_look(_Failed(token, resolved, begin, end))

    def _await_look(self, failed: _Failed) -> None:
        """Give the application some time to look at a future that has failed."""
        self._unseen.append(failed)
        if self._looking is None:
            self._looking = self._loop.call_later(UNSEEN_S, self._report_unseen)

    def _report_unseen(self) -> None:
        """Report errors that the application did not look at like those of `publish_nowait`: asyncio would log each."""
        failed, self._looking = self._unseen, None
        self._unseen = [each for each in failed if not each.future.done()]  # of other events it is not known yet
        unseen = [
            each for each in failed if each.future.done() and not each.future.cancelled() and each.future._log_traceback
        ]
        for each in unseen:
            each.future.exception()
        # In one go what failed in one frame.
        for resolved, several in groupby(unseen, key=lambda each: each.resolved):
            events = [*several]
            self._quiet.note(
                resolved.region,
                [resolved.error] * sum(each.end - each.begin for each in events),
                partial(_payloads_of, events),
            )
        if self._unseen and not self._closing:
            self._looking = self._loop.call_later(UNSEEN_S, self._report_unseen)

    def _require_open(self) -> None:
        if self._closing:
            raise NotConnected("the connection is closed: open another one")

    def _full(self) -> BufferFull:
        return BufferFull(
            f"{self._session.buffered_events:,} events of {self._session.buffered_bytes:,} bytes wait for their "
            "ingress already: publish slower, or raise buffer_events_max and buffer_bytes_max"
        )


class _Failed(NamedTuple):
    """Some events of a frame that failed, from ``begin`` until before ``end``, and the future that tells of them."""

    future: asyncio.Future[Any]
    resolved: Resolved[Token]
    begin: int
    end: int


def _payloads_of(failed: Iterable[_Failed]) -> list[Any]:
    return [payload for each in failed for payload in _payloads(each.resolved, each.begin, each.end)]


def _payloads(resolved: Resolved[Token], begin: int, end: int) -> list[Any]:
    """Return what some events of a frame carry, as the application gave it."""
    encoded = resolved.payloads[begin:end]
    return [*encoded] if resolved.binary else [*map(orjson.loads, encoded)]


def _receive(futures: Iterable[ReceiptFuture], receipts: Iterable[Receipt]) -> None:
    pairs = zip(futures, receipts, strict=False)
    while True:
        try:
            for future, receipt in pairs:
                future.set_result(receipt)
            return
        except asyncio.InvalidStateError:
            continue  # its owner has cancelled it


def _way(node: str) -> str:
    return f"publishing through {node}"


def _as_ours(error: Exception) -> GamecastError:
    return error if isinstance(error, GamecastError) else NetworkError(f"publishing failed unexpectedly: {error!r}")
