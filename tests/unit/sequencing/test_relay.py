"""The relay: what it reads, offers and trims, whatever the next node answers."""

from __future__ import annotations

from sequencing.frames import LinkedFrame, StampedFrame
from sequencing.node import TransferAnswer, TransferVerdict
from sequencing.relay import TRANSFER_BYTES, Relay


def linked(sequence: int, body: bytes = b"") -> LinkedFrame:
    return LinkedFrame(sequence, StampedFrame("a", 1, sequence, b"0 1 1 1 p", b"", body))


def test_what_is_accepted_is_trimmed_and_not_read_again_once_that_is_done() -> None:
    relay = Relay()
    frames = [linked(1), linked(2)]
    assert relay.read(frames) == frames
    assert relay.answered(TransferAnswer(TransferVerdict.OK, 2)) == 2
    assert (relay.after, relay.frames_moved) == (0, 0)
    relay.trimmed(2)
    assert (relay.after, relay.frames_moved, relay.refused) == (2, 2, False)


def test_what_another_relay_has_carried_already_is_passed_over() -> None:
    relay = Relay()
    relay.read([linked(1)])
    assert relay.answered(TransferAnswer(TransferVerdict.OK, 7)) == 7
    relay.trimmed(7)
    assert relay.answered(TransferAnswer(TransferVerdict.OK, 7)) is None


def test_what_the_next_node_misses_is_read_again() -> None:
    relay = Relay()
    relay.trimmed(5)
    assert relay.answered(TransferAnswer(TransferVerdict.GAP, 3)) is None
    assert (relay.after, relay.refused) == (3, True)


def test_a_relay_begins_with_nothing_refused_and_goes_on_when_the_next_node_takes_what_it_refused() -> None:
    relay = Relay(10)
    assert (relay.refused, relay.after, relay.frames_moved, relay.frames_max) == (False, 0, 0, 10)
    relay.answered(TransferAnswer(TransferVerdict.UNKNOWN, 0))
    assert relay.refused
    relay.answered(TransferAnswer(TransferVerdict.OK, 1))
    assert not relay.refused


def test_what_was_moved_is_counted_once_however_it_is_trimmed() -> None:
    relay = Relay()
    relay.trimmed(2)
    relay.trimmed(5)
    assert (relay.after, relay.frames_moved) == (5, 5)


def test_a_transfer_of_large_frames_has_few_of_them() -> None:
    relay = Relay(256)
    relay.read([linked(1, bytes(TRANSFER_BYTES // 2)), linked(2)])
    assert relay.frames_max == 1
    found = []
    for _ in range(9):
        relay.read([linked(1)])
        found.append(relay.frames_max)
    assert found == [2, 4, 8, 16, 32, 64, 128, 256, 256]


def test_a_transfer_has_up_to_256_frames_and_up_to_four_mebibytes_of_them() -> None:
    assert Relay().frames_max == 256
    unlimited = Relay(10_000)
    unlimited.read([linked(1, bytes(1023))])
    assert unlimited.frames_max == 4096


def test_a_frame_that_is_larger_than_a_transfer_goes_alone_and_an_empty_read_says_nothing_about_the_next() -> None:
    relay = Relay(256)
    relay.read([linked(1, bytes(2 * TRANSFER_BYTES))])
    assert relay.frames_max == 1
    relay.read([])
    assert relay.frames_max == 1
