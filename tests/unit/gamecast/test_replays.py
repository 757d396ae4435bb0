"""Replays beside live events: neither waits for the other, and each region comes without a hole or a repeat."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import cast

import pytest

from gamecast.client.decoding import EventDecoder
from gamecast.client.history import History
from gamecast.client.inbox import Inbox
from gamecast.client.replays import Replays
from gamecast.client.states import Contained
from gamecast.event import Event, Gap, Item
from sequencing.frames import FrameKind, Meta, StampedFrame, encode_json_body
from sequencing.ready import Missing, Ready


def ready(region: str, last: int, kind: int = FrameKind.EVENTS) -> Ready:
    return Ready(StampedFrame(region, 1, last, b"", b"", encode_json_body([0], [b"%d" % last])), Meta(kind, 1, "p"))


def joint(region: str, last: int, elsewhere: dict[str, int]) -> Ready:
    """Return a region's copy of an event of several."""
    lines = "".join(f"\n{each}\n{number}\n1" for each, number in [(region, last), *elsewhere.items()])
    body = encode_json_body([0], [b"%d" % last])
    return Ready(StampedFrame(region, 1, last, f"3 1 1 1 p{lines}".encode(), b"", body), Meta(FrameKind.JOINT, 1, "p"))


class Past:
    """A history that is looked up, chunk by chunk, when the test says so."""

    def __init__(self, regions: str, *chunks: Iterable[Ready | Missing]) -> None:
        self.regions = frozenset(regions)
        self.released: set[str] = set()
        self.chunks = [list(chunk) for chunk in chunks]
        self.may_look = asyncio.Semaphore(0)

    def release(self, regions: Iterable[str]) -> None:
        self.released |= set(regions)

    async def next_items(self) -> list[Ready | Missing]:
        await self.may_look.acquire()
        return self.chunks.pop(0) if self.chunks else []


class Delivered:
    def __init__(self, *pasts: Past, joined: str = "") -> None:
        self.woken = 0
        self.inbox = Inbox()
        self.replays = Replays(self.wake, joined.__contains__)
        for past in pasts:
            self.replays.begin(cast(History, past))

    def wake(self) -> None:
        self.woken += 1

    def live(self, *items: Ready) -> None:
        """Take what comes live."""
        self.inbox.put(self.replays.keep(items))

    def taken(self) -> list[str]:
        """Return what is in the inbox."""
        found: list[str] = []
        while self.inbox:
            item = self.inbox.take()
            assert isinstance(item, Ready)
            found.append(f"{item.frame.region}{item.frame.last}")
        return found

    def take(self, events_max: int = 2) -> tuple[list[str], frozenset[str] | None]:
        batch: list[Item] = []
        ended = self.replays.take(EventDecoder(None), batch, events_max, self.inbox)
        assert all(event.replayed for event in batch if isinstance(event, Event))
        return [*map(_told, batch)], ended


async def looked(past: Past, times: int = 1) -> None:
    for _ in range(times):
        past.may_look.release()
    await asyncio.sleep(0.001)


async def test_what_is_live_of_its_regions_comes_behind_the_history_and_of_others_at_once() -> None:
    past = Past("a", [ready("a", 1), ready("a", 2)])
    world = Delivered(past)
    world.live(ready("a", 3), ready("b", 1))
    assert world.taken() == ["b1"]
    assert not world.replays.is_ready, "nothing is found yet"
    assert world.take() == ([], None)
    await looked(past)
    assert (world.woken, world.replays.is_ready, world.take(1)) == (1, True, (["a1"], None))
    assert world.take() == (["a2"], None)
    world.live(ready("a", 4))
    assert (world.taken(), world.replays.events) == ([], 2)
    assert not world.replays.is_ready
    await looked(past)
    assert world.replays.is_ready
    assert world.take() == (["a3"], frozenset("a")), "it came before an event of b, and is late"
    assert not world.replays
    world.live(ready("a", 5))
    assert world.taken() == ["a4", "a5"]


async def test_a_busy_region_is_caught_up_with_batch_by_batch() -> None:
    past = Past("a")
    world = Delivered(past)
    world.live(*(ready("a", number) for number in range(1, 6)), ready("b", 1))
    assert not world.replays.is_ready
    await looked(past)
    assert world.take(2) == (["a1", "a2"], None)
    assert world.take(2) == (["a3", "a4"], None)
    world.live(ready("a", 6), ready("b", 2), ready("a", 7))
    assert world.take(2) == (["a5", "a6"], frozenset("a"))
    assert world.taken() == ["b1", "b2", "a7"]


async def test_of_two_replays_the_one_that_ends_first_makes_the_other_late() -> None:
    one, other = Past("a"), Past("b")
    world = Delivered(one, other)
    assert not world.replays.is_ready
    world.live(ready("b", 1), ready("a", 1), ready("b", 2))
    await looked(one)
    assert (world.take(), world.taken()) == (([], frozenset("a")), ["a1"])
    world.live(ready("b", 3))
    await looked(other)
    assert (world.take(), world.taken()) == ((["b1", "b2"], frozenset("b")), ["b3"])


async def test_what_the_state_of_another_region_has_is_late_although_it_comes_behind_that() -> None:
    past = Past("a")
    world = Delivered(past)
    assert not world.replays.is_ready
    world.live(
        Contained(*joint("x", 5, {"a": 2})), ready("x", 6), ready("a", 1), joint("a", 2, {"x": 5}), ready("a", 3)
    )
    await looked(past)
    assert world.take() == (["a1", "a2"], frozenset("a"))
    assert world.taken() == ["x5", "x6", "a3"]


async def test_replays_take_turns_and_one_that_looks_holds_up_no_other() -> None:
    slow, quick = Past("a", [ready("a", 1)]), Past("b", [ready("b", 1)], [ready("b", 2)])
    world = Delivered(slow, quick)
    assert not world.replays.is_ready, "both look"
    await looked(quick)
    assert world.take() == (["b1"], None)
    assert not world.replays.is_ready
    await looked(quick, 2)
    await looked(slow)
    assert [world.take()[0], world.take()[0]] in ([["a1"], ["b2"]], [["b2"], ["a1"]])
    await world.replays.close()


async def test_a_region_that_is_left_has_no_history_any_more() -> None:
    past = Past("ab", [ready("a", 1), ready("b", 1)], [])
    world = Delivered(past)
    world.live(ready("a", 2), ready("b", 2), ready("c", 1))
    assert not world.replays.is_ready
    await looked(past)
    world.replays.drop({"a"})
    assert past.released == {"a"}
    world.live(ready("a", 3))
    assert world.taken() == ["c1", "a3"], "it is wanted again, and without history"
    assert (world.replays.is_ready, world.take()) == (True, (["b1"], None))
    assert not world.replays.is_ready
    await looked(past)
    assert world.take() == (["b2"], frozenset("b"))


async def test_what_a_look_has_raised_is_raised_and_the_history_goes_on() -> None:
    class Broken(Past):
        async def next_items(self) -> list[Ready | Missing]:
            await super().next_items()
            raise OSError("gone")

    past = Broken("a")
    world = Delivered(past)
    assert not world.replays.is_ready
    await looked(past)
    for _ in range(2):
        with pytest.raises(OSError, match="gone"):
            world.take()
        assert not world.replays.is_ready, "it looks once more"
        await looked(past)
    await world.replays.close()


async def test_markers_are_nothing_and_what_is_missing_is_a_gap() -> None:
    past = Past("a", [ready("a", 1, FrameKind.JOIN), Missing("a", 1, 2, 3), ready("a", 4, 9), ready("a", 5)])
    world = Delivered(past)
    assert not world.replays.is_ready
    await looked(past)
    assert world.take(9) == (["-a2", "-a4", "a5"], None)
    await world.replays.close()


async def test_who_is_too_far_behind_gets_gaps_for_what_came_live() -> None:
    past = Past("a")
    world = Delivered(past)
    world.live(ready("a", 1), ready("a", 2), ready("b", 1), ready("a", 3))
    world.replays.skip()
    assert (world.replays.events, world.replays.bytes) == (0, 0)
    assert not world.replays.is_ready
    await looked(past)
    assert world.take() == (["-a1"], frozenset("a"))
    assert world.inbox.events == 1, "the gap in the place of what was fresh follows the event of b"


async def test_the_markers_of_a_history_and_of_what_came_behind_it_are_reached() -> None:
    past = Past("a", [ready("a", 1), ready("a", 2, FrameKind.JOIN)])
    world, decoder = Delivered(past), EventDecoder(None)
    world.live(ready("a", 3, FrameKind.JOIN))
    assert not world.replays.is_ready
    await looked(past)
    assert world.replays.take(decoder, [], 5, world.inbox) is None
    assert decoder.has_passed("a", (1, 2))
    assert not world.inbox.markers
    assert not world.replays.is_ready
    await looked(past)
    assert world.replays.take(decoder, [], 5, world.inbox) == frozenset("a")
    assert world.inbox.markers == {"a": (1, 3)}
    world.inbox.drop({"a"})
    assert not world.inbox.markers


def _told(item: Item) -> str:
    if isinstance(item, Event):
        return f"{item.region}{item.sequence}"
    assert isinstance(item, Gap)
    return f"-{item.region}{item.first_sequence}"


async def test_an_event_of_a_live_region_and_a_replayed_one_waits_for_the_history_and_all_behind_it_waits_too() -> None:
    past = Past("a", [ready("a", 1)])
    world = Delivered(past, joined="abc")
    assert not world.replays.is_ready
    world.live(ready("b", 1), ready("a", 2), joint("b", 2, {"a": 3}), ready("c", 1), joint("a", 3, {"b": 2}))
    assert world.taken() == ["b1"]
    assert (world.replays.is_holding, world.replays.events) == (True, 4)
    await looked(past, 2)
    assert world.take() == (["a1"], frozenset("a"))
    assert world.taken() == ["a2", "b2", "c1", "a3"], "as it came: nothing that came later was had"
    assert not world.replays.is_holding


async def test_it_waits_whichever_copy_comes_first_but_not_as_one_of_regions_that_are_not_joined() -> None:
    past = Past("a")
    world = Delivered(past, joined="ab")
    assert not world.replays.is_ready
    world.live(joint("a", 1, {"x": 1}), joint("a", 2, {"b": 1}), ready("b", 2), joint("b", 1, {"a": 2}))
    assert world.taken() == []
    await looked(past)
    assert world.take() == ([], frozenset("a"))
    assert world.taken() == ["a1", "a2", "b2", "b1"]


async def test_of_large_frames_few_are_read_ahead_and_decoded_at_a_time() -> None:
    def large(number: int) -> Ready:
        body = encode_json_body([0], [b'"%s"' % (b"x" * 200_000)])
        return Ready(StampedFrame("a", 1, number, b"", b"", body), Meta(FrameKind.EVENTS, 1, "p"))

    past = Past("a", *([large(number)] for number in range(1, 21)))
    world = Delivered(past)
    assert not world.replays.is_ready
    await looked(past, 20)
    assert len(past.chunks) == 14, "six of them are more than AHEAD_BYTES"
    taken = 0
    while not world.replays.is_ready or world.take(32)[1] is None:
        taken += 1
        await looked(past)
        assert taken < 40
    assert taken >= 9, "two at a time"


async def test_no_event_waits_for_a_history_that_was_given_up_or_left() -> None:
    world = Delivered(Past("a"), joined="ab")
    world.live(joint("b", 1, {"a": 1}), joint("a", 1, {"b": 1}))
    assert world.taken() == []
    world.inbox.put(world.replays.release(for_good=True))
    world.live(joint("b", 2, {"a": 2}))
    assert (world.taken(), world.replays.events) == (["b1", "b2"], 1), "and nothing waits for that any more"
    world = Delivered(Past("a"), joined="ab")
    world.live(joint("b", 1, {"a": 1}), ready("a", 2), ready("b", 2))
    world.replays.drop(frozenset("a"))
    assert world.replays.events == 2
    world.inbox.put(world.replays.release())
    assert (world.taken(), world.replays.events) == (["b1", "b2"], 0)


async def test_it_waits_while_the_regions_are_being_joined_whose_history_is_asked_for() -> None:
    world = Delivered(joined="a")
    world.replays.await_history("b")
    assert "b" in world.replays
    world.live(ready("a", 1), joint("a", 2, {"b": 7}), ready("a", 3))
    assert world.taken() == ["a1"]
    past = Past("b")
    world.replays.begin(cast(History, past))
    assert world.replays.is_holding
    assert not world.replays.is_ready
    await looked(past)
    assert world.take() == ([], frozenset("b"))
    assert world.taken() == ["a2", "a3"]
    assert "b" not in world.replays


async def test_it_waits_no_longer_for_regions_that_were_left_or_are_not_joined_soon() -> None:
    for ends in ("left", "given up"):
        world = Delivered(joined="a")
        world.replays.await_history("b")
        world.live(joint("a", 2, {"b": 7}), ready("a", 3))
        assert world.taken() == []
        if ends == "left":
            world.replays.drop({"b"})
        world.inbox.put(world.replays.release(for_good=ends == "given up"))
        assert world.taken() == ["a2", "a3"], ends
        world.live(joint("a", 4, {"b": 8}))
        assert world.taken() == ["a4"], ends
