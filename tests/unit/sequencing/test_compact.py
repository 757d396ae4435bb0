"""What is kept of encoded texts takes the memory that it needs."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator

import pytest

from adapters.gateway.eventtexts import EventTexts
from gamecast.event import Event
from sequencing.plan import Plan
from sequencing.record import Interest, Record

TEXTS = 500


@pytest.fixture
def traced() -> Iterator[Callable[[], int]]:
    tracemalloc.start()
    yield lambda: tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()


def test_the_texts_of_wishes_and_members_are_small(traced: Callable[[], int]) -> None:
    interests = {f"s{number}": Interest(1, number, {f"r{number}": 1}) for number in range(TEXTS)}
    members = {name: frozenset(interest.since) for name, interest in interests.items()}
    record = Record(Plan(1, 1, "acyclic", {}, {}, ()), members, interests)
    before = traced()
    record.to_json()
    assert traced() - before < TEXTS * 1_000


def test_the_texts_of_events_are_small(traced: Callable[[], int]) -> None:
    texts = EventTexts(Event)
    before = traced()
    told = [texts.encode(Event("forest", "s", number, 1, number, 0, 0)) for number in range(TEXTS)]
    assert len(told) == TEXTS
    assert traced() - before < TEXTS * 1_000
