"""What a connection knows that a node had, compared with what it has; and what was pushed, with the streams."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from adapters.redis.evidence import Evidence
from adapters.redis.forgery import ALL_KEPT_ASIDE, KEPT, KEPT_MAX, Forged, PushedFrames, range_of
from sequencing.frames import PublishedFrame, StampedFrame
from sequencing.keyspace import NodeKeys

KEYS = NodeKeys("n1")
KEY = KEYS.egress(7, "a").encode()
META = b"0 1 3 5 ann"


class Server:
    """As much of a node as is asked for: a stream of region a in epoch 7, its step, and what was accepted there."""

    def __init__(self, first: int = 1, last: int = 10) -> None:
        self.stream = dict.fromkeys(range(first, last + 1), META)
        self.is_there, self.step, self.drawn = True, True, last
        self.accepted: bytes | None = b"3 5 7 10"
        self.forgotten: bytes | None = None
        self.body = b"true"

    async def __call__(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        return [self.answer(*command) for command in commands]

    def answer(self, command: str, key: Any, *words: Any) -> Any:
        if command == "EXISTS":
            return int(self.is_there)
        if command == "HMGET":
            if key == KEYS.steps:
                return [b"[]" if self.step else None]
            if key == KEYS.counters:
                return [str(self.drawn).encode() if self.step else None]
            return [self.forgotten if words[0].endswith("\n") else self.accepted]
        numbers = sorted(self.stream)
        if command == "XREVRANGE":
            found = numbers[-1:]
        else:
            low = 0 if words[0] == "-" else int(words[0].partition("-")[2])
            high = 10**9 if words[1] == "+" else int(words[1].partition("-")[2])
            found = [number for number in numbers if low <= number <= high]
            found = found[:1] if "COUNT" in words else found
        return [(b"7-%d" % number, [b"m", self.stream[number], b"s", b"0,5", b"b", self.body]) for number in found]


def knowing(last: int = 10) -> Evidence:
    evidence = Evidence(KEYS)
    evidence.last_read["a", 7] = last, META
    evidence.accepted(PublishedFrame("a", 7, "ann", 3, 5, 1, b""), (7, last))
    return evidence


def shorter(server: Server) -> None:
    del server.stream[10]


def other(server: Server) -> None:
    server.stream[10] = b"0 1 9 1 eve"


def fewer_drawn(server: Server) -> None:
    server.drawn = 9


def less_accepted(server: Server) -> None:
    server.accepted = b"3 4 7 9"


def nothing_accepted(server: Server) -> None:
    server.accepted = None


def emptied(server: Server) -> None:
    server.is_there, server.step, server.stream = False, False, {}


@pytest.mark.parametrize("change", [shorter, other, fewer_drawn, less_accepted, nothing_accepted, emptied])
async def test_whatever_is_missing_after_a_restart_is_seen_and_stays_so(change: Callable[[Server], None]) -> None:
    server, evidence = Server(), knowing()
    change(server)
    assert "a 7-10" in await evidence.missing("two", "one", server)
    assert "a 7-10" in await evidence.missing("two", "two", Server()), "others have filled it up"


def nothing(server: Server) -> None:
    pass


def trimmed(server: Server) -> None:
    server.stream, server.drawn = dict.fromkeys(range(11, 20), META), 19


def ended(server: Server) -> None:
    server.stream, server.step = {}, False


def forgotten(server: Server) -> None:
    server.accepted, server.forgotten = None, b"3 0 0 0"


def newer(server: Server) -> None:
    server.accepted = b"4 1 7 10"


@pytest.mark.parametrize("change", [nothing, trimmed, ended, forgotten, newer])
async def test_what_a_node_lets_go_of_is_no_loss(change: Callable[[Server], None]) -> None:
    server = Server()
    change(server)
    assert await knowing().missing("two", "one", server) == ""


async def test_in_one_run_only_an_emptied_node_has_lost_something() -> None:
    server = Server(last=9)
    assert await knowing().missing("one", "one", server) == ""
    emptied(server)
    assert await knowing().missing("one", "one", server)


async def test_what_was_read_and_may_be_given_again_is_named_once() -> None:
    server, evidence = Server(last=6), knowing()
    await evidence.missing("two", "one", server)
    assert evidence.given_again == [("a", 7, 7, 10)]


def pushed(*numbers: int, body: bytes = b"true", meta: bytes = META) -> PushedFrames:
    frames = PushedFrames("n1")
    for number in numbers:
        frames.add(KEY, StampedFrame("a", 7, number, meta, b"0,5", body))
    return frames


async def test_what_the_streams_have_is_true() -> None:
    frames = pushed(8, 9, 10)
    assert (await frames.compare(Server()), frames.are_forged, bool(frames)) == ([], False, False)


@pytest.mark.parametrize("odd", [{"body": b"forged"}, {"meta": b"0 1 9 1 eve"}])
async def test_any_difference_to_the_stream_is_a_forgery(odd: dict[str, bytes]) -> None:
    frames = pushed(10, **odd)
    assert await frames.compare(Server()) == [Forged("a", 7, 10, 10)]
    assert frames.are_forged


async def test_what_was_trimmed_since_is_not_called_forged() -> None:
    frames = pushed(3)
    assert (await frames.compare(Server(first=5)), frames.are_forged) == ([], False)


async def test_what_hides_nothing_yet_is_compared_again_until_it_does() -> None:
    frames, server = pushed(12, meta=b"0 2 9 1 eve"), Server()
    assert (await frames.compare(server), frames.is_doubtful) == ([], True)
    server.stream[11] = META
    assert await frames.compare(server) == [Forged("a", 7, 11, 12)]
    assert not frames


async def test_an_emptied_node_has_been_forged_nothing_at() -> None:
    server = Server()
    emptied(server)
    frames = pushed(10)
    assert (await frames.compare(server), frames.are_forged) == ([], False)


def entries(*numbers: int, body: bytes = b"true") -> list[tuple[bytes, list[bytes]]]:
    return [(b"7-%d" % number, [b"m", META, b"s", b"0,5", b"b", body]) for number in numbers]


def test_much_of_one_stream_is_compared_aside_and_what_is_true_is_forgotten() -> None:
    frames = pushed(*range(1, KEPT))
    assert frames.take_due() == []
    frames.add(KEY, StampedFrame("a", 7, KEPT, META, b"0,5", b"true"))
    [(key, some)] = frames.take_due()
    assert (key, len(some), frames.take_due(), frames.is_doubtful) == (KEY, KEPT, [], False)
    assert range_of(key, some) == ("XRANGE", KEY, "7-1", f"7-{KEPT}")
    frames.add(KEY, StampedFrame("a", 7, KEPT + 1, META, b"0,5", b"true"))
    assert frames.confirm(key, some, entries(*range(1, KEPT + 1)))
    assert (frames.take_due(), bool(frames)) == ([], True)  # one is left
    assert frames.confirm(key, some, entries(*range(1, KEPT + 1)))  # once more does no harm
    for number in range(KEPT + 2, 2 * KEPT + 1):
        frames.add(KEY, StampedFrame("a", 7, number, META, b"0,5", b"true"))
    [(key, some)] = frames.take_due()
    frames.not_compared([key])
    frames.add(KEY, StampedFrame("a", 7, 2 * KEPT + 1, META, b"0,5", b"true"))
    assert [len(some) for _, some in frames.take_due()] == [KEPT + 1]
    assert not frames.is_doubtful


@pytest.mark.parametrize("there", [entries(1, 3), entries(1, 2, 3, body=b"another"), []])
async def test_what_is_odd_aside_is_doubtful_until_it_is_compared(there: list[tuple[bytes, list[bytes]]]) -> None:
    frames = pushed(1, 2, 3)
    frames.due.add(KEY)
    [(key, some)] = frames.take_due()
    assert not frames.confirm(key, some, there)
    assert frames.is_doubtful
    assert await frames.compare(Server()) == []
    assert not frames.is_doubtful


def test_where_comparing_does_not_keep_up_it_is_doubtful() -> None:
    frames = pushed(*range(1, KEPT))
    for number in range(KEPT, KEPT_MAX):
        frames.add(KEY, StampedFrame("a", 7, number, META, b"0,5", b"true"))
    assert not frames.is_doubtful
    frames.add(KEY, StampedFrame("a", 7, KEPT_MAX, META, b"0,5", b"true"))
    assert frames.is_doubtful


def test_of_many_quiet_streams_those_with_the_oldest_pushes_are_compared() -> None:
    frames = PushedFrames("n1")
    kept, most = 0, 0
    for number in range(1, 5 * ALL_KEPT_ASIDE):
        region = f"r{number % 600}"
        frames.add(region.encode(), StampedFrame(region, 7, number, META, b"0,5", b"true"))
        kept += 1
        for key, some in frames.take_due():
            assert frames.take_due() == []  # it is asked for once
            assert frames.confirm(key, some, entries(*(frame.last for frame in some)))
            kept -= len(some)
        most = max(most, kept)
    assert ALL_KEPT_ASIDE - 20 < most <= ALL_KEPT_ASIDE + 1
    assert not frames.is_doubtful
