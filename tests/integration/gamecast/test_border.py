"""Handovers over the borders of three nodes, each of which numbers its own regions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from itertools import pairwise
from typing import Any

import pytest

import gamecast
from adapters.embedded.network import EmbeddedNetwork
from adapters.redis.leadercontrol import LeaderControl
from adapters.redis.node import RedisNode
from adapters.redis.relays import RedisRelays
from gamecast import Client, Conflict, Event, PublishUncertain
from sequencing import joint
from tests.patience import patience

COLUMNS = 6
ROWS = 4


def cell(column: int, row: int) -> str:
    return f"cell:{column}:{row}"


@pytest.fixture
async def servers() -> AsyncIterator[list[Client]]:
    """Three servers of two columns each, which also follow the columns beside theirs."""
    async with AsyncExitStack() as stack:
        network = EmbeddedNetwork("embedded://?nodes=3", ordering="acyclic", retention_events=10_000)
        await network.open()
        stack.push_async_callback(network.close)
        network.stand(LeaderControl(network.url))
        found = [await stack.enter_async_context(gamecast.connect(network.url, name=f"s{n}")) for n in range(3)]
        for number, client in enumerate(found):
            columns = range(max(0, 2 * number - 1), min(COLUMNS, 2 * number + 3))
            await client.subscribe(*(cell(column, row) for column in columns for row in range(ROWS)))
        yield found


async def walk(client: Client, row: int, *, forth: bool) -> list[tuple[str, ...]]:
    """Hand an entity on from column to column, under conditions in both regions; return where each step was."""
    columns = range(COLUMNS) if forth else range(COLUMNS - 1, -1, -1)
    key, steps = f"troll {row}", list[tuple[str, ...]]()
    taken = await client.publish(cell(columns[0], row), [row, columns[0]], key=key, only_if=None)
    at = taken.position
    for left, right in pairwise(columns):
        regions = cell(left, row), cell(right, row)
        moved = await client.publish(
            regions, [row, right], key=key, only_if={(regions[0], key): at, (regions[1], key): None}
        )
        steps.append(tuple(moved.positions[region] for region in regions))
        with pytest.raises(Conflict):
            await client.publish(
                regions, {"again": True}, key=key, only_if={(regions[0], key): at, (regions[1], key): None}
            )
        at = moved.positions[regions[1]]
    return steps


async def events_of(client: Client, wanted: int) -> list[Any]:
    found: list[Any] = []
    async with patience(30):
        while len(found) < wanted:
            item = await anext(client)
            assert isinstance(item, Event), item
            found.append(item.payload)
    return found


async def test_entities_walk_over_all_borders_in_both_directions_and_everybody_sees_one_order(
    servers: list[Client],
) -> None:
    borders = [(cell(left, row), cell(right, row)) for row in range(ROWS) for left, right in pairwise(range(COLUMNS))]
    await servers[0].declare_joint(borders)
    await asyncio.gather(*(walk(servers[row % 3], row, forth=row % 2 == 0) for row in range(ROWS)))
    plan = await servers[0].plan()
    assert plan is not None
    entries = {plan.paths[region][0] for region in plan.paths}
    assert len(entries) == 3, "each node has regions that begin there"
    apart = [name for name in plan.joint if len({plan.paths[region][0] for region in joint.regions_in(name)}) > 1]
    assert apart
    async with patience(10):
        for name, url in plan.nodes.items():
            node = RedisNode(name, url or servers[0].url)
            while await node.undecided() or await node.verdicts("n1") or await node.verdicts("n2"):  # noqa: ASYNC110 - the relays act
                await asyncio.sleep(0.01)
            await node.close()
    # Steps over the borders that a server sees, and entities that appear in its first or last column.
    orders = [await events_of(client, wanted) for client, wanted in zip(servers, (14, 20, 14), strict=True)]
    for one, other in ((0, 1), (1, 2)):
        common = [event for event in orders[one] if event in orders[other]]
        assert common == [event for event in orders[other] if event in orders[one]]
        assert len(common) == 3 * ROWS


async def test_a_busy_key_at_a_border_is_waited_for_by_the_library(servers: list[Client]) -> None:
    """All servers count up one number that is kept on both sides of a border: none counts twice, and nothing fails."""
    borders = [(cell(column, 0), cell(column + 1, 0)) for column in range(COLUMNS - 1)]
    await servers[0].declare_joint(borders)
    plan = await servers[0].plan()
    assert plan is not None
    left, right = next(each for each in borders if plan.paths[each[0]][0] != plan.paths[each[1]][0])
    first = await servers[0].publish((left, right), 0, key="count")
    newest = {left: first.positions[left], right: first.positions[right]}
    total, done = 0, asyncio.Event()

    async def count(client: Client) -> None:
        nonlocal total
        while not done.is_set():
            known = dict(newest)
            try:
                told = await client.publish(
                    (left, right), total + 1, key="count", only_if={(at, "count"): known[at] for at in (left, right)}
                )
            except Conflict:
                await asyncio.sleep(0)
                continue
            total += 1
            newest.update(told.positions)
            if total >= 60:
                done.set()

    async with patience(60):
        await asyncio.gather(*(count(client) for client in servers))
    assert total >= 60
    assert newest[left] > first.positions[left]
    assert sum(client.statistics().pending_retries for client in servers) > 0


async def border(stack: AsyncExitStack) -> tuple[EmbeddedNetwork, Client, Client, tuple[str, str]]:
    """Return a network, two of its connections, the first of them impatient, and two cells on the way of an event."""
    network = EmbeddedNetwork("embedded://?nodes=3", ordering="acyclic", retention_events=10_000)
    await network.open()
    stack.push_async_callback(network.close)
    network.stand(LeaderControl(network.url))
    old = await stack.enter_async_context(gamecast.connect(network.url, name="old", publish_timeout_s=0.8))
    new = await stack.enter_async_context(gamecast.connect(network.url, name="new"))
    others = [await stack.enter_async_context(gamecast.connect(network.url, name=f"o{n}")) for n in range(2)]
    for number, client in enumerate((old, *others)):
        await client.subscribe(*(cell(c, 0) for c in range(max(0, 2 * number - 1), min(COLUMNS, 2 * number + 3))))
    borders = [(cell(column, 0), cell(column + 1, 0)) for column in range(COLUMNS - 1)]
    await old.declare_joint(borders)
    plan = await old.plan()
    assert plan is not None
    pair = next(each for each in borders if plan.paths[each[0]][0] != plan.paths[each[1]][0])
    entry = joint.way_of(plan.paths, pair)[0]
    first, second = sorted(pair, key=lambda region: plan.paths[region][0] != entry)
    return network, old, new, (first, second)


async def test_an_event_that_is_not_decided_in_time_is_uncertain_and_its_regions_go_on() -> None:
    async with AsyncExitStack() as stack:
        network, old, new, regions = await border(stack)
        await new.subscribe(regions[1])
        assert network._relays is not None
        await network._relays.stop()
        async with patience(20):
            with pytest.raises(PublishUncertain, match="of which other nodes have numbered a part"):
                await old.publish(regions, "late")
            network._relays = RedisRelays(network.url)
            network._relays.start()
            await old.publish(regions, "in time")
            assert await events_of(new, 2) == ["late", "in time"]


@pytest.mark.parametrize("against", [False, True])
async def test_a_handover_whose_answer_is_late_is_done_once_in_both_directions_of_a_border(*, against: bool) -> None:
    """The relays are away for longer than events are offered: the first try is uncertain, and the second conflicts."""
    async with AsyncExitStack() as stack:
        network, old, new, (first, second) = await border(stack)
        here, there = (second, first) if against else (first, second)
        await new.subscribe(there)
        mine = await old.authority(here, "goblin")
        assert network._relays is not None
        await network._relays.stop()
        handing = asyncio.create_task(mine.hand_to("new", to=there, state=1))
        await asyncio.sleep(1.1)
        network._relays = RedisRelays(network.url)
        network._relays.start()
        async with patience(20):
            receipt = await handing
            event = await anext(new)
            assert isinstance(event, Event)
            assert here in receipt.positions
            assert not mine.is_held
            taken = await new.accept(event)
        assert taken is not None
        assert await mine.take_back() is None
