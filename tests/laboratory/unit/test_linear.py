"""Linearizability: histories of a key that an order explains, and such that none does."""

from __future__ import annotations

import math
import random

import pytest

from laboratory.chaos.conditions import Attempt, Register, step
from sequencing.checkers.linear import Operation, first_stuck


def op(began: float, ended: float, event: str, *requires: int | None, at: int | None = None, found: int | None = None):  # type: ignore[no-untyped-def]
    def position(number: int | None) -> tuple[int, int] | None:
        return (1, number) if number is not None else None

    return Operation(began, ended, Attempt(event, tuple(map(position, requires)), position(at), position(found)))


def stuck(*operations: Operation[Attempt]) -> str | None:
    found = first_stuck(operations, Register(), step)
    return found.what.event if found is not None else None


def test_what_an_order_explains_is_linearizable() -> None:
    assert stuck() is None
    assert stuck(op(0, 9, "a", None, at=1), op(1, 8, "b", None, found=1), op(2, 3, "c", at=2)) is None
    # The refused one saw what an attempt without an answer had set.
    assert stuck(op(0, math.inf, "a", None, at=1), op(5, 6, "b", None, found=1), op(7, 8, "c", 1, at=2)) is None


@pytest.mark.parametrize(
    ("history", "at"),
    [
        ((op(0, 1, "a", None, at=1), op(2, 3, "b", None, at=2)), "b"),  # two have what one can have
        ((op(0, 1, "a", None, at=1), op(2, 3, "b", 5, found=None)), "b"),  # refused by what was before
        ((op(0, 1, "a", None, found=2), op(2, 3, "b", at=2)), "a"),  # refused by what came later
        ((op(0, 1, "a", at=2), op(2, 3, "b", at=1)), "b"),  # the order of positions is not that of time
        ((op(0, 1, "a", None, at=1), op(2, 3, "b", 1, found=1)), "b"),  # refused although it held
        ((op(0, 9, "a", at=1), op(0, 9, "b", at=2), op(0, 9, "c", 1, at=3)), "c"),  # it did not hold any more
    ],
)
def test_what_no_order_explains_is_found(history: tuple[Operation[Attempt], ...], at: str) -> None:
    assert stuck(*history) is not None
    assert stuck(*history[:-1]) is None or stuck(*history) == at


@pytest.mark.parametrize("seed", range(40))
def test_histories_of_a_real_register_are_linearizable_and_broken_ones_are_not(seed: int) -> None:
    draw = random.Random(seed)
    head: int | None = None
    history, number = [], 0
    for event in range(60):
        now = event + draw.random() / 2
        began, ended = now - draw.random() * 4, now + (math.inf if draw.random() < 0.1 else draw.random() * 4)
        requires = () if draw.random() < 0.3 else (draw.choice((head, number or None)),)
        if requires and requires != (head,):
            history.append(op(began, ended if ended < math.inf else now + 1, f"e{event}", *requires, found=head))
        else:
            number += 1
            head = number
            history.append(op(began, ended, f"e{event}", *requires, at=number))
    draw.shuffle(history)
    assert stuck(*history) is None
    broken = draw.choice([each for each in history if each.what.at and each.what.at[1] > 3])
    place = history.index(broken)
    before = broken.what._replace(requires=((1, broken.what.at[1] - 3),))
    history[place] = Operation(broken.began, broken.ended, before)
    assert stuck(*history) is not None
