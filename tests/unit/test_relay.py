"""The relay: what it reads, offers and trims, whatever the next node answers."""

from __future__ import annotations

from sequencing.frames import StampedFrame
from sequencing.node import LinkedFrame, TransferAnswer, TransferVerdict
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


def test_a_transfer_of_large_frames_has_few_of_them() -> None:
    relay = Relay(256)
    relay.read([linked(1, bytes(TRANSFER_BYTES // 2))])
    assert relay.frames_max == 1
    for _ in range(9):
        relay.read([linked(1)])
    assert relay.frames_max == 256
