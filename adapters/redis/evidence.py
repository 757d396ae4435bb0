"""Compare what one connection knows about a node's data with what the node has after the connection was opened again.

Even a node that is registered to keep all may come back with less. Its append-only file may be truncated, its disk
restored from a copy, or its keys deleted. Then its numbers would be assigned twice, and readers that wait for a later
number would miss events. So a connection that has read or published there compares before it continues. If something is
missing, it stops talking to that node until a plan names the node's run. It also informs the leader, which begins a new
epoch for the node's regions.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import Any, TypeVar

from sequencing.frames import PublishedFrame
from sequencing.keyspace import NodeKeys

Item = TypeVar("Item")

Exchange = Callable[[Sequence[tuple[Any, ...]]], Awaitable[list[Any]]]
"""Sends commands and returns their replies."""

Missing = Callable[[str, str, Exchange], Awaitable[str]]
"""`Evidence.missing`."""

Stream = tuple[str, int]
"""Region and epoch."""

REPORTED_MAX = 3
PAGE = 500
"""How many streams, or fields, one request reads."""


class Evidence:
    """The last frames that one connection has read at one node, and the last that the node acknowledged."""

    def __init__(self, keys: NodeKeys) -> None:
        self._keys = keys
        self._receipts: dict[str, tuple[str, int, int, tuple[int, ...]]] = {}
        """Region → publisher, incarnation and last number of the last acknowledged frame, and its position."""
        self.last_read: dict[Stream, tuple[int, bytes]] = {}
        """Stream → the number and the meta of the last frame that was read of it: for the reader to note."""
        self._run = ""
        """The run of the server in which something was missing, and what."""
        self._lost = ""
        self.given_again: list[tuple[str, int, int, int]] = []
        """Region, epoch, first and last region sequence of events that were read and are missing.

        These numbers may be assigned to other events, which this reader does not get.
        """

    def accepted(self, frame: PublishedFrame, position: tuple[int, ...]) -> None:
        """Note that the node has acknowledged a frame, and the position of its last event: epoch, and the sequence in
        each of its regions, 0 where another node numbers it."""
        if not frame.extras.also:
            last = frame.first + frame.count - 1
            self._receipts[frame.region] = frame.publisher, frame.incarnation, last, position
            return
        epoch, *sequences = position
        for (region, first), sequence in zip(frame.parts, sequences, strict=True):
            last = first + frame.count - 1
            if sequence:
                self._receipts[region] = frame.publisher, frame.incarnation, last, (epoch, sequence)

    def forget(self) -> None:
        """Forget everything: the network has ended that it was about."""
        self._receipts, self.last_read, self._run, self._lost = {}, {}, "", ""

    def narrow(self, streams: Collection[Stream]) -> None:
        """Forget all but some streams, if those are many; what was read there stays true."""
        if len(self.last_read) > 2 * len(streams):
            self.last_read = {stream: last for stream, last in self.last_read.items() if stream in streams}

    async def missing(self, run: str, before: str, exchange: Exchange) -> str:
        """Return in words what the node lacks, empty if this connection misses nothing.

        ``run``: of the server now; ``before``: of the server at the last time. Within one run, only an emptied node
        counts, because pushed events may have been forged. Something that was missing once in a run stays missing, even
        if others have filled the numbers again.
        """
        if run == self._run:
            return self._lost
        if not self.last_read and not self._receipts:
            return ""
        is_empty = not (await exchange([("EXISTS", self._keys.node)]))[0]
        if run == before and not is_empty:
            return ""
        lost = await self._lost_of_streams(exchange, is_empty=is_empty)
        lost += await self._lost_of_receipts(exchange, is_empty=is_empty)
        if lost:
            more = f", and {len(lost) - REPORTED_MAX} more" if len(lost) > REPORTED_MAX else ""
            self._run, self._lost = run, ", ".join(lost[:REPORTED_MAX]) + more
        return self._lost if lost else ""

    async def _lost_of_streams(self, exchange: Exchange, *, is_empty: bool) -> list[str]:
        lost: list[str] = []
        for page in _pages(list(self.last_read.items())):
            keys = [self._keys.egress(epoch, region) for (region, epoch), _ in page]
            fields = (f"{epoch} {region}" for (region, epoch), _ in page)
            [steps] = await exchange([("HMGET", self._keys.steps, *fields)])
            asked: list[tuple[Any, ...]] = []
            for key, ((_, epoch), (last, _)) in zip(keys, page, strict=True):
                asked += (
                    ("XRANGE", key, f"{epoch}-{last}", "+", "COUNT", 1),
                    ("XRANGE", key, "-", "+", "COUNT", 1),
                    ("XREVRANGE", key, "+", "-", "COUNT", 1),
                )
            replies = await exchange(asked)
            for place, ((region, epoch), (last, meta)) in enumerate(page):
                at, oldest = replies[3 * place], replies[3 * place + 1]
                if not oldest:
                    # Streams of ended epochs expire, and the node knows nothing else about them.
                    is_lost = bool(steps[place]) or is_empty
                elif _number(oldest[0]) > last:
                    is_lost = False  # it was trimmed
                else:
                    is_lost = not at or _number(at[0]) != last or at[0][1][1] != meta
                if is_lost:
                    lost.append(f"{region} {epoch}-{last}, which was read")
                    newest = replies[3 * place + 2]
                    there = min(_number(newest[0]), last - 1) if newest else 0
                    self.given_again.append((region, epoch, there + 1, last))
        return lost

    async def _lost_of_receipts(self, exchange: Exchange, *, is_empty: bool) -> list[str]:
        lost: list[str] = []
        for page in _pages(list(self._receipts.items())):
            fields = [f"{position[0]} {region}" for region, (*_, position) in page]
            steps, drawn, accepted, forgotten = await exchange(
                [
                    ("HMGET", self._keys.steps, *fields),
                    ("HMGET", self._keys.counters, *(f"r {field}" for field in fields)),
                    ("HMGET", self._keys.publishers, *(f"{region}\n{publisher}" for region, (publisher, *_) in page)),
                    ("HMGET", self._keys.publishers, *(f"{region}\n" for region, _ in page)),
                ]
            )
            rows = zip(page, steps, drawn, accepted, forgotten, strict=True)
            for (region, known), step, number, there, floor in rows:
                if not step and not is_empty:
                    continue  # the epoch has ended
                _, incarnation, last, (epoch, sequence) = known
                if there:
                    there_incarnation, there_last = map(int, there.split()[:2])
                    is_lost = there_incarnation == incarnation and there_last < last
                else:  # the node forgets a publisher that was away for long
                    is_lost = not floor or int(floor.split()[0]) < incarnation
                if is_lost or int(number or 0) < sequence:
                    lost.append(f"{region} {epoch}-{sequence}, which was acknowledged")
        return lost


def _number(entry: Any) -> int:
    return int(entry[0].partition(b"-")[2])


def _pages(items: Sequence[Item]) -> Iterable[Sequence[Item]]:
    return (items[start : start + PAGE] for start in range(0, len(items), PAGE))
