"""The events published before a region was joined, for subscribers with ``since``."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AsyncExitStack
from itertools import chain
from typing import Any, Literal, TypeVar, get_args

from adapters.backoff import Backoff
from adapters.framesizes import FrameSizes
from adapters.network import Network, Reader
from adapters.places import Position
from gamecast.client.states import region_of
from gamecast.positions import NUMBER_DIGITS_MAX, parse_position
from sequencing.cut import ReadResult
from sequencing.errors import InvalidInput, UnknownPosition, UnorderedHistory, UsageError, is_passing
from sequencing.frames import CARRIES_EVENTS, FrameKind, StampedFrame, parse_meta
from sequencing.plan import Plan
from sequencing.ready import Missing, Ready
from sequencing.replay import Replay, unordered
from sequencing.session import Session

FRAMES_MAX = 64
"""Frames of a region in one read: the application takes history at its own pace."""
READ_BYTES = 1024 * 1024
"""About the same in bytes, of all regions, by the size of the frames that came last."""
FRAME_BYTES = 8_192
"""What a frame is taken to have before any came."""

LATE_S_MAX = 60.0
"""How long an epoch that is ending may bring nothing: a node of its path may be unreachable. Then the missing events
become a gap, because the node may never come back."""


ONE_OF_ANOTHER = (
    "position is from another network, or from before this one was reset. Pass since=0 to replay what is kept"
)

Answer = TypeVar("Answer")

ReplayOrder = Literal["common", "any"]
"""The order in which the history of several regions is delivered.

``common``: in the order in which all subscribers delivered it; regions that have none are refused. ``any``: regions
without a common order come in any order, and may be interleaved. Each region still comes in its own order, and regions
that have a common order come in that.
"""


def checked_order(order: object) -> ReplayOrder:
    """Return an order; raises `UsageError` if the value is not one."""
    if order == "common" or order == "any":
        return order
    raise UsageError(f"order is {' or '.join(map(repr, get_args(ReplayOrder)))}, not {order!r}")


class Recall:
    """One call of ``subscribe`` with ``since``, until all its regions are joined.

    Until then, items delivered of these regions go to their history. So all items of the history precede all later
    items of these regions, in the order that all subscribers share: the delivery machine's own order is cut at one
    place.
    """

    def __init__(self, since: Mapping[str, Position], order: ReplayOrder = "common") -> None:
        """``since``: region → where its history begins, exclusive."""
        self.since = since
        self.order = order
        self.begins: dict[str, Position] = {}
        """Region → where its history ends."""
        self.history: History | None = None
        """Of all its regions, once they are joined."""
        self.is_answered = asyncio.Event()
        """Set when no caller waits for the outcome of the call any more."""

    def narrow(self, wanted: AbstractSet[str]) -> None:
        """Leave out regions that are no longer wanted."""
        if not self.since.keys() <= wanted:
            self.since = {region: position for region, position in self.since.items() if region in wanted}
            self.begins = {region: position for region, position in self.begins.items() if region in wanted}

    def unknown(self) -> UnknownPosition | None:
        """Return the error if a position is later than the newest one; of use once all regions are joined."""
        for region, position in self.since.items():
            if position > self.begins[region]:
                return never_given(region, position, self.begins[region])
        return None

    def takes(self, item: Ready | Missing) -> bool:
        """Return whether an item belongs to the history."""
        if isinstance(item, Missing):
            return item.region in self.since
        frame = item.frame
        if frame.region not in self.since:
            return False
        self.begins[frame.region] = frame.epoch, frame.last
        return True

    def is_joined(self, session: Session[Any]) -> bool:
        """Return whether all regions are joined; the history then ends here."""
        if not self.since.keys() <= session.joined:
            return False
        for region in self.since.keys() - self.begins.keys():
            self.begins[region] = session.begin(region)
        return True


class History:
    """History of some regions: epoch by epoch, and within each in the order of its stamps.

    It has a place in the inbox, at which the application reads it. It is refused if it has no order, or begins after
    the newest event. The subscribing call then raises the error; if no call waits for it, a gap is delivered.
    """

    def __init__(
        self,
        network: Network,
        recall: Recall,
        newest: Callable[[], Plan],
        ending: Callable[[], AbstractSet[tuple[str, int]]],
    ) -> None:
        """``recall``: the call that it belongs to, once all is joined; ``newest``: returns the newest plan; ``ending``:
        returns regions and their epochs that are ending now.
        """
        self._network, self._newest, self._plan, self._ending = network, newest, newest(), ending
        self._begins, self._since, self._order = recall.begins, recall.since, recall.order
        self._is_answered = recall.is_answered
        self._refusal: UsageError | None = recall.unknown()
        self._looking = asyncio.Lock()
        self._sizes = FrameSizes(FRAME_BYTES)
        self._epochs: deque[tuple[Replay, Mapping[str, Plan]]] | None = None
        self._left: list[Ready | Missing] = []
        self._released: set[str] = set()

    async def admit(self) -> None:
        """Raise `UnknownPosition` or `UnorderedHistory` if it is refused. Cancelling it loses nothing."""
        async with self._looking:
            if self._epochs is None:
                gaps, epochs = await self._begin() if self._refusal is None else ([], deque())
                error = self._refusal or await self._never_given(epochs) or await self._unordered(epochs)
                if error is not None:
                    gaps = [Missing(region, epoch, since + 1, 0) for region, (epoch, since) in self._since.items()]
                    self._refusal, epochs = error, deque()
                self._left, self._epochs = gaps, epochs
        if self._refusal is not None:
            raise self._refusal

    def since(self, region: str) -> Position:
        """Return the position after which a region's history begins."""
        return self._since[region]

    @property
    def regions(self) -> frozenset[str]:
        """The regions of the history, without those that were left."""
        return frozenset(self._since.keys() - self._released)

    def release(self, regions: AbstractSet[str]) -> None:
        """Return nothing more of some regions."""
        self._released |= regions

    async def next_items(self) -> list[Ready | Missing]:
        """Return the next items, empty at the end. Cancelling it loses nothing."""
        if self._epochs is None or self._refusal is not None:
            try:
                await self.admit()
            except UsageError:
                await self._is_answered.wait()
        assert self._epochs is not None
        left = self._take_left()
        while not left and self._epochs and not self._since.keys() <= self._released:
            replay, plans = self._epochs[0]
            if replay.finished:
                self._epochs.popleft()
                continue
            wanted = replay.wanted()
            self._left = replay.receive(wanted, await self._find(wanted, plans))
            left = self._take_left()
        return left

    def _take_left(self) -> list[Ready | Missing]:
        left, self._left = self._left, []
        if not self._released:
            return left
        return [item for item in left if region_of(item) not in self._released]

    async def _never_given(self, epochs: Iterable[tuple[Replay, Mapping[str, Plan]]]) -> UnknownPosition | None:
        """Return the error if a position is later than the end of its epoch, where that is not the epoch of live
        events."""
        asked: dict[str, list[tuple[str, int]]] = {}
        for replay, plans in epochs:
            for region, plan in plans.items():
                epoch, since = self._since[region]
                if since and epoch == replay.epoch < self._begins[region][0]:
                    asked.setdefault(plan.paths[region][-1], []).append((region, epoch))
        for node, streams in asked.items():
            for frame in filter(None, await self._at(node, _newest_of(streams)) or ()):
                position = self._since[frame.region]
                if frame.last < position[1] and parse_meta(frame.meta).kind == FrameKind.TICK:
                    return never_given(frame.region, position, (frame.epoch, frame.last))
        return None

    async def _unordered(self, epochs: Iterable[tuple[Replay, Mapping[str, Plan]]]) -> UnorderedHistory | None:
        """Return the error if regions that have events have no order, and need one."""
        if self._order == "any":
            return None
        for replay, plans in epochs:
            pairs = unordered(plans)
            if not pairs:
                continue
            spoken = await self._spoken(replay.ranges(set(chain.from_iterable(pairs))), plans)
            if pairs := [pair for pair in pairs if spoken.issuperset(pair)]:
                return no_order(replay.epoch, pairs)
        return None

    async def _spoken(self, ranges: Mapping[str, tuple[Position, int | None]], plans: Mapping[str, Plan]) -> set[str]:
        """Return the regions that have events. ``ranges``: region → (after, up to which region sequence; None: all)."""
        spoken: set[str] = set()
        wanted = {region: after for region, (after, last) in ranges.items() if last is None or after[1] < last}
        while wanted:
            after: dict[str, Position] = {}
            for frame in await self._find(wanted, plans):
                last = ranges[frame.region][1]
                meta = parse_meta(frame.meta)
                if meta.kind in CARRIES_EVENTS and (last is None or frame.last <= last):
                    spoken.add(frame.region)
                elif meta.kind != FrameKind.TICK and (last is None or frame.last < last):
                    after[frame.region] = frame.epoch, frame.last
                else:
                    after.pop(frame.region, None)
            wanted = {region: position for region, position in after.items() if region not in spoken}
        return spoken

    async def _begin(self) -> tuple[list[Ready | Missing], deque[tuple[Replay, Mapping[str, Plan]]]]:
        plans = [self._plan] if self._is_recent() else await _patiently(self._plans)
        unknown: list[Ready | Missing] = []
        epochs: dict[int, dict[str, tuple[int, int | None]]] = {}
        places: dict[int, dict[str, Plan]] = {}
        for region, (last_epoch, last) in self._begins.items():
            since_epoch, since = self._since[region]
            if is_of_another(self._plan, (since_epoch, since)):
                self._refusal = of_another(region, (since_epoch, since), self._plan)
            known = {plan.epoch_of(region): plan for plan in plans if region in plan.paths}
            if since and since_epoch not in known and (not since_epoch or since_epoch > min(known, default=last_epoch)):
                self._refusal = never_given(region, (since_epoch, since), self._begins[region])
            if since_epoch < min(known, default=last_epoch) and (since_epoch, since) != (0, 0):
                unknown.append(Missing(region, since_epoch, since + 1, 0))
            for epoch, plan in known.items():
                if since_epoch <= epoch <= last_epoch:
                    after = since if epoch == since_epoch else 0
                    epochs.setdefault(epoch, {})[region] = after, last if epoch == last_epoch else None
                    places.setdefault(epoch, {})[region] = plan
        replays = deque[tuple[Replay, Mapping[str, Plan]]]()
        for epoch, regions in sorted(epochs.items()):
            nodes = {region: plan.paths[region][-1] for region, plan in places[epoch].items()}
            replays.append((Replay(epoch, regions, nodes), places[epoch]))
        return unknown, replays

    async def _plans(self) -> list[Plan]:
        return await self._network.plans(self._since.keys(), min(epoch for epoch, _ in self._since.values()))

    def _is_recent(self) -> bool:
        """Return whether all of it is of epochs that the plan has, as after a short absence."""
        return all(
            region in self._plan.paths and self._since[region][0] == last_epoch == self._plan.epoch_of(region)
            for region, (last_epoch, _) in self._begins.items()
        )

    async def _find(self, wanted: Mapping[str, Position], plans: Mapping[str, Plan]) -> list[StampedFrame]:
        """Read after some positions; if an ending epoch has nothing there yet, wait for it."""
        left, frames, backoff = dict(wanted), list[StampedFrame](), Backoff()
        deadline = time.monotonic() + LATE_S_MAX
        while True:
            ending = self._ending()  # before the read, so that all of every epoch that has ended by now can be read
            frames += await self._read(left, plans)
            arrived = {frame.region for frame in frames}
            left = {
                region: (epoch, after)
                for region, (epoch, after) in left.items()
                if region not in arrived and (region, epoch) in ending and not self._is_given_up(region, plans)
            }
            if not left or time.monotonic() > deadline:
                return frames
            await backoff.wait()

    def _is_given_up(self, region: str, plans: Mapping[str, Plan]) -> bool:
        return plans[region].paths[region][-1] in self._newest().given_up

    async def _read(self, wanted: Mapping[str, Position], plans: Mapping[str, Plan]) -> list[StampedFrame]:
        """Read from the places in the plans of an epoch, at nodes as the newest plan knows them: they may have
        restarted."""
        by_node: dict[str, dict[str, Position]] = {}
        for region, position in wanted.items():
            by_node.setdefault(plans[region].paths[region][-1], {})[region] = position
        frames: list[StampedFrame] = []
        for node, after in by_node.items():
            frames_max = self._sizes.fit_in(READ_BYTES // len(after), FRAMES_MAX)
            result = await self._at(node, _reading(after, frames_max))
            frames += result.frames if result is not None else ()
        self._sizes.note(frames)
        return frames

    async def _at(self, node: str, ask: Callable[[Reader], Awaitable[Answer]]) -> Answer | None:
        """Ask a node, waiting as long as it takes; return None if it is given up."""
        reader = self._network.reader(node, self._newest())

        async def asked() -> Answer | None:
            newest = self._newest()
            if node in newest.given_up:
                return None
            reader.follow(newest)
            return await ask(reader)

        async with AsyncExitStack() as stack:
            stack.push_async_callback(reader.close)
            return await _patiently(asked)


def _newest_of(streams: Sequence[tuple[str, int]]) -> Callable[[Reader], Awaitable[list[StampedFrame | None]]]:
    return lambda reader: reader.newest(streams)


def _reading(after: Mapping[str, Position], frames_max: int) -> Callable[[Reader], Awaitable[ReadResult]]:
    return lambda reader: reader.read(after, frames_max=frames_max, block_ms=None)


async def _patiently(ask: Callable[[], Awaitable[Answer]]) -> Answer:
    backoff = Backoff()
    while True:
        try:
            return await ask()
        except Exception as error:
            if not is_passing(error):
                raise
            await backoff.wait()


Since = int | str | Mapping[str, int | str]
"""Where to replay after: an epoch, a position of one region, or region → one of these."""


def parse_since(since: Since, regions: AbstractSet[str]) -> dict[str, Position]:
    """Return region → (epoch, region sequence) to begin after; raises `InvalidInput`."""
    if not isinstance(since, Mapping):
        if len(regions) > 1 and not isinstance(since, int):
            raise InvalidInput(
                f"a position is one of one region, and here are {len(regions)}: say since={{region: position, …}}"
            )
        return dict.fromkeys(regions, _parse_position(since))
    if since.keys() != regions:
        odd = min(since.keys() ^ regions, key=str)
        raise InvalidInput(f"since names a position for each region that is subscribed to, and no other: see {odd!r}")
    return {region: _parse_position(position) for region, position in since.items()}


def no_order(epoch: int, pairs: Sequence[tuple[str, str]]) -> UnorderedHistory:
    """Return the error for regions whose history has no common order."""
    named = ", ".join(f"{one!r} and {other!r}" for one, other in pairs[:3])
    more = f" and {len(pairs) - 3} pairs more" if len(pairs) > 3 else ""
    error = UnorderedHistory(
        f"in epoch {epoch} no subscriber had {named}{more} together, so their events have no common order to be "
        'replayed in. Pass order="any" to subscribe() to replay such regions in any order, each region in its own. '
        "Regions that `declare_overlaps` declares have a common order from then on"
    )
    error.pairs = tuple(pairs)
    return error


def never_given(region: str, position: Position, newest: Position) -> UnknownPosition:
    """Return the error for a position later than the newest of its region."""
    asked, there = (f"{epoch}-{sequence}" for epoch, sequence in (position, newest))
    return UnknownPosition(f"{region!r} has no position {asked}, its newest is {there}: that {ONE_OF_ANOTHER}")


def is_of_another(plan: Plan, position: Position) -> bool:
    """Return whether a position, unless it is the beginning of everything, is older than the network."""
    return position[0] < plan.first_epoch and position != (0, 0)


def of_another(region: str, position: Position, plan: Plan) -> UnknownPosition:
    """Return the error for a position that is older than the network."""
    return UnknownPosition(
        f"{region!r} has no position {position[0]}-{position[1]}, this network began with epoch {plan.first_epoch}: "
        f"that {ONE_OF_ANOTHER}"
    )


def _parse_position(since: int | str) -> Position:
    if isinstance(since, int) and not isinstance(since, bool) and 0 <= since < 10**NUMBER_DIGITS_MAX:
        return since, 0
    position = parse_position(since)
    if position is None:
        raise InvalidInput(f"since is an epoch, as a number, or a position like '3-120', not {since!r}")
    return position
