"""When a process listens to what a node pushes, and what a listening goes through."""

from __future__ import annotations

import pytest

from adapters.redis.listening import (
    BUSY_READS,
    HAS_READ_UNDER_WAY,
    IS_ON,
    LITTLE_FRAMES,
    LIVES,
    LONE_READS,
    MANY_CHANNELS,
    MUCH_FRAMES,
    QUIET_WAITS,
    TURNS,
    Life,
    Turn,
    Worth,
)
from sequencing.states import IllegalTransition, after


def test_a_listening_that_works_or_not_may_always_end_and_never_begins_again_once_it_is_refused() -> None:
    assert all(LIVES[life, Turn.END] is Life.OFF for life in Life if life is not Life.REFUSED)
    assert all(LIVES[life, Turn.REFUSE] is Life.REFUSED for life in Life)
    assert {turn for life, turn in LIVES if life is Life.REFUSED} == {Turn.END, Turn.REFUSE}


def test_one_read_at_a_time_waits_or_asks() -> None:
    for life in HAS_READ_UNDER_WAY:
        for turn in (Turn.ASK, Turn.WAIT):
            with pytest.raises(IllegalTransition):
                after(LIVES, life, turn)
    assert HAS_READ_UNDER_WAY < IS_ON


@pytest.mark.parametrize("turns", [(Turn.ASK, Turn.ANSWERED), (Turn.WAIT, Turn.OVER)])
@pytest.mark.parametrize("broken_off", [0, 1, 2])
def test_a_read_that_is_broken_off_leaves_the_listening_on(turns: tuple[Turn, Turn], broken_off: int) -> None:
    life = after(LIVES, Life.LISTENING, turns[0])
    for _ in range(broken_off):
        life = after(LIVES, life, Turn.BREAK_OFF)
    assert after(LIVES, life, turns[1]) is Life.LISTENING


def test_it_begins_after_some_reads_in_a_row_that_waited_and_found_little() -> None:
    worth = Worth()
    for _ in range(LONE_READS - 1):
        worth.note_read(LITTLE_FRAMES, waited=True)
    assert not worth.is_due(1)
    worth.note_read(LITTLE_FRAMES + 1, waited=True)
    worth.note_read(1, waited=True)
    assert not worth.is_due(1), "not in a row"
    for _ in range(LONE_READS - 1):
        worth.note_read(9, waited=False)
        worth.note_read(1, waited=True)
    assert worth.is_due(1)
    worth.begin()
    assert not worth.is_due(1)


def test_it_begins_after_some_turns_unless_much_comes_and_at_once_for_many_streams_that_are_quiet() -> None:
    worth = Worth()
    worth.turns = TURNS
    assert worth.is_due(1)
    worth.note_read(MUCH_FRAMES, waited=True)
    assert not worth.is_due(1)
    worth.note_read(0, waited=True)
    assert [worth.is_due(channels) for channels in (MANY_CHANNELS - 1, MANY_CHANNELS)] == [False, True]


def test_it_ends_where_much_comes_at_once_or_nothing_for_long() -> None:
    worth = Worth()
    assert [worth.pushed(MUCH_FRAMES) for _ in range(BUSY_READS)] == [False] * (BUSY_READS - 1) + [True]
    assert not worth.pushed(1)
    assert [worth.waited(1, in_vain=True) for _ in range(QUIET_WAITS)] == [False] * (QUIET_WAITS - 1) + [True]
    assert not worth.waited(1, in_vain=False)
    assert not any(worth.waited(MANY_CHANNELS, in_vain=True) for _ in range(2 * QUIET_WAITS))
