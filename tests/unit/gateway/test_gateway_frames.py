"""What a WebSocket client sends is counted frame by frame, however it is cut into packets."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.frames import BYTES_BEFORE_HELLO, FRAMES_BEFORE_HELLO, PROTOCOL_ERROR, Frames
from gateway.refusal import Close
from gateway.settings import GatewayLimits

MASK = b"mask"


def frame(size: int, *, masked: bool = True) -> bytes:
    bit = 0x80 if masked else 0
    if size < 126:
        length = bytes([bit | size])
    elif size < 65_536:
        length = bytes([bit | 126]) + size.to_bytes(2)
    else:
        length = bytes([bit | 127]) + size.to_bytes(8)
    return b"\x81" + length + (MASK if masked else b"") + b"\xff" * size


class Counted:
    def __init__(self, *, known: bool = True, **limits: float) -> None:
        self.now, self.ends = 0.0, list[tuple[int, str]]()
        chosen = {"frames_per_s": 10, "burst_frames": 20, **limits}
        self.frames = Frames(GatewayLimits(**chosen), lambda *end: self.ends.append(end), lambda: self.now)  # type: ignore[arg-type]
        if known:
            self.frames.welcome()


@given(
    sizes=st.lists(st.sampled_from([0, 1, 5, 125, 126, 300, 65_535, 65_536, 70_000]), min_size=1, max_size=25),
    cuts=st.lists(st.integers(1, 40), min_size=1),
)
def test_frames_are_counted_however_they_are_cut(sizes: list[int], cuts: list[int]) -> None:
    counted, stream, at, turn = Counted(), b"".join(map(frame, sizes)), 0, 0
    while at < len(stream) and not counted.ends:
        size = cuts[turn % len(cuts)] if turn < 200 else 5_000
        counted.frames.take(stream[at : at + size])
        at, turn = at + size, turn + 1
    assert bool(counted.ends) == (len(sizes) > 20)


def test_the_rate_lets_more_through_in_time() -> None:
    counted = Counted()
    assert counted.frames.take(frame(3) * 20)
    counted.now = 1.0
    assert counted.frames.take(frame(3) * 10)
    assert not counted.frames.take(frame(3))
    assert not counted.frames.take(b""), "nothing more is read"
    assert [code for code, _ in counted.ends] == [Close.RATE]


def test_a_stranger_may_send_a_hello_and_a_few_pings() -> None:
    counted = Counted(known=False)
    assert counted.frames.take(frame(0) * FRAMES_BEFORE_HELLO)
    assert not counted.frames.take(frame(0))
    counted = Counted(known=False)
    assert counted.frames.take(frame(BYTES_BEFORE_HELLO - 20))
    assert not counted.frames.take(frame(100))
    assert [code for code, _ in counted.ends] == [Close.TOO_LARGE]


def test_a_frame_without_a_mask_ends_the_connection() -> None:
    counted = Counted()
    assert counted.frames.take(frame(3) + frame(200)[:5])
    assert counted.frames.take(frame(200)[5:])
    assert not counted.frames.take(frame(3) + frame(3, masked=False))
    assert [code for code, _ in counted.ends] == [PROTOCOL_ERROR]


def test_one_packet_costs_no_more_than_the_burst_to_count() -> None:
    counted = Counted()
    assert not counted.frames.take(frame(0) * 100_000)
    assert counted.frames._frames_in(frame(0) * 100_000, 20) == (21, True)
