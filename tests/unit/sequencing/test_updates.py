"""Updates: the newest of each key, never before what its sender had seen or published, and bounded memory."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sequencing.errors import InvalidInput
from sequencing.updates import (
    BUNDLE_BYTES,
    GUEST_KEYS_MAX,
    NOWHERE,
    STALE_S,
    Bundle,
    NewestUpdates,
    OutgoingUpdates,
    Position,
    decode,
    encode,
)

numbers = st.integers(0, 2**53)
payloads = st.one_of(
    st.none(), st.integers(-100, 100), st.text(max_size=3), st.lists(st.booleans()), st.binary(max_size=20)
)
bundles = st.builds(
    lambda about, pairs: Bundle._make((*about, [key for key, _ in pairs], [payload for _, payload in pairs], 0)),
    st.tuples(
        *(numbers, st.text(max_size=5), numbers, numbers, st.tuples(numbers, numbers), st.tuples(numbers, numbers)),
        numbers,
    ),
    st.lists(st.tuples(st.text(max_size=5), payloads), min_size=1, max_size=4),
)


@given(bundles)
def test_a_bundle_is_read_as_it_was_written(bundle: Bundle) -> None:
    assert decode(encode(bundle))._replace(size=0) == bundle


@given(st.binary(max_size=200) | st.tuples(bundles, st.integers(0, 99)).map(lambda both: encode(both[0])[: both[1]]))
def test_of_anything_else_nothing_but_an_error_comes(message: bytes) -> None:
    try:
        bundle = decode(message)
    except InvalidInput:
        return
    assert bundle.size == len(message)
    assert decode(encode(bundle))._replace(size=0) == bundle._replace(size=0)


@pytest.mark.parametrize(
    "head",
    [
        b"[1]",
        b"7",
        b"{}",
        b'[1,"a",1,1,0,0,0,0,[["k",1,false,-1]]]',
        b'[1,"a",1,1,0,0,0,0,[["k",1,0,0]]]',
        b"[1,2,1,1,0,0,0,0,[]]",
    ],
)
def test_a_message_of_another_shape_is_refused(head: bytes) -> None:
    with pytest.raises(InvalidInput):
        decode(head + b"\n")


def bundle(number: int, key: str = "k", *, behind: Position = NOWHERE) -> Bundle:
    return Bundle(1, "a", 1, 0, behind, behind, number, [key], [b"%d" % number])


def everything(region: str, position: Position) -> bool:
    return True


arrivals = st.lists(
    st.tuples(
        st.sampled_from(["k", "l"]),
        st.sampled_from(["a", "b"]),
        st.integers(1, 2),
        st.integers(1, 6),
        st.integers(0, 4),
        st.integers(0, 5),
    ),
    max_size=30,
)


@given(arrivals)
def test_whatever_the_order_of_arrival_the_newest_wins_and_none_comes_too_early(
    arriving: list[tuple[str, str, int, int, int, int]],
) -> None:
    newest, passed = NewestUpdates("me", 100), 0
    given_of: dict[tuple[str, str], list[tuple[int, int]]] = {}
    stamps: dict[bytes, tuple[int, int, int]] = {}
    came: dict[tuple[str, str], tuple[int, int]] = {}
    for place, (key, sender, incarnation, number, behind, passes) in enumerate(arriving):
        name = b"%d" % place
        stamps[name] = incarnation, number, behind
        newest.put("r", Bundle(1, sender, incarnation, 0, NOWHERE, (1, behind), number, [key], [name]), 0.0)
        came[key, sender] = max(came.get((key, sender), (0, 0)), (incarnation, number))
        passed = max(passed, passes)
        for received in newest.take(lambda _, position: position <= (1, passed), 0.0):  # noqa: B023 - called at once
            incarnation, number, behind = stamps[received.payload]
            assert behind <= passed
            given_of.setdefault((received.key, received.sender), []).append((incarnation, number))
    for received in newest.take(everything, 0.0):
        given_of.setdefault((received.key, received.sender), []).append(stamps[received.payload][:2])
    for whose, stamped in given_of.items():
        assert stamped == sorted(set(stamped)), "each is newer than the one before"
        assert stamped[-1] == came[whose], "the newest comes in the end"
    assert given_of.keys() == came.keys()


def test_ones_own_updates_do_not_come_back() -> None:
    newest = NewestUpdates("a", 100)
    assert not newest.put("r", bundle(1), 0.0)
    assert not newest.has_some


def test_what_was_left_is_forgotten() -> None:
    newest = NewestUpdates("me", 100)
    newest.put("r", bundle(1), 0.0)
    newest.drop(["r", "never had"])
    assert newest.take(everything, 0.0) == []
    newest.put("r", bundle(1), 0.0)
    assert newest.take(everything, 0.0) == [], "it was had before"


def test_memory_is_bounded_by_keys_and_old_keys_are_forgotten() -> None:
    newest = NewestUpdates("me", 10)
    for number in range(100):
        newest.put("r", bundle(number, f"k{number}"), 0.0)
    assert newest.dropped == 90
    assert len(newest.take(everything, 0.0)) == 10
    for turn in range(1, 20):  # new keys find room when the old ones have been silent for long
        for number in range(10):
            newest.put("r", bundle(number, f"t{turn}-{number}"), turn * (2 * STALE_S + 1))
        assert len(newest.take(everything, turn * (2 * STALE_S + 1))) == 10
    held = sum(map(len, (*newest._numbers.values(), *newest._numbers_before.values())))
    assert held <= 20


def test_memory_is_bounded_by_bytes_and_grows_no_less_when_the_same_keys_come_again() -> None:
    newest = NewestUpdates("me", 100, bytes_max=1_000)

    def put(number: int, key: str, size: int, payload: Any = b"x") -> None:
        newest.put("r", bundle(number, key)._replace(payloads=[payload], size=size), 0.0)

    put(1, "a", 600)
    put(2, "b", 600)
    assert newest.dropped == 1, "it finds no room"
    put(3, "a", 700)
    put(4, "a", 1_100)
    assert newest.dropped == 2, "a larger one of the same key needs more"
    put(5, "b", 10, {"x": [1]})
    assert [each.key for each in newest.take(everything, 0.0)] == ["a", "b"]
    put(6, "c", 70, {"x": [1]})
    assert newest.dropped == 3, "what is parsed takes more than its JSON"
    put(7, "a", 999)
    newest.drop(["r"])
    put(8, "b", 1_000)
    assert [each.key for each in newest.take(everything, 0.0)] == ["b"], "what was taken, or left, leaves its room"


def test_of_one_client_of_a_gateway_few_keys_are_taken_so_that_it_fills_no_memory() -> None:
    newest = NewestUpdates("me", 10_000)
    for number in range(2 * GUEST_KEYS_MAX):
        newest.put("r", bundle(number, f"k{number}")._replace(sender="~mallory"), 0.0)
        newest.put("r", bundle(number, f"k{number}")._replace(sender="server"), 0.0)
    taken = [each.sender for each in newest.take(everything, 0.0)]
    assert (taken.count("~mallory"), taken.count("server")) == (GUEST_KEYS_MAX, 2 * GUEST_KEYS_MAX)
    for place in range(8):  # its other sessions, and other regions, are it as well
        assert not newest.put(f"r{place}", bundle(1, "new")._replace(sender=f"~mallory~{place}"), 0.0)
    assert newest.put("r", bundle(1, "new")._replace(sender="~bob"), 0.0)
    later_s = STALE_S + 1
    assert newest.put("r", bundle(1, "new")._replace(sender="~mallory"), later_s), "in time it may name others"


def test_all_clients_of_gateways_together_leave_room_for_game_servers() -> None:
    newest = NewestUpdates("me", 100)
    for number in range(200):
        newest.put("r", bundle(number, f"k{number}")._replace(sender=f"~p{number}"), 0.0)
    assert len(newest.take(everything, 0.0)) == 75
    assert newest.put("r", bundle(1, "boat")._replace(sender="server"), 0.0)


def test_what_is_to_be_sent_is_bounded_by_bytes() -> None:
    outgoing = OutgoingUpdates("a", 1, Own(), bytes_max=100)
    outgoing.put("r", "a", b"x" * 60, 60)
    outgoing.put("r", "b", b"x" * 60, 60)
    outgoing.put("r", "a", b"y" * 90, 90)
    assert outgoing.dropped == 1
    [sent] = outgoing.take("r", 1, NOWHERE, NOWHERE, 0)
    assert sent.payloads == [b"y" * 90]
    outgoing.put("r", "b", b"x" * 100, 100)
    outgoing.drop("r")
    outgoing.put("r", "b", b"x" * 100, 100)
    assert outgoing.dropped == 1, "what was sent, or dropped, leaves its room"


def test_a_late_packet_of_some_seconds_ago_does_not_win() -> None:
    newest = NewestUpdates("me", 10)
    newest.put("r", bundle(2), 100.0)
    newest.put("r", bundle(1, "other"), 100.0 + STALE_S + 1)  # the keys of before are kept apart
    assert [each.payload for each in newest.take(everything, 111.0)] == [b"2", b"1"]
    newest.put("r", bundle(1), 100.0 + STALE_S + 2)
    assert newest.take(everything, 112.0) == []


def test_what_waits_for_an_event_that_never_comes_is_dropped() -> None:
    newest = NewestUpdates("me", 10)
    newest.put("r", bundle(1, behind=(1, 5)), 0.0)
    assert newest.take(lambda *_: False, STALE_S) == []
    assert newest.has_some
    assert newest.take(lambda *_: False, STALE_S + 1) == []
    assert (newest.has_some, newest.dropped) == (False, 1)


class Own:
    """A publisher's events, as `OutgoingUpdates` asks for them."""

    def __init__(self) -> None:
        self.published = self.answered = 0

    def last_own(self, region: str) -> Any:
        return self.published if self.published > self.answered else None

    def is_answered(self, region: str, event: Any) -> bool:
        return bool(event <= self.answered)

    def accepted_up_to(self, region: str) -> Position:
        return 1, self.answered


def test_updates_go_behind_the_senders_own_events_and_the_newest_of_each_key_only() -> None:
    own = Own()
    outgoing = OutgoingUpdates("a", 1, own)
    outgoing.put("r", "k", b"0", 1)
    outgoing.put("r", "k", b"1", 1)
    outgoing.put("r", "l", b"2", 1)
    [first] = outgoing.take("r", 9, NOWHERE, NOWHERE, 0)
    assert [*zip(first.keys, first.payloads, strict=True)] == [("k", b"1"), ("l", b"2")]
    assert outgoing.regions == []
    own.published = 1
    outgoing.put("r", "k", b"3", 1)
    assert [*outgoing.take("r", 9, NOWHERE, NOWHERE, 0)] == []
    assert outgoing.regions == ["r"]
    own.answered = 1
    [then] = outgoing.take("r", 9, NOWHERE, NOWHERE, 0)
    assert (then.behind, then.seen, then.payloads[0]) == ((1, 1), NOWHERE, b"3")
    assert then.first >= first.first + len(first.keys)


def test_who_publishes_without_end_is_late_by_one_answer_and_not_for_ever() -> None:
    own = Own()
    outgoing = OutgoingUpdates("a", 1, own)
    sent = []
    for turn in range(1, 50):
        own.published = turn
        outgoing.put("r", "k", b"%d" % turn, 1)
        sent += [int(each) for found in outgoing.take("r", 9, NOWHERE, NOWHERE, 0) for each in found.payloads]
        own.answered = turn - 1  # always one on its way
        assert all(number <= own.answered for number in sent), "none before the answer to what precedes it"
    assert len(sent) > 20
    assert sent == sorted(set(sent))


def test_large_bundles_are_split_and_dropped_regions_send_nothing() -> None:
    outgoing = OutgoingUpdates("a", 1, Own())
    for number in range(10):
        outgoing.put("r", f"k{number}", b"x", BUNDLE_BYTES // 3)
    parts = [*outgoing.take("r", 9, NOWHERE, NOWHERE, 0)]
    assert [len(part.keys) for part in parts] == [2, 2, 2, 2, 2]
    outgoing.put("r", "k", b"", 1)
    assert outgoing.drop("r") == 1
    assert outgoing.drop("r") == 0
    assert [*outgoing.take("r", 9, NOWHERE, NOWHERE, 0)] == []


@pytest.mark.parametrize("text", ['{},[["0",1]]', '{"0":null},[["1",1]]', "{},[[0,1]]"])
def test_a_bundle_whose_payloads_are_no_list_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        decode(f'[1,"s",1,1,0,0,0,0,1,["k"],{text}]\nx'.encode())


def test_a_reader_that_never_takes_keeps_a_bounded_number_of_updates() -> None:
    received = NewestUpdates("reader", 100)
    for second in range(0, 90, 3):
        keys = [f"{second}-{number}" for number in range(20)]
        bundle = Bundle(1, "s", 1, 0, (0, 0), (0, 0), 1 + 20 * second, keys, [0] * 20)
        received.put("forest", bundle, float(second))
    assert len(received.take(lambda *_: True, 90.0)) == 100
    assert received.dropped > 0
    assert received.put("forest", Bundle(1, "s", 1, 0, (0, 0), (0, 0), 9_000, ["new"], [0]), 200.0)


def test_a_sender_that_cannot_send_keeps_a_bounded_number_of_updates() -> None:
    outgoing = OutgoingUpdates("a", 1, Own(), keys_max=10)
    for number in range(20):
        outgoing.put("forest", f"key-{number}", b"1", 1)
    outgoing.put("forest", "key-3", b"2", 1)
    assert outgoing.dropped == 10
    [bundle] = outgoing.take("forest", 1, (0, 0), (0, 0), 0)
    assert len(bundle.keys) == 10
    assert bundle.payloads[3] == b"2"
    outgoing.put("forest", "key-20", b"1", 1)
    assert outgoing.dropped == 10
