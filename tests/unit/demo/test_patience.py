"""Deadlines that count what the machine had time for."""

from __future__ import annotations

import asyncio
import time

import pytest

import demo.patience
from demo.patience import SLOWNESS_MAX, Deadline, slowness
from tests.patience import patience


@pytest.fixture
def wanting(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How many threads want to run, a core: to be changed."""
    crowd = [1.0]
    monkeypatch.setattr(demo.patience, "_wanting", lambda _: crowd[0] * demo.patience.cores())
    monkeypatch.setattr(demo.patience, "_core_slowness", lambda: 1.0)
    return crowd


def test_slowness_is_the_crowd_before_a_core_within_bounds(wanting: list[float]) -> None:
    for crowd, expected in ((0.2, 1.0), (1.0, 1.0), (7.0, 7.0), (1e6, SLOWNESS_MAX)):
        wanting[0] = crowd
        assert slowness() == expected


def test_the_time_of_a_deadline_passes_as_much_slower_as_the_machine_is(
    wanting: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    deadline = Deadline(10.0)
    now[0] += 4.0
    assert deadline.look() == 6.0
    wanting[0] = 5.0
    now[0] += 20.0
    assert deadline.look() == 2.0
    now[0] += 1_000.0
    assert deadline.look(counting_s_max=5.0) == 1.0
    assert not deadline.passed
    now[0] += 5.0
    assert deadline.passed


async def test_patience_ends_as_a_timeout_does(wanting: list[float]) -> None:
    with pytest.raises(TimeoutError):
        async with patience(0.05):
            await asyncio.Event().wait()
    async with patience(0.01):
        pass
    with pytest.raises(KeyError):
        async with patience(1.0):
            raise KeyError
