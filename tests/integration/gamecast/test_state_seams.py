"""States, events of several regions and updates together: what is in a state does not come after it, and nothing
overtakes it."""

from __future__ import annotations

import asyncio

import pytest

from gamecast import Client, Event, Item, JointEvent, State
from tests.integration.networks import Network
from tests.patience import patience


@pytest.mark.parametrize("regions", [("river", "forest"), ("forest", "river")], ids=lambda regions: regions[0])
async def test_no_event_that_is_in_the_state_comes_after_it_by_another_region(
    network: Network, regions: tuple[str, str]
) -> None:
    one, other = await network.connect("one"), await network.connect("other")
    await other.subscribe("forest")
    await one.publish(regions, 0, key="k")
    is_publishing = True

    async def publish() -> int:
        number = 0
        while is_publishing:
            number += 1
            one.publish_nowait(regions, number, key="k")
            await asyncio.sleep(0.001)
        return number

    publishing = asyncio.create_task(publish())
    had: list[Item] = []
    async with patience(60):
        for _ in range(15):
            joining = asyncio.create_task(other.subscribe("river", state=True))
            got: list[Item] = []
            while not any(isinstance(item, State) for item in got[:-5]):
                got += await other.fetch(1_000, timeout=0.1)
            await joining
            [place] = [place for place, item in enumerate(got) if isinstance(item, State)]
            state = got.pop(place)
            assert isinstance(state, State)
            value = state.values["river"]["k"].payload
            assert next(item.payload for item in got[place:] if isinstance(item, Event)) == value + 1
            assert all(isinstance(item, JointEvent) and item.regions == ("forest",) for item in got[:place])
            assert all(isinstance(item, JointEvent) and len(item.regions) == 2 for item in got[place:])
            had += got
            await other.unsubscribe("river")
        is_publishing = False
        published = await publishing
        while len(had) <= published:
            had += await other.fetch(1_000, timeout=1)
    assert [item.payload for item in had if isinstance(item, Event)] == list(range(published + 1)), (
        "each once, in order"
    )


@pytest.mark.parametrize("key", ["goblin", None], ids=["deleted", "without a key"])
async def test_an_update_never_comes_before_an_event_that_the_state_of_its_sender_had(
    network: Network, key: str | None
) -> None:
    one, reader, mover = [await network.connect(name) for name in ("one", "reader", "mover")]
    await reader.subscribe("forest")
    reader.updates()
    await one.publish("forest", "here", key="goblin")
    assert await reader.fetch(1, timeout=10)
    last = await one.publish("forest", None, key=key)
    positions = await mover.subscribe("forest", state=True)
    [state] = await mover.fetch(1, timeout=10)
    assert isinstance(state, State)
    assert state.positions == positions
    moving = asyncio.create_task(move(mover))
    await asyncio.sleep(0.3)
    assert reader.updates() == [], "the event was not taken here"
    async with patience(9):
        [event] = await reader.fetch(1, timeout=None)
        assert isinstance(event, Event)
        assert event.position == last.position
        assert [update.key for update in await reader.next_updates()] == ["grave"], "although a marker may follow"
    moving.cancel()


async def move(client: Client) -> None:
    while True:
        client.update("forest", "grave", 1)
        await asyncio.sleep(0.02)
