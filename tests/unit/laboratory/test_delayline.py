"""The delay line: in order, each so much later, bounded; the clock is an argument."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laboratory.wan.delayline import DelayLine


def test_what_is_put_comes_out_after_the_delay_and_not_before() -> None:
    line = DelayLine(0.1)
    assert line.due_s is None
    line.put(5.0, b"one")
    assert line.due_s == pytest.approx(5.1)
    assert line.take(5.0999) == []
    assert line.take(5.1) == [b"one"]
    assert (line.take(9.0), line.due_s) == ([], None)


def test_each_chunk_has_its_own_time_so_nothing_waits_for_what_was_before() -> None:
    line = DelayLine(0.1)
    for n in range(3):
        line.put(n * 0.01, b"%d" % n)
    assert line.take(0.105) == [b"0"]
    assert line.take(0.115) == [b"1"]
    assert line.take(1.0) == [b"2"]


def test_a_connection_that_is_not_open_yet_delays_from_its_opening() -> None:
    line = DelayLine(0.1, open_at_s=1.0)
    line.put(0.5, b"early")
    line.put(1.5, b"late")
    assert line.take(1.05) == []
    assert line.take(1.1) == [b"early"]
    assert line.take(1.6) == [b"late"]


def test_a_line_is_full_until_enough_is_taken() -> None:
    line = DelayLine(0.0, bytes_max=4)
    line.put(0.0, b"abc")
    assert not line.is_full
    line.put(1.0, b"de")
    assert (line.is_full, line.held_bytes) == (True, 5)
    line.take(0.5)
    assert (line.is_full, line.held_bytes) == (False, 2)


@pytest.mark.parametrize(("delay_s", "bytes_max"), [(-0.1, 1), (math.nan, 1), (0.1, 0)])
def test_a_delay_below_zero_and_a_line_that_holds_nothing_are_refused(delay_s: float, bytes_max: int) -> None:
    with pytest.raises(ValueError, match="a line delays"):
        DelayLine(delay_s, bytes_max=bytes_max)


@given(
    st.floats(0, 10),
    st.lists(st.tuples(st.floats(0, 3), st.binary(max_size=3), st.booleans()), max_size=40),
)
def test_bytes_stay_in_order_and_each_is_as_late_as_the_delay_says(
    delay_s: float, script: list[tuple[float, bytes, bool]]
) -> None:
    line, now_s = DelayLine(delay_s), 0.0
    sent: list[tuple[float, bytes]] = []
    came: list[bytes] = []
    for step_s, chunk, takes in script:
        now_s += step_s
        if takes:
            came += line.take(now_s)
            assert came == [c for at_s, c in sent if at_s + delay_s <= now_s]
        else:
            line.put(now_s, chunk)
            sent.append((now_s, chunk))
        assert line.held_bytes == sum(len(c) for _, c in sent) - sum(map(len, came))
    assert came + line.take(math.inf) == [chunk for _, chunk in sent]
