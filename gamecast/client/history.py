"""What was published before a region was joined, for who subscribes with ``since``."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import AsyncExitStack
from functools import partial
from typing import TypeVar

from adapters.backoff import Backoff
from adapters.network import Network, Position, Reader
from sequencing.delivery import Missing, Ready
from sequencing.errors import InvalidInput, is_passing
from sequencing.frames import StampedFrame
from sequencing.plan import Plan
from sequencing.replay import Replay
from sequencing.subscriber import Subscriber

FRAMES_MAX = 64
"""Frames a region and read: the application takes history in its own time."""

LATE_S_MAX = 60.0
"""How long nothing may come of an epoch that is being left: a node of its path may be away. Then what is missing is a
gap: the node may never come back."""

Answer = TypeVar("Answer")


class Recall:
    """One call of ``subscribe`` with ``since``, until all its regions are joined.

    Until then what is handed out of them goes to their history. So all that the history has comes before all that comes
    after it of these regions, in everybody's order: the machine's own order is cut at one place.
    """

    def __init__(self, since: Mapping[str, Position]) -> None:
        """``since``: region → where its history begins, exclusive."""
        self.since = since
        self.begins: dict[str, Position] = {}
        """Region → where its history ends."""

    def takes(self, item: Ready | Missing) -> bool:
        """Return whether an item belongs to the history."""
        if isinstance(item, Missing):
            return item.region in self.since
        frame = item.frame
        if frame.region not in self.since:
            return False
        self.begins[frame.region] = frame.epoch, frame.last
        return True

    def is_joined(self, subscriber: Subscriber) -> bool:
        """Return whether all regions are joined; the history ends here then."""
        if not self.since.keys() <= subscriber.joined:
            return False
        for region in self.since.keys() - self.begins.keys():
            self.begins[region] = subscriber.begin(region)
        return True


class History:
    """History of some regions: epoch by epoch, and within each in the order of its stamps.

    A place in the inbox, at which the application reads it.
    """

    def __init__(
        self,
        network: Network,
        recall: Recall,
        newest: Callable[[], Plan],
        ending: Callable[[], AbstractSet[tuple[str, int]]],
    ) -> None:
        """``recall``: of what, once all is joined; ``newest``: tells the newest plan; ``ending``: tells regions and
        their epochs that are being left now.
        """
        self._network, self._newest, self._plan, self._ending = network, newest, newest(), ending
        self._begins, self._since = recall.begins, recall.since
        self._epochs: deque[tuple[Replay, Mapping[str, Plan]]] | None = None
        self._left: list[Ready | Missing] = []

    async def next_items(self) -> list[Ready | Missing]:
        """Return what comes next, empty at the end. Cancelling it loses nothing."""
        if self._epochs is None:
            self._left, self._epochs = await self._begin()
        while not self._left and self._epochs:
            replay, plans = self._epochs[0]
            if replay.finished:
                self._epochs.popleft()
                continue
            wanted = replay.wanted()
            self._left = replay.receive(wanted, await self._find(wanted, plans))
        left, self._left = self._left, []
        return left

    async def _begin(self) -> tuple[list[Ready | Missing], deque[tuple[Replay, Mapping[str, Plan]]]]:
        plans = [self._plan] if self._is_recent() else await _patiently(self._network.plans)
        unknown: list[Ready | Missing] = []
        epochs: dict[int, dict[str, tuple[int, int | None]]] = {}
        places: dict[int, dict[str, Plan]] = {}
        for region, (last_epoch, last) in self._begins.items():
            since_epoch, since = self._since[region]
            known = {plan.epoch_of(region): plan for plan in plans if region in plan.paths}
            if since_epoch < min(known, default=last_epoch) and (since_epoch, since) != (0, 0):
                unknown.append(Missing(region, since_epoch, since + 1, 0))
            for epoch, plan in known.items():
                if since_epoch <= epoch <= last_epoch:
                    after = since if epoch == since_epoch else 0
                    epochs.setdefault(epoch, {})[region] = after, last if epoch == last_epoch else None
                    places.setdefault(epoch, {})[region] = plan
        return unknown, deque((Replay(epoch, epochs[epoch]), places[epoch]) for epoch in sorted(epochs))

    def _is_recent(self) -> bool:
        """Return whether all of it is of epochs that the plan knows, as after a short absence."""
        return all(
            region in self._plan.paths and self._since[region][0] == last_epoch == self._plan.epoch_of(region)
            for region, (last_epoch, _) in self._begins.items()
        )

    async def _find(self, wanted: Mapping[str, Position], plans: Mapping[str, Plan]) -> list[StampedFrame]:
        """Read after some positions; where nothing is there yet of an epoch that is being left, wait for it."""
        left, frames, backoff = dict(wanted), list[StampedFrame](), Backoff()
        deadline = time.monotonic() + LATE_S_MAX
        while True:
            ending = self._ending()  # before the read: all of what has been left by now is there to be read
            frames += await self._read(left, plans)
            found = {frame.region for frame in frames}
            left = {
                region: (epoch, after)
                for region, (epoch, after) in left.items()
                if region not in found and (region, epoch) in ending
            }
            if not left or time.monotonic() > deadline:
                return frames
            await backoff.wait()

    async def _read(self, wanted: Mapping[str, Position], plans: Mapping[str, Plan]) -> list[StampedFrame]:
        """Read where the plans of an epoch say, from nodes as the newest plan knows them: they may have begun anew."""
        by_node: dict[str, dict[str, Position]] = {}
        for region, position in wanted.items():
            by_node.setdefault(plans[region].paths[region][-1], {})[region] = position
        frames: list[StampedFrame] = []
        async with AsyncExitStack() as stack:
            for node, after in by_node.items():
                reader = self._network.reader(node, self._newest())
                stack.push_async_callback(reader.close)
                frames += await _patiently(partial(self._read_at, reader, after))
        return frames

    async def _read_at(self, reader: Reader, after: Mapping[str, Position]) -> list[StampedFrame]:
        reader.follow(self._newest())
        return await reader.read(after, frames_max=FRAMES_MAX, block_ms=None)


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
"""After what to replay: an epoch, a position of one region, or region → one of these."""


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


def _parse_position(since: int | str) -> Position:
    if isinstance(since, int) and not isinstance(since, bool) and since >= 0:
        return since, 0
    epoch, dash, sequence = since.partition("-") if isinstance(since, str) else ("", "", "")
    if not (dash and epoch.isdecimal() and sequence.isdecimal()):
        raise InvalidInput(f"since is an epoch, as a number, or a position like '3-120', not {since!r}")
    return int(epoch), int(sequence)
