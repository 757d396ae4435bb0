"""What many connections of one process read at a node together, where looks and new streams overtake each other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import NamedTuple, cast

import pytest

import adapters.redis.egress
from adapters.places import Places, Position
from adapters.redis import egressstream
from adapters.redis.egress import Egress
from adapters.redis.egressreader import EgressReader
from adapters.redis.egressstream import KEPT_S, EgressStream, Kept
from adapters.redis.node import RedisNode
from adapters.redis.nodestreams import StreamKey
from adapters.redis.nodestreams import Taker as NodeTaker
from sequencing.cut import ReadResult
from sequencing.errors import NotConnected, Unreachable
from sequencing.frames import StampedFrame
from sequencing.plan import Plan
from tests.patience import patience, until

PLAN = Plan(1, 1, "acyclic", {"n1": ""}, {"x": ("n1",)}, ())
KEY = "x", 1


class ScriptedNode:
    """A way to a node, of which the test asks nothing but what a direct read returns: nothing."""

    def follow(self, plan: Plan) -> None:
        pass

    async def read(self, after: Mapping[str, Position], *, frames_max: int, block_ms: int | None) -> ReadResult:
        return ReadResult((), {region: epoch for region, (epoch, _) in after.items()})

    async def unblock(self, client: int) -> bool:
        return False

    async def close(self) -> None:
        pass


class ScriptedStreams:
    """What is read where one region has ``last`` events; what a look finds is held back until ``gate`` is open."""

    def __init__(self, node: RedisNode, taker: NodeTaker) -> None:
        made.append(self)
        self.taker = taker
        self.client = 1
        self.last = 505
        self.asked = asyncio.Event()
        self.gate = asyncio.Event()
        self.failure: Exception | None = None
        self.was_quiet = False
        self.reads = 0

    async def read(self, after: Places[StreamKey], *, frames_max: int, block_ms: int | None) -> list[StampedFrame]:
        self.reads += 1
        if self.failure is not None:
            raise self.failure
        found = [frame(number) for number in range(after[KEY][1] + 1, self.last + 1)]
        self.asked.set()
        await self.gate.wait()
        await asyncio.sleep(0.001)
        return found

    def hidden(self) -> tuple[()]:
        return ()

    def break_off_pushes(self) -> bool:
        return False

    async def interrupt(self) -> None:
        pass

    async def close(self) -> None:
        pass


made: list[ScriptedStreams] = []


def frame(number: int) -> StampedFrame:
    return StampedFrame("x", 1, number, b"0 1 1 %d p" % number, b"0,%d" % number, b"[0,[0],[1]]")


@pytest.fixture(autouse=True)
def scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    made.clear()
    monkeypatch.setattr(adapters.redis.egress, "NodeStreams", ScriptedStreams)


def opened() -> tuple[Egress, ScriptedStreams]:
    return Egress(lambda: cast("RedisNode", ScriptedNode()), "n1", PLAN), made[-1]


async def test_a_stream_that_is_begun_again_further_back_takes_nothing_of_the_look_before() -> None:
    egress, looking = opened()
    one, other = EgressReader(egress, PLAN), EgressReader(egress, PLAN)
    async with patience(10):
        looking.last = 506
        egress.begin(one, KEY, 505)
        await looking.asked.wait()  # a look after 505 is under way, and will find 506
        egress.end(one, KEY)
        stream = egress.begin(other, KEY, 500)
        egress.wait(other)
        looking.gate.set()
        while stream.tail == 500:  # noqa: ASYNC110
            await asyncio.sleep(0.001)  # the looks go on by themselves
        assert [frame.last for frame in stream.kept] == [501, 502, 503, 504, 505, 506]
        await egress.close()


class Taker:
    """Takes what comes while a read waits. Implements `adapters.network.Found`."""

    def __init__(self, after: Places[str], room: int) -> None:
        self.after, self.room = after, room
        self.taken: list[int] = []
        self.predicts, self.predicted = False, list[int]()

    def has_room(self) -> bool:
        return self.room > 0

    def take(self, found: ReadResult) -> bool:
        self.room -= len(found.frames)
        for frame in found.frames:
            self.taken.append(frame.last)
            self.after.moved(frame.region, frame.epoch, frame.last)
        return self.room > 0

    def take_next(self, frame: StampedFrame, whole: Mapping[str, int]) -> bool:
        if self.predicts and self.room > 0:
            self.predicted.append(frame.last)
            return self.take(ReadResult([frame], whole)) or True
        return False


@pytest.mark.parametrize(("room", "by_read"), [(999, []), (1, [3]), (0, [2, 3])])
async def test_what_comes_while_a_read_waits_is_handed_on_as_long_as_there_is_room(
    room: int, by_read: list[int]
) -> None:
    """The rest is the read's own."""
    shared, looking = opened()
    after = Places([("x", (1, 1))])
    looking.last = 1
    reader = EgressReader(shared, PLAN)
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
        while not looking.reads:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        for last in (2, 3):
            await asyncio.sleep(0.01)
            looking.last = last
            while after["x"][1] < last:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
    assert read == by_read
    assert taker.taken == [number for number in (2, 3) if number not in by_read]
    looking.last = 400  # more than is handed on at once: the read has the rest, and does not wait for it
    await until(lambda: after["x"][1] >= looking.last)
    assert sorted([*read, *taker.taken]) == [*range(2, 401)]
    task.cancel()
    await reader.close()
    await shared.close()


async def reading(reader: EgressReader, after: Places[str], read: list[int]) -> None:
    while True:
        frames, _ = await reader.read(after, frames_max=128, block_ms=60_000)
        for frame in frames:
            read.append(frame.last)
            after.moved(frame.region, frame.epoch, frame.last)


async def settled() -> None:
    for _ in range(20):
        await asyncio.sleep(0.001)


class Listening(NamedTuple):
    """A reader of region x that has its first event, and whose `read` waits for what is pushed."""

    egress: Egress
    reader: EgressReader
    after: Places[str]
    taker: Taker
    read: list[int]
    """What its `read` has returned."""


@asynccontextmanager
async def listening() -> AsyncIterator[Listening]:
    egress, looking = opened()
    looking.last = 1
    after, read = Places([("x", (1, 1))]), list[int]()
    taker = Taker(after, 999)
    taker.predicts = True
    reader = EgressReader(egress, PLAN)
    reader.tell(taker)
    task = asyncio.create_task(reading(reader, after, read))
    looking.gate.set()
    await settled()
    looking.gate.clear()
    yield Listening(egress, reader, after, taker, read)
    looking.gate.set()
    task.cancel()
    await reader.close()
    await egress.close()


async def test_what_is_pushed_next_goes_the_short_way_once() -> None:
    async with listening() as (egress, _, _, taker, read):
        assert egress.take([frame(2)])
        assert egress.take([frame(3), frame(4)])
        egress.take([frame(4)])
        egress.take([frame(5)])
        assert (taker.predicted, taker.taken, read) == ([2, 3, 4, 5], [2, 3, 4, 5], [])


async def test_what_finds_no_room_is_not_overtaken_by_what_comes_once_there_is_some() -> None:
    """The reader's task has been woken, and has not run."""
    async with listening() as (egress, reader, after, taker, read):
        taker.room = 0
        other = egress.begin(reader, ("y", 1), 0)  # as if it had been read all the time
        other.since, after["y"] = 0, (1, 0)
        reader._streams["y"] = other
        egress.take([frame(2)])
        taker.room = 999
        egress.take([frame(1)._replace(region="y")])
        assert taker.predicted == []
        await settled()
        assert sorted(read + taker.taken) == [1, 2]


async def test_a_read_of_more_than_is_kept_is_handed_on_whole_to_who_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(egressstream, "KEPT_BYTES_MAX", 50)
    async with listening() as (egress, _, _, taker, read):
        made[-1].last = 40
        egress.look_anew()
        made[-1].gate.set()
        await settled()
        assert (taker.taken, read) == ([*range(2, 41)], [])
        assert egress._kept.bytes <= 50


def kept_of(kept: Kept, stream: EgressStream) -> tuple[list[int], int, int]:
    return [frame.last for frame in stream.kept], stream.start, kept.bytes


def test_what_is_kept_is_dropped_when_it_is_old_also_in_a_stream_that_is_quiet() -> None:
    kept, quiet, busy = Kept(), EgressStream(KEY, 0, 0, 0), EgressStream(("y", 1), 0, 0, 0)
    for number in (1, 2):
        kept.take(quiet, frame(number), 10.0)
    size = 2 * len(frame(1).body)
    assert kept_of(kept, quiet) == ([1, 2], 0, size)
    kept.take(busy, frame(1), 10.5 + KEPT_S)
    kept.drop_old(10.5 + KEPT_S)
    assert (kept_of(kept, quiet), kept_of(kept, busy)) == (([], 2, size / 2), ([1], 0, size / 2))
    kept.drop_old(11.6 + KEPT_S)
    assert (kept.bytes, len(kept), busy.start) == (0, 0, 1)


def test_all_that_is_kept_has_a_bound_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(egressstream, "KEPT_BYTES_MAX", 100)
    kept, streams = Kept(), [EgressStream((region, 1), 0, 0, 0) for region in "xyz"]
    for number, stream in enumerate(streams, start=1):
        kept.take(stream, frame(number)._replace(body=b"." * 45), 10.0)
    kept.drop_old(10.0)
    assert [[each.last for each in stream.kept] for stream in streams] == [[], [2], [3]]
    kept.take(streams[0], frame(9)._replace(body=b"." * 101), 10.0)
    kept.drop_old(10.0)
    assert [stream.start for stream in streams] == [9, 2, 3], "what is larger than that is not kept at all"
    assert kept.bytes == 0


def test_a_stream_that_is_read_no_more_keeps_nothing_and_may_begin_again() -> None:
    kept, left = Kept(), EgressStream(KEY, 0, 0, 0)
    kept.take(left, frame(1), 10.0)
    kept.forget(left)
    again = EgressStream(KEY, 0, 0, 0)
    kept.take(again, frame(1), 10.1)
    kept.drop_old(10.05 + KEPT_S)
    assert (kept_of(kept, left), kept_of(kept, again)[0]) == (([], 1, len(frame(1).body)), [1])


async def test_nothing_is_read_while_no_reader_waits() -> None:
    egress, looking = opened()
    looking.gate.set()
    looking.last = 1
    after = Places([("x", (1, 1))])
    reader = EgressReader(egress, PLAN)
    async with patience(10):
        assert (await reader.read(after, frames_max=128, block_ms=60_000)).whole == {"x": 1}
        looking.last = 3
        found = await reader.read(after, frames_max=128, block_ms=60_000)
        assert [each.last for each in found.frames] == [2, 3]
        await settled()
        before = looking.reads
        looking.last = 9
        await settled()
        assert looking.reads <= before + 1
        before = looking.reads
        await settled()
        assert looking.reads == before
        for each in found.frames:
            after.moved(each.region, each.epoch, each.last)
        found = await reader.read(after, frames_max=128, block_ms=60_000)
        assert found.frames[0].last == 4
    await reader.close()
    await egress.close()


async def test_a_node_that_cannot_be_read_is_told_to_all_who_read_there_until_it_can() -> None:
    egress, looking = opened()
    looking.gate.set()
    looking.last = 1
    readers = [EgressReader(egress, PLAN) for _ in range(2)]
    afters = [Places([("x", (1, 1))]) for _ in readers]
    async with patience(10):
        for reader, after in zip(readers, afters, strict=True):
            await reader.read(after, frames_max=128, block_ms=60_000)
        waiting = [
            asyncio.create_task(reader.read(after, frames_max=128, block_ms=60_000))
            for reader, after in zip(readers, afters, strict=True)
        ]
        await settled()
        looking.failure = Unreachable("it hangs")
        egress.look_anew()
        for task in waiting:
            with pytest.raises(Unreachable, match="it hangs"):
                await task
        with pytest.raises(Unreachable):
            await readers[0].read(afters[0], frames_max=128, block_ms=60_000)
        looking.failure = None
        while egress.trouble is not None:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        for reader, after in zip(readers, afters, strict=True):  # at once: so that its status is known
            assert (await reader.read(after, frames_max=128, block_ms=60_000)).frames == []
    for reader in readers:
        await reader.close()
    await egress.close()


async def test_a_read_without_an_answer_is_told_to_all_who_read_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapters.redis.egress, "LATE_S", 0.05)
    egress, looking = opened()
    looking.gate.set()
    looking.last = 1
    reader, after = EgressReader(egress, PLAN), Places([("x", (1, 1))])
    async with patience(10):
        await reader.read(after, frames_max=128, block_ms=60_000)
        await settled()
        looking.gate.clear()
        with pytest.raises(Unreachable, match="has not answered"):
            await reading(reader, after, [])
        looking.gate.set()
        while egress.trouble is not None:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    await reader.close()
    await egress.close()


async def test_a_reader_fails_when_what_it_reads_with_others_closes() -> None:
    shared, looking = opened()
    reader = EgressReader(shared, PLAN)
    after = Places([("x", (1, 1))])
    async with patience(10):
        waiting = asyncio.create_task(reader.read(after, frames_max=128, block_ms=60_000))
        while not looking.reads:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        looking.gate.set()
        await shared.close()
        for asked in (waiting, reader.read(after, frames_max=128, block_ms=60_000)):
            with pytest.raises(NotConnected):
                await asked
