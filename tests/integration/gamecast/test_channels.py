"""The channel layer for Django Channels: its documented contract, and one order across groups."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("channels", reason="needs channels: pip install 'gamecast[channels]'")
pytest.importorskip("msgpack", reason="needs msgpack: pip install 'gamecast[channels]'")

import django
import msgpack
from asgiref.sync import async_to_sync
from channels.exceptions import ChannelFull
from django.conf import settings

import gamecast
from adapters.embedded.server import EmbeddedServer, EmbeddedServers
from gamecast import lasting
from gamecast.channels import GamecastChannelLayer
from gamecast.channels.hub import owner_of
from tests.patience import patience, scaled, until

Layers = Callable[..., GamecastChannelLayer]
ROOT = Path(__file__).parents[3]
GROUPS = "forest", "river", "hill", "cave"


@pytest.fixture
async def layers(redis_server: EmbeddedServer) -> AsyncIterator[Layers]:
    """Makes layers of one network: each is what a process of its own would have."""
    async with AsyncExitStack() as stack:

        def make(url: str = redis_server.url, **options: Any) -> GamecastChannelLayer:
            layer = GamecastChannelLayer(url, **options)
            stack.push_async_callback(layer.close_connections)
            return layer

        yield make


async def receive(layer: GamecastChannelLayer, channel: str, count: int = 1) -> list[dict[str, Any]]:
    async with patience(20):
        return [await layer.receive(channel) for _ in range(count)]


async def nothing_comes(layer: GamecastChannelLayer, channel: str) -> bool:
    """Return whether nothing of what was sent before is left for a channel: a message to it overtakes none."""
    if "!" in channel:
        await layer.send(channel, {"type": "last"})
        return await receive(layer, channel) == [{"type": "last"}]
    try:
        async with asyncio.timeout(0.3):
            await layer.receive(channel)
    except TimeoutError:
        return True
    return False


async def test_a_message_comes_as_it_was_sent_with_bytes_and_numbers_as_keys(layers: Layers) -> None:
    layer, other = layers(), layers()
    channel = await layer.new_channel("game")
    message = {"type": "move", "bytes": b"\x00\xff", "list": [1, 2.5, None, True], "by": {1: "one"}, "text": "ä"}
    await other.send(channel, message)
    await layer.send(channel, message | {"type": "own"})
    assert await receive(layer, channel, 2) == [message, message | {"type": "own"}]


async def test_a_channel_of_another_process_cannot_be_received_from(layers: Layers) -> None:
    layer, other = layers(), layers()
    with pytest.raises(TypeError, match="of another process"):
        await other.receive(await layer.new_channel())
    with pytest.raises(TypeError, match="of no process"):
        await layer.send("made-up!name", {"type": "x"})


@pytest.mark.parametrize("name", ["", "a b", "ä", "x" * 100, "a!b!c", 7])
async def test_names_are_those_that_channels_allows(layers: Layers, name: Any) -> None:
    layer = layers()
    for call in (layer.send(name, {}), layer.receive(name), layer.group_add("g", name), layer.group_send(name, {})):
        with pytest.raises(TypeError):
            await call


async def test_a_message_is_a_dict(layers: Layers) -> None:
    layer, nothing_else = layers(), ["type"]
    with pytest.raises(TypeError, match="dict"):
        await layer.send("a", nothing_else)  # type: ignore[arg-type]


async def test_channels_have_names_of_their_own_that_channels_accepts(layers: Layers) -> None:
    layer = layers()
    names = [await layer.new_channel() for _ in range(100)]
    assert len(set(names)) == 100
    assert all(layer.require_valid_channel_name(name) for name in names)


async def test_a_group_has_the_channels_of_all_processes_that_are_in_it(layers: Layers) -> None:
    layer, other = layers(), layers()
    one, two, far, out = [await maker.new_channel() for maker in (layer, layer, other, other)]
    for channel in (one, two):
        await layer.group_add("forest", channel)
    for channel in (far, out):
        await other.group_add("forest", channel)
    await other.group_discard("forest", out)
    await layer.group_discard("never", out)
    await layer.group_send("forest", {"type": "spell"})
    for maker, channel in ((layer, one), (layer, two), (other, far)):
        assert await receive(maker, channel) == [{"type": "spell"}]
    assert await nothing_comes(other, out)


async def test_a_process_puts_a_channel_of_another_one_into_a_group_and_takes_it_out(layers: Layers) -> None:
    layer, other = layers(), layers()
    channel = await layer.new_channel()
    await other.group_add("forest", channel)
    await other.group_send("forest", {"type": "first"})
    assert await receive(layer, channel) == [{"type": "first"}]
    await other.group_discard("forest", channel)
    await other.group_send("forest", {"type": "second"})
    assert await nothing_comes(layer, channel)


async def test_a_group_that_was_left_by_all_can_be_joined_again_at_once(layers: Layers) -> None:
    layer = layers()
    channel = await layer.new_channel()
    for number in range(20):
        await layer.group_add("forest", channel)
        await layer.group_send("forest", {"number": number})
        assert await receive(layer, channel) == [{"number": number}]
        await asyncio.gather(layer.group_discard("forest", channel), layer.group_add("forest", channel))
        await layer.group_discard("forest", channel)


async def test_a_membership_ends_after_group_expiry(layers: Layers) -> None:
    layer = layers(group_expiry=0.3, expiry=1)
    channel = await layer.new_channel()
    await layer.group_add("forest", channel)
    await asyncio.sleep(0.4)
    await layer.group_send("forest", {"type": "late"})
    assert await nothing_comes(layer, channel)


async def test_a_message_that_is_not_received_expires(layers: Layers) -> None:
    layer = layers(expiry=0.5)
    channel = await layer.new_channel()
    await layer.send(channel, {"type": "old"})
    await layer.send("work", {"type": "old"})
    await asyncio.sleep(0.8)
    assert await nothing_comes(layer, channel)
    await layer.send("work", {"type": "new"})
    assert await receive(layer, "work") == [{"type": "new"}]


async def test_a_channel_beyond_its_capacity_is_full_until_it_is_received_from(layers: Layers) -> None:
    layer = layers(capacity=3, channel_capacity={"tiny*": 1})
    own, tiny = await layer.new_channel(), await layer.new_channel("tiny")
    for channel, capacity in ((own, 3), ("work", 3), (tiny, 1), ("tiny-work", 1)):
        for number in range(capacity):
            await layer.send(channel, {"number": number})
        with pytest.raises(ChannelFull):
            await layer.send(channel, {"number": capacity})
        assert await receive(layer, channel) == [{"number": 0}]
        await layer.send(channel, {"type": "fits"})


async def test_a_full_channel_of_a_group_keeps_no_other_from_its_messages(
    layers: Layers, caplog: pytest.LogCaptureFixture
) -> None:
    layer = layers(channel_capacity={"tiny*": 1})
    channel, tiny = await layer.new_channel(), await layer.new_channel("tiny")
    for each in (channel, tiny):
        await layer.group_add("forest", each)
    with caplog.at_level("INFO", "gamecast.channels"):
        for number in range(3):
            await layer.group_send("forest", {"number": number})
        assert await receive(layer, channel, 3) == [{"number": number} for number in range(3)]
    assert await receive(layer, tiny) == [{"number": 0}]
    assert "1 of 2 channels over capacity in group forest" in caplog.messages


async def test_each_message_of_a_general_channel_goes_to_one_of_its_receivers(layers: Layers) -> None:
    layer, *workers = layers(), layers(), layers()
    await layer.send("work", {"number": 0})  # before any receives
    taken: list[int] = []

    async def work(worker: GamecastChannelLayer) -> None:
        while True:
            taken.append((await worker.receive("work"))["number"])

    tasks = [asyncio.create_task(work(worker)) for worker in workers]
    for number in range(1, 60):
        await layer.send("work", {"number": number})
    await until(lambda: len(taken) >= 60, 20)
    for task in tasks:
        task.cancel()
    assert sorted(taken) == [*range(60)]


async def test_a_general_channel_may_be_in_a_group(layers: Layers) -> None:
    layer, worker = layers(), layers()
    await layer.group_add("forest", "work")
    await worker.group_send("forest", {"type": "spell"})
    assert await receive(worker, "work") == [{"type": "spell"}]


async def test_a_receive_that_is_cancelled_takes_no_message_with_it(layers: Layers) -> None:
    layer = layers(capacity=200)
    channel = await layer.new_channel()
    came: list[int] = []
    for number in range(100):
        task = asyncio.create_task(layer.receive(channel))
        await asyncio.sleep(0)
        await layer.send(channel, {"number": number})
        await asyncio.sleep(number / 50_000)
        task.cancel()
        done = (await asyncio.gather(task, return_exceptions=True))[0]
        if isinstance(done, dict):
            came.append(done["number"])
    left = await receive(layer, channel, 100 - len(came))
    assert sorted([*came, *(message["number"] for message in left)]) == [*range(100)]


async def test_flush_leaves_neither_groups_nor_messages(layers: Layers) -> None:
    layer = layers()
    channel = await layer.new_channel()
    await layer.group_add("forest", channel)
    await layer.send("work", {"type": "old"})
    await layer.group_send("forest", {"type": "old"})
    await layer.send(channel, {"type": "old"})
    assert len(await receive(layer, channel, 2)) == 2
    await layer.flush()
    await layer.group_send("forest", {"type": "new"})
    assert await nothing_comes(layer, channel)
    assert await nothing_comes(layer, "work")


async def test_threads_with_event_loops_of_their_own_use_one_layer(layers: Layers) -> None:
    layer = layers()
    channel = await layer.new_channel()
    await layer.group_add("forest", channel)

    def view() -> None:
        for number in range(10):
            async_to_sync(layer.group_send)("forest", {"number": number})

    thread = threading.Thread(target=view)
    thread.start()
    assert [message["number"] for message in await receive(layer, channel, 10)] == [*range(10)]
    await asyncio.to_thread(thread.join)
    await asyncio.to_thread(lambda: async_to_sync(layer.send)(channel, {"type": "direct"}))
    assert await asyncio.to_thread(lambda: asyncio.run(layer.receive(channel))) == {"type": "direct"}


async def test_django_s_settings_are_all_that_it_needs(redis_server: EmbeddedServer) -> None:
    if not settings.configured:
        settings.configure()
        django.setup()
    from channels.layers import ChannelLayerManager
    from django.test.utils import override_settings

    backend = {"BACKEND": "gamecast.channels.GamecastChannelLayer", "CONFIG": {"url": redis_server.url, "capacity": 5}}
    with override_settings(CHANNEL_LAYERS={"default": backend}):
        layer = ChannelLayerManager()["default"]
        assert isinstance(layer, GamecastChannelLayer)
        assert layer.get_capacity("any") == 5
        assert {"groups", "flush"} == {*layer.extensions}
        await layer.send("work", {"type": "x"})
        assert await receive(layer, "work") == [{"type": "x"}]
        await layer.close()


def test_options_are_checked_when_the_layer_is_made() -> None:
    with pytest.raises(gamecast.UsageError, match="no option hosts"):
        GamecastChannelLayer("redis://127.0.0.1", hosts=[])
    with pytest.raises(gamecast.UsageError):
        GamecastChannelLayer("http://127.0.0.1")


def test_without_channels_the_import_says_what_to_install() -> None:
    program = "import sys; sys.modules['channels'] = None; import gamecast; import gamecast.channels"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert "gamecast.channels needs channels: pip install 'gamecast[channels]'" in done.stderr


async def test_nothing_is_lost_and_groups_stay_when_redis_restarts(layers: Layers) -> None:
    async with EmbeddedServer(appendfsync="always") as server:
        layer, other = layers(server.url, capacity=1_000), layers(server.url, capacity=1_000)
        channels = [await each.new_channel() for each in (layer, other)]
        for each, channel in zip((layer, other), channels, strict=True):
            await each.group_add("forest", channel)
            await each.group_add("river", channel)
        sent = asyncio.gather(*(send_slowly(each, group) for each in (layer, other) for group in ("forest", "river")))
        await asyncio.sleep(0.1)
        server.kill()
        await server.restart_async()
        await sent
        first = await receive(layer, channels[0], 200)
        second = await receive(other, channels[1], 200)
        assert first == second
        assert len({(message["by"], message["group"], message["number"]) for message in first}) == 200
        for each in (layer, other):
            await each.close_connections()


async def test_a_layer_goes_on_when_redis_comes_back_with_nothing(layers: Layers) -> None:
    async with EmbeddedServer(settings={"save": '""'}) as server:
        layer, other = layers(server.url), layers(server.url)
        channel = await layer.new_channel()
        await layer.group_add("forest", channel)
        received = asyncio.create_task(receive(layer, channel))
        waiting = asyncio.create_task(receive(layer, "work"))
        await asyncio.sleep(0.1)
        server.kill()
        await server.restart_async()
        async with patience(30):
            while not (received.done() and waiting.done()):
                with suppress(gamecast.GamecastError):
                    await other.group_send("forest", {"type": "again"})
                    await other.send("work", {"type": "again"})
                await asyncio.sleep(0.05)
        assert await received == await waiting == [{"type": "again"}]
        for each in (layer, other):
            await each.close_connections()


async def send_slowly(layer: GamecastChannelLayer, group: str) -> None:
    for number in range(50):
        await layer.group_send(group, {"by": id(layer), "group": group, "number": number})
        await asyncio.sleep(0.005)


async def orders_of(one: Any, other: Any, receives: Callable[[Any, str, int], Coroutine[Any, Any, Any]]) -> list[Any]:
    """Return what two layers deliver that are in the same groups, while both send to all of them."""
    channels = [(layer, await layer.new_channel()) for layer in (one, one, other)]
    for layer, channel in channels:
        for group in GROUPS:
            await layer.group_add(group, channel)

    async def send(layer: Any, group: str, count: int) -> None:
        for number in range(count):
            await layer.group_send(group, {"by": id(layer), "group": group, "number": number})

    await asyncio.gather(*(send(layer, group, 50) for layer in (one, other) for group in GROUPS))
    return [await receives(layer, channel, 400) for layer, channel in channels]


async def test_consumers_of_two_processes_see_four_groups_in_one_order_on_two_nodes(layers: Layers) -> None:
    async with gamecast.connect("embedded://?nodes=2") as network:
        one, other = layers(network.url, capacity=1_000), layers(network.url, capacity=1_000)
        first, second, far = await orders_of(one, other, receive)
        assert first == second == far
        assert {message["group"] for message in first} == {*GROUPS}
        for layer in (one, other):
            await layer.close_connections()


async def test_the_pubsub_layer_over_two_servers_has_no_such_order() -> None:
    pubsub = pytest.importorskip("channels_redis.pubsub", reason="needs channels-redis: gamecast[bench]")
    with EmbeddedServers(2) as servers:
        one, other = (pubsub.RedisPubSubChannelLayer(hosts=[*servers.urls], capacity=1_000) for _ in range(2))
        inversions = 0
        async with patience(20):
            while not inversions:
                first, _, far = await orders_of(one, other, receive)
                place = {tuple(message.values()): at for at, message in enumerate(far)}
                places = [place[tuple(message.values())] for message in first]
                inversions = sum(places[at] > places[at + 1] for at in range(len(places) - 1))
        await asyncio.gather(one.flush(), other.flush())


async def test_what_another_program_publishes_in_its_regions_stops_nothing(
    layers: Layers, redis_server: EmbeddedServer
) -> None:
    layer = layers()
    channel = await layer.new_channel()
    await layer.group_add("forest", channel)
    process = owner_of(channel)
    async with gamecast.connect(redis_server.url, name="stranger") as stranger:
        for payload in (["done"], ["send"], ["add", 1], 5, {"a": 1}, "text"):
            await stranger.publish(f"asgi:process:{process}", msgpack.packb(payload))
        await stranger.publish(f"asgi:process:{process}", {"no": "bytes"})
        for foreign in ({"a": 1}, None, 5, b"\xc1", b"\xff", msgpack.packb([1])):
            await stranger.publish("asgi:group:forest", foreign)
    await layer.group_send("forest", {"type": "good"})
    async with patience(20):
        assert await layer.receive(channel) == {"type": "good"}


@pytest.mark.parametrize("outage_s", [0.0, 0.8])
async def test_what_is_sent_after_redis_came_back_with_nothing_comes_to_all_in_its_order(
    layers: Layers, outage_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It is by this time alone that they wait for one another.
    monkeypatch.setattr(lasting, "REJOIN_S", scaled(lasting.REJOIN_S))
    async with EmbeddedServer(settings={"save": '""'}) as server:
        workers = [layers(server.url, capacity=10_000, lost="world.lost") for _ in range(3)]
        channels = [await each.new_channel() for each in workers]
        for each, channel in zip(workers, channels, strict=True):
            await each.group_add("forest", channel)
        server.kill()
        await asyncio.sleep(outage_s)
        accepted = [asyncio.create_task(send_on(each, by)) for by, each in enumerate(workers[:2])]
        await server.restart_async()
        async with patience(30):
            sent_by = await asyncio.gather(*accepted)
        came = [await until_last(each, channel) for each, channel in zip(workers, channels, strict=True)]
        assert came[0] == came[1] == came[2]
        for by, sent in enumerate(sent_by):
            numbers_came = [number for sender, number in came[0] if sender == by]
            assert numbers_came == sorted({*numbers_came})
            assert {*sent} <= {*numbers_came}
        for each in workers:
            await each.close_connections()


async def send_on(layer: GamecastChannelLayer, by: int) -> list[int]:
    """Send without waiting for 3 s, and return what was accepted; then say that it is over."""
    accepted: list[int] = []

    async def send(number: int) -> None:
        with suppress(gamecast.PublishUncertain):  # was under way when Redis ended
            await layer.group_send("forest", {"type": "world.event", "by": by, "number": number})
            accepted.append(number)

    async with asyncio.TaskGroup() as sends:
        for number in range(150):
            sends.create_task(send(number))
            await asyncio.sleep(0.02)
    await layer.group_send("forest", {"type": "over"})
    return sorted(accepted)


async def until_last(layer: GamecastChannelLayer, channel: str) -> list[tuple[int, int]]:
    """Return what two senders have sent; before it, the consumer was told that something may be lost."""
    came, over = await receive(layer, channel), 0
    assert came[0]["type"] == "world.lost"
    assert came[0]["group"] == "forest"
    assert "came back without what it knew" in came[0]["reason"]
    while over < 2:
        came += await receive(layer, channel)
        over += came[-1]["type"] == "over"
    return [(message["by"], message["number"]) for message in came if message["type"] == "world.event"]


async def test_a_message_that_is_there_is_received_without_another_thread(
    layers: Layers, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer = layers()
    channel = await layer.new_channel()
    for number in range(3):
        await layer.send(channel, {"number": number})
    await until(lambda: layer._working()[1].mailboxes.count(channel) >= 3, 20)
    with monkeypatch.context() as patched:
        patched.setattr(layer, "_call", None)
        for number in range(3):
            receiving = layer.receive(channel)
            with pytest.raises(StopIteration) as returned:
                receiving.send(None)
            assert returned.value.value == {"number": number}


async def test_messages_that_the_network_has_lost_fill_no_channel(layers: Layers) -> None:
    async with EmbeddedServer(settings={"save": '""'}) as server:
        layer = layers(server.url, capacity=1)
        channel = await layer.new_channel()
        await layer.send("work", {"type": "first"})
        assert await receive(layer, "work") == [{"type": "first"}]
        hub = layer._working()[1]
        queue = hub._queues["work"]
        hub._in_flight[channel] = 1  # as when Redis ends between the receipt and the reader
        queue._own.add("lost")
        server.kill()
        await server.restart_async()
        async with patience(30):
            await until(lambda: not (hub._in_flight or queue._own))
            for each in (channel, "work"):
                await layer.send(each, {"type": "fits"})
                assert await layer.receive(each) == {"type": "fits"}
        await layer.close_connections()
