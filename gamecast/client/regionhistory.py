"""The stored events of one region, page by page, for clients that do not subscribe to it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Protocol

from adapters.network import Streams
from gamecast.client.history import LATE_S_MAX, is_of_another, never_given, of_another, parse_since
from gamecast.client.inbox import MARKERS
from gamecast.event import Event, Gap
from sequencing.errors import InvalidInput
from sequencing.frames import CARRIES_EVENTS, UNKNOWN_END, FrameKind, StampedFrame, decode_keyed_body, parse_meta
from sequencing.plan import Plan

FRAMES_MAX = 64
END_S_MAX = 5.0
"""How long a page waits for the end of an epoch that is ending; after that, pages end there."""
READ_AGAIN_S = 0.02

READERS_MAX = 8
"""The most connections to nodes that are kept for the next page."""
GONE = "the node no longer has them"


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a region's history: events and gaps, and whether there is more after the last one.

    ``is_late``: whether an event may be missing after the last one that arrives later and precedes everything now
    there.
    """

    items: Sequence[Any]
    next: str
    more: bool
    is_late: bool = False


class Archive(Protocol):
    """An access to a network for one who only reads what has been."""

    async def latest_plan(self) -> Plan | None:
        """See `Network.latest_plan`."""

    async def plans(self, regions: Collection[str], after: int) -> list[Plan]:
        """See `Network.plans`."""

    async def ending(self) -> frozenset[tuple[str, int]]:
        """See `Network.ending`."""

    def reader(self, node: str, plan: Plan, /) -> Streams:
        """See `Network.reader`."""

    async def close(self) -> None:
        """See `Network.close`."""


class RegionHistory:
    """Reads the egress streams of regions, one page at a time.

    One region's stream is in its order, so nothing has to wait. Events whose place no known plan has any more are a
    gap.
    """

    def __init__(self, network: Archive) -> None:
        """``network``: used only by this object, and closed with it."""
        self._network = network
        self._readers: dict[str, Streams] = {}
        self._turn = asyncio.Lock()
        """One request at a time, of all that use the network and the readers."""
        self._newest: Plan | None = None
        self._ending_since: dict[tuple[str, int], float] = {}
        """Regions and epochs that are ending, and when that was seen first, by a monotonic clock."""

    async def page(self, region: str, *, after: str, events_max: int) -> Page:
        """Return events and gaps after a position, at most ``events_max`` and at least one frame's; see `Page`.

        If an ending epoch has nothing there yet, its end is awaited, as `gamecast.client.history` does. If it takes
        longer, the page ends there.
        """
        ((epoch, sequence),) = parse_since(after, {region}).values()
        from_anywhere = (epoch, sequence) == (0, 0)
        known = await self._places(region, epoch)
        if self._newest is not None and is_of_another(self._newest, (epoch, sequence)):
            raise of_another(region, (epoch, sequence), self._newest)
        items: list[Event | Gap] = []
        if known and not from_anywhere and epoch < min(known):
            items.append(Gap(region, epoch, sequence + 1, 0, "the network no longer knows where they are"))
        for number in sorted(known):
            if number < epoch:
                continue
            if number > epoch:
                epoch, sequence = number, 0
            while True:
                while frames := await self._read(known[epoch], region, epoch, sequence):
                    for frame in frames:
                        sequence = self._add(items, frame, sequence, events_max)
                        if len(items) >= events_max:
                            return Page(items, f"{epoch}-{sequence}", True)
                if epoch == max(known) or await self._is_end(known[epoch], region, epoch, sequence):
                    break
                late_s = await self._ending_for_s(region, epoch)
                if late_s is not None and late_s < LATE_S_MAX:
                    if not items and await self._more_comes(known[epoch], region, epoch, sequence, END_S_MAX - late_s):
                        continue
                    more = bool(items) and late_s < END_S_MAX
                    return Page(items, f"{epoch}-{sequence}", more, is_late=not more)
                if await self._read(known[epoch], region, epoch, sequence):
                    continue  # it has arrived since
                if items or not from_anywhere or late_s is not None or self._is_given_up(known[epoch], region):
                    items.append(Gap(region, epoch, sequence + 1, 0, GONE))
                break
        if not items and not from_anywhere:
            await self._require_given(known, region, epoch, sequence)
        return Page(items, f"{epoch}-{sequence}", False)

    async def _require_given(self, known: Mapping[int, Plan], region: str, epoch: int, sequence: int) -> None:
        """Raise `UnknownPosition` if this is behind the newest of the region."""
        newest = max(known, default=0)
        if epoch not in known:
            raise never_given(region, (epoch, sequence), (newest, 0))
        if self._is_given_up(known[epoch], region):
            return
        async with self._turn:
            reader = await self._reader_at(known[epoch], region)
            [frame] = await reader.newest([(region, epoch)])
        last = frame.last if frame is not None else 0
        if sequence > last:
            raise never_given(region, (epoch, sequence), (epoch, last))

    async def _places(self, region: str, epoch: int) -> dict[int, Plan]:
        """Return epoch → a plan that has the place of that epoch of a region, from ``epoch`` on as far as is known."""
        async with self._turn:
            latest = await self._network.latest_plan()
            if latest is None:
                return {}
            self._newest = latest
            if region in latest.paths and latest.epoch_of(region) == epoch:
                return {epoch: latest}
            plans = await self._network.plans([region], epoch)
            self._newest = plans[-1]
            return {plan.epoch_of(region): plan for plan in plans if region in plan.paths}

    async def _ending_for_s(self, region: str, epoch: int) -> float | None:
        """Return for how long an epoch of a region has been seen to be ending; None if it has ended."""
        async with self._turn:
            ending, now = await self._network.ending(), time.monotonic()
        self._ending_since = {each: self._ending_since.get(each, now) for each in ending}
        since = self._ending_since.get((region, epoch))
        return now - since if since is not None else None

    async def _more_comes(self, plan: Plan, region: str, epoch: int, sequence: int, within_s: float) -> bool:
        """Return whether anything arrives of an epoch that is ending."""
        deadline = time.monotonic() + within_s
        while time.monotonic() < deadline:
            await asyncio.sleep(READ_AGAIN_S)
            if await self._read(plan, region, epoch, sequence):
                return True
        return False

    async def _is_end(self, plan: Plan, region: str, epoch: int, sequence: int) -> bool:
        """Return whether the frame at a sequence is the last of its epoch; more may have come behind it meanwhile."""
        if not sequence:
            return False
        frames = await self._read(plan, region, epoch, sequence - 1)
        try:
            at = frames[0] if frames and frames[0].last == sequence else None
            return at is not None and parse_meta(at.meta).kind == FrameKind.TICK
        except InvalidInput:
            return False

    async def close(self) -> None:
        """Release the connections."""
        async with self._turn:
            for reader in self._readers.values():
                await reader.close()
            self._readers.clear()
            await self._network.close()

    async def _read(self, plan: Plan, region: str, epoch: int, sequence: int) -> list[StampedFrame]:
        """Read from the place in a plan, at a node as the newest plan knows it: it may have been restarted since, or
        given up."""
        if self._is_given_up(plan, region):
            return []
        async with self._turn:
            reader = await self._reader_at(plan, region)
            result = await reader.read({region: (epoch, sequence)}, frames_max=FRAMES_MAX, block_ms=None)
            return [*result.frames]

    def _is_given_up(self, plan: Plan, region: str) -> bool:
        return self._newest is not None and plan.paths[region][-1] in self._newest.given_up

    async def _reader_at(self, plan: Plan, region: str) -> Streams:
        newest, node = self._newest or plan, plan.paths[region][-1]
        reader = self._readers.get(node)
        if reader is None:
            if len(self._readers) >= READERS_MAX:
                await self._readers.pop(next(iter(self._readers))).close()
            reader = self._readers[node] = self._network.reader(node, newest)
        reader.follow(newest)
        return reader

    @staticmethod
    def _add(items: list[Event | Gap], frame: StampedFrame, sequence: int, events_max: int) -> int:
        """Add the events of a frame after a sequence, as far as there is room; return the sequence to continue
        after."""
        try:
            meta = parse_meta(frame.meta)
            first = frame.last - meta.events + 1
            if sequence + 1 < first:
                last = first - 1 if first < UNKNOWN_END else 0
                items.append(Gap(frame.region, frame.epoch, sequence + 1, last, GONE))
            if meta.kind in MARKERS:
                return frame.last
            if meta.kind not in CARRIES_EVENTS:
                raise InvalidInput(f"this version of gamecast knows no frames of kind {meta.kind}: upgrade it")
            sent_at_ns, payloads, keys = decode_keyed_body(frame.body)
            if len(payloads) != meta.events:
                raise InvalidInput(f"a frame of {meta.events} events has {len(payloads)}")
        except InvalidInput as error:
            items.append(Gap(frame.region, frame.epoch, sequence + 1, frame.last, f"the frame cannot be read: {error}"))
            return frame.last
        now_ns = time.time_ns()
        each_key = keys or repeat(None)
        for number, (sent, payload, key) in enumerate(zip(sent_at_ns, payloads, each_key, strict=False), start=first):
            if number > sequence:
                told = frame.region, meta.publisher, payload, frame.epoch, number, sent, now_ns
                items.append(Event(*told, key=key))
                if len(items) >= events_max:
                    return number
        return frame.last
