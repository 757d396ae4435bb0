"""When delays rose: lines that are made by hand, with steps where they are known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pytest

pytest.importorskip("ruptures")

from analytics.jobs.timeline import text_of
from analytics.jobs.turns import Lines, find_turns

BEGAN = 29_000_000
MINUTES = 60


def line(key: str, level: Callable[[int], float], *, noise: float = 0.1, **more: Any) -> list[dict[str, Any]]:
    random = Random(key)
    return [
        {
            "key": key,
            "minute": text_of(BEGAN + n),
            "deliveries": 1000,
            "p99_ms": level(n) * 2 ** random.gauss(0, noise),
            "held_ms": 1.0,
            **{name: each(n) if callable(each) else each for name, each in more.items()},
        }
        for n in range(MINUTES)
    ]


def everything(level: Callable[[int], float], **more: Any) -> list[dict[str, Any]]:
    return line("", level, **{"events_per_s": 100.0, "joins": 2, "gaps": 0, **more})


def flat(_: int) -> float:
    return 12.0


def step(n: int) -> float:
    return 48.0 if n >= 30 else 12.0


def world(slow: Sequence[str] = (), *, every: Callable[[int], float] = flat, links: Sequence[str] = ()) -> Lines:
    return {
        "all": everything(every),
        "server": [row for n in range(8) for row in line(f"s{n}", step if f"s{n}" in slow else flat)],
        "link": [row for n in range(3) for row in line(f"n{n} → n9", step if f"n{n}" in links else flat)],
    }


def test_noise_alone_is_no_turn() -> None:
    for noise in (0.0, 0.05, 0.2, 0.4):
        rows = [row for n in range(20) for row in line(f"s{n}", flat, noise=noise)]
        assert find_turns({"server": rows, "all": everything(flat, noise=noise)}) == ()


def test_the_server_that_slowed_down_is_named_with_its_minute_and_levels() -> None:
    [turn] = find_turns(world(["s3"]))
    assert (turn.kind, turn.keys, turn.minute) == ("server", ("s3",), text_of(BEGAN + 30))
    assert turn.before_ms == pytest.approx(12, rel=0.1)
    assert turn.after_ms == pytest.approx(48, rel=0.1)
    assert turn.describe().startswith("p99 of s3 rose from 1")
    assert f"at {text_of(BEGAN + 30).replace('T', ' ')}" in turn.describe()


def test_the_smallest_part_that_explains_a_rise_is_named() -> None:
    [turn] = find_turns(world([f"s{n}" for n in range(8)], every=step, links=["n1"]))
    assert (turn.kind, turn.keys) == ("link", ("n1 → n9",))
    [turn] = find_turns(world([f"s{n}" for n in range(8)], every=step))
    assert turn.describe().startswith("p99 of all 8 servers rose")
    [turn] = find_turns(world(["s1", "s2", "s5", "s6"]))
    assert turn.describe().startswith("p99 of servers s")
    assert " and 1 more rose" in turn.describe()


def test_the_end_of_a_rise_is_told() -> None:
    rows = line("s1", lambda n: 50.0 if 20 <= n < 31 else 10.0)
    [turn] = find_turns({"server": rows, "all": everything(flat)})
    assert (turn.minute, turn.until) == (text_of(BEGAN + 20), text_of(BEGAN + 31))
    assert f", until {text_of(BEGAN + 31)[-5:]}" in turn.describe()


def test_what_else_changed_then_is_told() -> None:
    after = 30

    def more(n: int) -> float:
        return 300.0 if n >= after else 100.0

    lines = {
        "all": everything(flat, events_per_s=more, gaps=lambda n: 7 if n == after else 0),
        "server": line("s1", step, held_ms=lambda n: 30.0 if n >= after else 1.0),
    }
    [turn] = find_turns(lines, {text_of(BEGAN + after): "epoch 4, rearranged"})
    assert turn.why == (
        "a plan began (epoch 4, rearranged)",
        "gaps rose from 0 to 7",
        "events/s rose from 100 to 300",
        "events waited 30 ms for their order and in the inbox, instead of 1 ms",
    )


def test_what_is_too_little_or_too_short_is_no_turn() -> None:
    small = line("s1", lambda n: 0.4 if n >= 30 else 0.1)
    few = line("s2", step, deliveries=5)
    short = line("s3", step)[27:32]
    unknown = [{**row, "p99_ms": None} for row in line("s4", step)]
    assert find_turns({"server": [*small, *few, *short, *unknown]}) == ()
    assert find_turns({}) == ()


def test_a_shared_point_of_time_is_one_turn_and_two_far_apart_are_two() -> None:
    twice = line("s1", lambda n: 90.0 if n >= 45 else 30.0 if n >= 20 else 10.0)
    turns = find_turns({"server": [*twice, *line("s2", lambda n: 30.0 if n >= 21 else 10.0)]})
    assert sorted(turn.minute for turn in turns) == [text_of(BEGAN + 20), text_of(BEGAN + 45)] or sorted(
        turn.minute for turn in turns
    ) == [text_of(BEGAN + 21), text_of(BEGAN + 45)]


def test_a_spike_of_a_minute_is_no_new_level() -> None:
    for height in (60.0, 1000.0):
        rows = line("s1", flat, noise=0.01)
        rows[30]["p99_ms"] = height
        assert find_turns({"server": rows}) == (), height
    often = line("s1", lambda n: 100.0 if n % 17 == 5 else 20.0)
    assert find_turns({"server": often}) == ()


def test_a_level_that_wanders_is_no_step() -> None:
    found = 0
    for seed in range(100):
        random = Random(seed)
        level = [0.0]
        for _ in range(MINUTES):
            level.append(0.8 * level[-1] + random.gauss(0, 0.2))
        rows = line("s1", flat)
        for n, row in enumerate(rows):
            row["p99_ms"] = 20 * 2 ** level[n]
        found += bool(find_turns({"server": rows}))
    assert found <= 10


def test_of_several_the_median_rise_is_told() -> None:
    rows = [row for n in range(4) for row in line(f"s{n}", flat)]
    for row in rows:
        if row["minute"] >= text_of(BEGAN + 30):
            row["p99_ms"] *= 40 if row["key"] == "s0" else 5
    [turn] = find_turns({"server": rows})
    assert turn.describe().startswith("p99 of all 4 servers rose")
    assert turn.after_ms == pytest.approx(60, rel=0.2)


def test_a_turn_over_midnight_says_both_days() -> None:
    begun = BEGAN - BEGAN % 1440 + 1440 - 30  # half an hour before midnight
    rows = line("s1", lambda n: 50.0 if 20 <= n < 45 else 10.0)
    for n, row in enumerate(rows):
        row["minute"] = text_of(begun + n)
    [turn] = find_turns({"server": rows})
    assert (turn.minute, turn.until) == (text_of(begun + 20), text_of(begun + 45))
    assert turn.minute[:10] != turn.until[:10]
    assert turn.until.replace("T", " ") in turn.describe()
