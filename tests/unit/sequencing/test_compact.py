"""What is kept of encoded texts takes the memory that it needs."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator

import pytest

from gamecast.event import Event
from gateway.eventtexts import EventTexts

TEXTS = 500


@pytest.fixture
def traced() -> Iterator[Callable[[], int]]:
    tracemalloc.start()
    yield lambda: tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()


def test_the_texts_of_events_are_small(traced: Callable[[], int]) -> None:
    texts = EventTexts()
    before = traced()
    told = [texts.encode(Event("forest", "s", number, 1, number, 0, 0)) for number in range(TEXTS)]
    assert len(told) == TEXTS
    assert traced() - before < TEXTS * 1_000
