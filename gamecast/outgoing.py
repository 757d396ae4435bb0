"""The publishing half of a connection: a thin shell around `sequencing.publisher`.

One task a node offers its frames, one request at a time. What a broken connection leaves open is asked again with the
same frames, which the ingress recognises; only when that stays impossible for ``publish_timeout_s`` do events fail.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import count, repeat
from typing import Any

import orjson

from adapters.backoff import Backoff
from adapters.network import Lane, Network
from gamecast.configuration import Configuration
from gamecast.event import Receipt
from sequencing.errors import (
    BufferFull,
    GamecastError,
    InvalidPayload,
    NetworkError,
    NotConnected,
    PayloadTooLarge,
    PublishUncertain,
    Superseded,
    Unreachable,
)
from sequencing.frames import PublishedFrame
from sequencing.names import check_region
from sequencing.node import Answer
from sequencing.plan import Plan
from sequencing.publisher import Publisher, Resolved

LINGER_FROM_EVENTS = 64
LINGER_UNTIL_EVENTS = 2048
LINGER_S = 0.01
"""After a request of many events, the next one waits while the application goes on publishing, until there are really
many: what each frame costs its subscribers is spread over more events. Nobody waits for a pause: the first round of
the event loop without a new event ends it. Under light load, requests are small and never wait."""

ReceiptFuture = asyncio.Future[Receipt]
_new_receipt = partial(tuple.__new__, Receipt)


class Outgoing:
    """Publishes for one connection, once it is open."""

    def __init__(self, network: Network, configuration: Configuration, incarnation: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._network = network
        self._configuration = configuration
        self._limits = configuration.limits
        self._publisher: Publisher[ReceiptFuture] = Publisher(configuration.name, incarnation)
        self._lanes: dict[str, asyncio.Task[None]] = {}
        self._wakes: dict[str, asyncio.Event] = {}
        self._planning: asyncio.Task[None] | None = None
        self._room = asyncio.Event()
        self._closing = False
        self._epoch = 0
        self._checked_regions: set[str] = set()
        factor = 1 if configuration.when_full == "refuse" else self._limits.overflow_factor
        self._soon_events_max = factor * self._limits.buffer_events_max
        self._soon_bytes_max = factor * self._limits.buffer_bytes_max
        self.published_events = 0
        self.refused_events = 0
        self.reconnects = 0

    @property
    def buffered_events(self) -> int:
        """Events that have no answer yet."""
        return self._publisher.buffered_events

    async def publish(self, region: str, payload: Any) -> Receipt:
        """See `Cast.publish`."""
        encoded = self._encoded(region, payload)
        publisher, limits = self._publisher, self._limits
        while (
            publisher.buffered_events >= limits.buffer_events_max or publisher.buffered_bytes >= limits.buffer_bytes_max
        ):
            if self._configuration.when_full == "refuse":
                raise self._full()
            self._room.clear()
            await self._room.wait()
            self._require_open()
        return await self._add(region, encoded, type(payload) is bytes)

    def publish_soon(self, region: str, payload: Any) -> ReceiptFuture:
        """See `Cast.publish_soon`."""
        publisher = self._publisher
        if publisher.buffered_events >= self._soon_events_max or publisher.buffered_bytes >= self._soon_bytes_max:
            raise self._full()
        return self._add(region, self._encoded(region, payload), type(payload) is bytes)

    async def flush(self) -> None:
        """Return when every buffered event has its answer."""
        while self._publisher.buffered_events:
            self._room.clear()
            await self._room.wait()

    async def close(self) -> None:
        """End now: what is under way gets its answer, what waits fails with `NotConnected`."""
        self._closing = True
        self._room.set()
        for wake in self._wakes.values():
            wake.set()
        try:
            if self._planning is not None:
                await self._planning
            await asyncio.gather(*self._lanes.values())
        finally:
            closed = NotConnected("the connection was closed before these events were sent")
            self._fail(self._publisher.regions(), under_way=closed, waiting=closed)

    def _encoded(self, region: str, payload: Any) -> bytes:
        if self._closing:
            self._require_open()
        if region not in self._checked_regions:
            self._checked_regions.add(check_region(region))
        encoded: bytes
        if type(payload) is bytes:
            encoded = payload
        else:
            try:
                encoded = orjson.dumps(payload)
            except (TypeError, RecursionError) as error:
                raise InvalidPayload(f"the payload for region {region!r} cannot be encoded: {error}") from error
        if len(encoded) > self._limits.payload_bytes_max:
            raise PayloadTooLarge(
                f"the payload for region {region!r} has {len(encoded):,} bytes encoded, more than payload_bytes_max="
                f"{self._limits.payload_bytes_max:,}: send less, or a reference to it"
            )
        return encoded

    def _add(self, region: str, encoded: bytes, binary: bool) -> ReceiptFuture:
        future: ReceiptFuture = self._loop.create_future()
        node = self._publisher.add(region, encoded, binary, time.time_ns(), future)
        if node is not None:
            self._wakes[node].set()
        elif self._planning is None or self._planning.done():
            self._planning = asyncio.create_task(self._plan(), name="gamecast planning")
        return future

    async def _plan(self) -> None:
        while (regions := self._publisher.unassigned()) and not self._closing:
            try:
                plan = await self._network.settle(regions)
            except Exception as error:  # noqa: BLE001 - whatever it is, the events' futures must tell
                failure = _as_ours(error)
                self._fail(regions, under_way=failure, waiting=failure)
                continue
            if self._epoch not in (0, plan.epoch):
                gone = self._gone(plan.epoch)
                self._fail(regions, under_way=gone, waiting=gone)
                continue
            self._epoch = plan.epoch
            self._start_lanes(plan)
            self._publisher.assign(plan)
            self._wake()

    def _wake(self) -> None:
        for node in self._publisher.woken():
            self._wakes[node].set()

    def _start_lanes(self, plan: Plan) -> None:
        for node in {path[0] for path in plan.paths.values()} - self._lanes.keys():
            self._wakes[node] = asyncio.Event()
            lane = self._network.lane(node, plan)
            self._lanes[node] = asyncio.create_task(self._serve(node, lane), name=f"gamecast publish {node}")

    async def _serve(self, node: str, lane: Lane) -> None:
        wake = self._wakes[node]
        busy = False
        try:
            while not self._closing:
                if busy:
                    await self._linger(node)
                frames = self._publisher.take(node)
                if not frames:
                    wake.clear()
                    await wake.wait()
                    continue
                try:
                    answers = await self._offer(lane, frames)
                except Exception as error:  # noqa: BLE001 - whatever it is, the events' futures must tell
                    await self._give_up(node, _as_ours(error))
                    continue
                for resolved in self._publisher.answered(node, answers):
                    self._resolve(resolved)
                self._wake()
                if self._publisher.stale:
                    gone = self._gone(max(answer.numbers[0] for answer in answers))
                    self._fail(list(self._publisher.stale), under_way=gone, waiting=gone)
                self._room.set()
                busy = sum(frame.count for frame in frames) >= LINGER_FROM_EVENTS
        finally:
            await lane.close()

    async def _linger(self, node: str) -> None:
        deadline = time.monotonic() + LINGER_S
        before, waiting = -1, self._publisher.waiting_events(node)
        while before < waiting < LINGER_UNTIL_EVENTS and time.monotonic() < deadline:
            await asyncio.sleep(0)
            before, waiting = waiting, self._publisher.waiting_events(node)

    async def _offer(self, lane: Lane, frames: Sequence[PublishedFrame]) -> list[Answer]:
        """Offer frames until the node answers; raises the last error when that takes too long."""
        backoff = Backoff()
        deadline = time.monotonic() + self._limits.publish_timeout_s
        while True:
            try:
                return await lane.publish(frames)
            except NetworkError as error:
                self.reconnects += 1
                wait_s = backoff.next_s()
                if self._closing or time.monotonic() + wait_s > deadline:
                    raise PublishUncertain(
                        f"no answer from the ingress for {self._limits.publish_timeout_s:g} s, "
                        f"so these events may or may not have been published: {error}"
                    ) from error
                await asyncio.sleep(wait_s)

    async def _give_up(self, node: str, error: GamecastError) -> None:
        """Fail what is buffered for a node; if that may have been accepted, number its regions' events anew."""
        regions = self._publisher.regions_at(node)
        waiting = error if error.definite else Unreachable(f"the ingress {node!r} cannot be reached: {error}")
        self._fail(regions, under_way=error, waiting=waiting)
        backoff = Backoff()
        while not error.definite and not self._closing:
            try:
                incarnation = await self._network.renew()
            except Exception as unreachable:  # noqa: BLE001 - whatever it is, the events' futures must tell
                failure = _as_ours(unreachable)
                self._fail(regions, under_way=failure, waiting=failure)
                await backoff.wait()
            else:
                self._publisher.renew(regions, incarnation)
                return

    def _fail(self, regions: Iterable[str], *, under_way: GamecastError, waiting: GamecastError) -> None:
        for resolved in self._publisher.failed(regions, under_way=under_way, waiting=waiting):
            self._resolve(resolved)
        self._room.set()

    def _resolve(self, resolved: Resolved[ReceiptFuture]) -> None:
        if resolved.error is None:
            self.published_events += len(resolved.tokens)
            same = repeat(resolved.region), repeat(resolved.epoch)
            receipts = map(_new_receipt, zip(*same, count(resolved.first_sequence), strict=False))
            for future, receipt in zip(resolved.tokens, receipts, strict=False):
                if not future.done():
                    future.set_result(receipt)
            return
        self.refused_events += len(resolved.tokens)
        for future in resolved.tokens:
            if not future.done():
                future.set_exception(resolved.error)

    def _gone(self, epoch: int) -> Superseded:
        return Superseded(
            f"{self._configuration.name!r} was not heard of for long enough to be taken for gone, and the network went "
            f"on to epoch {epoch}: open a new connection"
        )

    def _require_open(self) -> None:
        if self._closing:
            raise NotConnected("the connection is closed: open another one")

    def _full(self) -> BufferFull:
        return BufferFull(
            f"{self._publisher.buffered_events:,} events of {self._publisher.buffered_bytes:,} bytes wait for their "
            "ingress already: publish slower, or raise buffer_events_max and buffer_bytes_max"
        )


def _as_ours(error: Exception) -> GamecastError:
    return error if isinstance(error, GamecastError) else NetworkError(f"publishing failed unexpectedly: {error!r}")
