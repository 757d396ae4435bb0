"""A node that is registered to keep all, and comes back with less: the end of its append-only file is gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import pytest
import redis

import gamecast
from adapters.embedded.server import EmbeddedServer
from adapters.redis.examination import Examination
from adapters.redis.findings import judge
from adapters.redis.survey import survey
from gamecast import Event, Gap, Item
from tests.integration.networks import register, relaying
from tests.patience import patience

Player = gamecast.Client


@asynccontextmanager
async def network() -> AsyncIterator[tuple[EmbeddedServer, EmbeddedServer]]:
    async with EmbeddedServer(appendfsync="always") as server, EmbeddedServer(appendfsync="always") as node:
        await register(server.url, {"n1": node.url})
        yield server, node


def cut(node: EmbeddedServer, lines_from: bytes) -> None:
    """Take away all that was appended since some bytes were, but for a torn beginning, as a power loss may."""
    [file] = node.directory.glob("**/*.incr.aof")
    written = file.read_bytes()
    place = written.rindex(b"*", 0, written.index(lines_from))
    file.write_bytes(written[: place + 7])


async def take_until(cast: Player, payload: object) -> list[Item]:
    taken: list[Item] = []
    async for item in cast:
        taken.append(item)
        if isinstance(item, Event) and item.payload == payload:
            return taken
    raise AssertionError("the connection has ended")


async def publish_when_possible(cast: Player, payload: object) -> gamecast.Receipt:
    while True:
        with suppress(gamecast.GamecastError):
            return await cast.publish("a", payload)
        await asyncio.sleep(0.05)


@pytest.mark.parametrize("knows", ["reader", "publisher"])
async def test_what_the_end_of_a_file_had_is_a_gap_and_no_number_is_given_twice(knows: str) -> None:
    async with (
        network() as (server, node),
        gamecast.connect(server.url, name="reader", publish_timeout_s=2) as reader,
        gamecast.connect(server.url, name="publisher", publish_timeout_s=2) as publisher,
        patience(60),
    ):
        await reader.subscribe("a")
        receipts = [await publisher.publish("a", f"kept-{number}") for number in range(5)]
        await take_until(reader, "kept-4")
        if knows == "publisher":
            await reader.close()
        receipts += [await publisher.publish("a", f"lost-{number}") for number in range(5)]
        if knows == "reader":
            await take_until(reader, "lost-4")
            await publisher.close()
        node.kill()
        cut(node, b"lost-0")
        await node.restart_async()
        with redis.Redis.from_url(node.url) as client:
            assert client.info("persistence")["loading"] == 0
        async with gamecast.connect(server.url, name="new") as new:
            if knows == "reader":
                # A connection that knows of nothing may publish before one that does has seen what is missing.
                while (await publish_when_possible(new, "after")).epoch == receipts[0].epoch:
                    pass
                await new.publish("a", "last")
                rest = await take_until(reader, "last")
                gaps = [item for item in rest if isinstance(item, Gap)]
                assert {gap.epoch for gap in gaps} == {receipts[0].epoch}
                again = [gap for gap in gaps if "after they were delivered" in gap.reason]
                assert [gap.last_sequence for gap in again] == [receipts[-1].sequence]
                assert any(gap.first_sequence > receipts[-1].sequence and not gap.last_sequence for gap in gaps)
                state = await survey(server.url)
                assert any("has lost acknowledged events" in each.seen for each in judge(Examination(state, state, 1)))
            else:
                after = await publish_when_possible(publisher, "after")
                assert after.epoch > receipts[0].epoch, "numbers are not given twice"
                await new.subscribe("a", since=0)
                seen = await take_until(new, "after")
                said = [item.payload if isinstance(item, Event) else "gap" for item in seen]
                assert said == [*(f"kept-{number}" for number in range(5)), "gap", "after"]


async def test_a_node_that_was_emptied_under_a_reader_is_noticed(redis_server: EmbeddedServer) -> None:
    async with (
        network() as (server, node),
        gamecast.connect(server.url, name="one", publish_timeout_s=2) as one,
        patience(60),
    ):
        await one.subscribe("a")
        before = await one.publish("a", "before")
        await take_until(one, "before")
        with redis.Redis.from_url(node.url) as client:
            client.flushall()
            client.client_kill_filter(_type="normal")
        after = await publish_when_possible(one, "after")
        assert after.epoch > before.epoch
        await take_until(one, "after")


async def test_a_restart_without_a_loss_is_none() -> None:
    async with network() as (server, node), gamecast.connect(server.url, name="one") as one, patience(60):
        await one.subscribe("a", "b")
        before = [await one.publish(region, number) for number in range(5) for region in "ab"]
        node.kill()
        await node.restart_async()
        after = await one.publish("a", "after")
        assert after.epoch == before[0].epoch
        seen = await take_until(one, "after")
        assert len(seen) == 11
        assert all(isinstance(item, Event) for item in seen)


@pytest.mark.parametrize("place", ["ingress", "egress"])
async def test_relays_notice_what_a_node_on_a_path_has_lost_when_nobody_else_knows(place: str) -> None:
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(EmbeddedServer(appendfsync="always"))
        nodes = [await stack.enter_async_context(EmbeddedServer(appendfsync="always")) for _ in range(3)]
        await register(server.url, {f"n{number}": node.url for number, node in enumerate(nodes)})
        await stack.enter_async_context(relaying(server.url))
        readers = {}
        for name in ("abc", "bcd", "cde", "def", "efa", "fab", "ace", "bdf"):
            reader = gamecast.connect(server.url, name=name, publish_timeout_s=3)
            readers[name] = await stack.enter_async_context(reader)
            await reader.subscribe(*name)
        async with patience(60):
            plan = await readers["abc"].plan()
            assert plan is not None
            region, path = next((region, path) for region, path in plan.paths.items() if len(path) > 1)
            node = nodes[int(path[0 if place == "ingress" else -1][1:])]
            async with gamecast.connect(server.url, name="gone") as gone:
                receipts = [await gone.publish(region, f"kept-{number}") for number in range(3)]
                for name, reader in readers.items():
                    if region in name:  # so that what is kept is not in one step with what is cut off
                        await take_until(reader, "kept-2")
                receipts += [await gone.publish(region, f"lost-{number}") for number in range(3)]
            for name, reader in readers.items():
                if region in name:
                    await take_until(reader, "lost-2")
                    if place == "egress":
                        await reader.close()
            node.kill()
            cut(node, b"lost-0")
            await node.restart_async()
            async with gamecast.connect(server.url, name="new", publish_timeout_s=3) as new:
                while True:
                    with suppress(gamecast.GamecastError):
                        if (await new.publish(region, "between")).epoch > receipts[0].epoch:
                            break
                    await asyncio.sleep(0.05)
                await new.publish(region, "last")
                await new.subscribe(region, since=0)
                seen = await take_until(new, "last")
                assert any(isinstance(item, Gap) and item.epoch == receipts[0].epoch for item in seen)
                assert [item.payload for item in seen if isinstance(item, Event)][:3] == [f"kept-{n}" for n in range(3)]


async def test_a_node_that_was_emptied_while_everybody_stays_connected_is_noticed() -> None:
    async with network() as (server, node), gamecast.connect(server.url, name="one") as one, patience(60):
        await one.subscribe("a")
        before = await one.publish("a", "before")
        await take_until(one, "before")
        with redis.Redis.from_url(node.url) as client:
            client.flushall()
        after = await publish_when_possible(one, "after")
        assert after.epoch > before.epoch
        [gap, _] = await take_until(one, "after")
        assert isinstance(gap, Gap)
