"""What comes out of connections, where a test expects events and nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator

from gamecast import Event
from tests.patience import patience


async def next_event(client: AsyncIterator[object]) -> Event:
    """Return what is delivered next, an event."""
    event = await anext(client)
    assert isinstance(event, Event), event
    return event


async def take(client: AsyncIterator[object], count: int) -> list[Event]:
    """Return the next ``count`` events."""
    events: list[Event] = []
    async with patience(20):
        async for event in client:
            assert isinstance(event, Event), event
            events.append(event)
            if len(events) == count:
                return events
    raise AssertionError(f"iteration ended after {len(events)} of {count} events")
