"""What many connections of one process read at a node together, where looks and new streams overtake each other."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import cast

import pytest

from adapters.places import Places, Position
from adapters.redis.node import RedisNode
from adapters.shared.reader import SharedReader
from adapters.shared.streams import SharedNode
from sequencing.cut import ReadResult
from sequencing.errors import NotConnected
from sequencing.frames import StampedFrame
from sequencing.plan import Plan
from tests.patience import patience

PLAN = Plan(1, 1, "acyclic", {"n1": ""}, {"x": ("n1",)}, ())
KEY = "x", 1


class ScriptedNode:
    """A way to a node where one region has ``last`` events; what a look finds is held back until ``gate`` is open."""

    def __init__(self) -> None:
        self.client = 1
        self.last = 505
        self.asked = asyncio.Event()
        self.gate = asyncio.Event()

    def follow(self, plan: Plan) -> None:
        pass

    async def read_streams(
        self, after: Mapping[tuple[str, int], Position], *, frames_max: int, block_ms: int | None
    ) -> list[StampedFrame]:
        numbers = range(after[KEY][1] + 1, self.last + 1)
        found = [StampedFrame("x", 1, n, b"0 1 1 %d p" % n, b"0,%d" % n, b"[0,[0],[1]]") for n in numbers]
        self.asked.set()
        await self.gate.wait()
        await asyncio.sleep(0.001)
        return found

    async def read(self, after: Mapping[str, Position], *, frames_max: int, block_ms: int | None) -> ReadResult:
        return ReadResult((), {region: epoch for region, (epoch, _) in after.items()})

    def hidden(self) -> tuple[()]:
        return ()

    def break_off_pushes(self) -> bool:
        return False

    async def unblock(self, client: int) -> bool:
        return False

    async def interrupt(self) -> None:
        pass

    async def close(self) -> None:
        pass


async def test_a_stream_that_is_begun_again_further_back_takes_nothing_of_the_look_before() -> None:
    made: list[ScriptedNode] = []

    def make() -> RedisNode:
        made.append(ScriptedNode())
        return cast("RedisNode", made[-1])

    shared = SharedNode(make, "n1", PLAN)
    looking = made[1]
    one, other = SharedReader(shared, PLAN), SharedReader(shared, PLAN)
    async with patience(10):
        looking.last = 506
        shared.begin(one, KEY, 505)
        await looking.asked.wait()  # a look after 505 is under way, and will find 506
        shared.end(one, KEY)
        stream = shared.begin(other, KEY, 500)
        looking.gate.set()
        while stream.tail == 500:  # noqa: ASYNC110
            await asyncio.sleep(0.001)  # the looks go on by themselves
        assert [frame.last for _, frame in stream.kept] == [501, 502, 503, 504, 505, 506]
        await shared.close()


class Taker:
    """Takes what comes while a read waits. Implements `adapters.network.Found`."""

    def __init__(self, after: Places[str], room: int) -> None:
        self.after, self.room = after, room
        self.taken: list[int] = []

    def has_room(self) -> bool:
        return self.room > 0

    def take(self, found: ReadResult) -> bool:
        self.room -= len(found.frames)
        for frame in found.frames:
            self.taken.append(frame.last)
            self.after.moved(frame.region, frame.epoch, frame.last)
        return self.room > 0


@pytest.mark.parametrize(("room", "by_read"), [(999, []), (1, [3]), (0, [2, 3])])
async def test_what_comes_while_a_read_waits_is_handed_on_as_long_as_there_is_room(
    room: int, by_read: list[int]
) -> None:
    """The rest is the read's own."""
    made: list[ScriptedNode] = []

    def make() -> RedisNode:
        made.append(ScriptedNode())
        return cast("RedisNode", made[-1])

    shared = SharedNode(make, "n1", PLAN)
    looking, after = made[1], Places([("x", (1, 1))])
    looking.last = 1
    reader = SharedReader(shared, PLAN)
    taker = Taker(after, room)
    reader.tell(taker)
    looking.gate.set()
    read: list[int] = []

    async def go_on() -> None:
        while True:
            frames, _ = await reader.read(after, frames_max=128, block_ms=60_000)
            for frame in frames:
                read.append(frame.last)
                after.moved(frame.region, frame.epoch, frame.last)

    task = asyncio.create_task(go_on())
    async with patience(10):
        while not shared.is_read(KEY):  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        for last in (2, 3):
            await asyncio.sleep(0.01)
            looking.last = last
            while after["x"][1] < last:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
    assert read == by_read
    assert taker.taken == [number for number in (2, 3) if number not in by_read]
    looking.last = 400  # more than is handed on at once: the read has the rest, and does not wait for it
    async with patience(10):
        while after["x"][1] < looking.last:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    assert sorted([*read, *taker.taken]) == [*range(2, 401)]
    task.cancel()
    await reader.close()
    await shared.close()


async def test_a_reader_fails_when_what_it_reads_with_others_closes() -> None:
    shared = SharedNode(lambda: cast("RedisNode", ScriptedNode()), "n1", PLAN)
    reader = SharedReader(shared, PLAN)
    after = Places([("x", (1, 1))])
    async with patience(10):
        waiting = asyncio.create_task(reader.read(after, frames_max=128, block_ms=60_000))
        while not shared.is_read(KEY):  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        shared._node.gate.set()  # type: ignore[attr-defined] # that of the test
        await shared.close()
        for asked in (waiting, reader.read(after, frames_max=128, block_ms=60_000)):
            with pytest.raises(NotConnected):
                await asked
