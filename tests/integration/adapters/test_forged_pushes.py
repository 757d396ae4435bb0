"""Events that somebody sends on the channels of egress streams by hand: noticed, and announced as gaps."""

from __future__ import annotations

import asyncio
import logging
from typing import cast

import pytest
import redis

import gamecast
from adapters.embedded.network import EmbeddedNetwork
from adapters.embedded.server import EmbeddedServer
from adapters.redis import listening
from adapters.redis.leadercontrol import LeaderControl
from adapters.redis.node import RedisNode
from adapters.redis.users import ROLES
from gamecast import Event, Gap, Item
from sequencing.frames import FrameKind, PublishedFrame
from tests.patience import patience, until

SENDERS = [role for role, rules in ROLES.items() if "+publish" in rules]


def forge(url: str, node: str, region: str, epoch: int, last: int, publisher: str) -> None:
    """Send what `step.lua` would push for one event of a publisher."""
    meta, stamp, body = f"0 1 1 {last} {publisher}", "0,99", '[1,[0],["forged"]]'
    with redis.Redis.from_url(url) as client:
        channel = f"gamecast:{{{node}}}:egress:{epoch}:{region}"
        client.publish(channel, f"{last} {len(meta)} {len(stamp)}\n{meta}{stamp}{body}")


async def next_item(cast: gamecast.Client) -> Item:
    return await anext(aiter(cast))


@pytest.mark.parametrize("role", SENDERS)
@pytest.mark.parametrize("true_event_is_pushed", [True, False])
async def test_what_is_pushed_by_hand_is_noticed_and_what_it_hid_is_a_gap(
    role: str, true_event_is_pushed: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(listening, "LONE_READS", 2)
    network = EmbeddedNetwork("embedded://", ordering="acyclic", retention_events=1000, secure=True)
    await network.open()
    network.stand(LeaderControl(network.url))
    url = network.url_of("subscriber")
    try:
        async with (
            gamecast.connect(url, name="reader") as reader,
            gamecast.connect(url, name="true") as true,
            patience(30),
        ):
            await reader.subscribe("forest")
            with redis.Redis.from_url(network._servers.urls[0]) as client:
                receipt = await true.publish("forest", "known")
                await next_item(reader)
                while not client.pubsub_channels():  # until it listens
                    receipt = await true.publish("forest", "known")
                    await next_item(reader)
                plan = await true.plan()
                assert plan is not None
                number = receipt.sequence + 1
                await asyncio.to_thread(
                    forge, network.url_of(role), plan.paths["forest"][-1], "forest", receipt.epoch, number, "true"
                )
                item = await next_item(reader)
                assert isinstance(item, Event)
                assert (item.payload, item.sequence) == ("forged", number), "the boundary of trust that is documented"
                if not true_event_is_pushed:
                    client.client_kill_filter(_type="pubsub")
                    await until(lambda: not client.pubsub_channels())
                hidden = await true.publish("forest", "hidden")
                assert (hidden.epoch, hidden.sequence) == (receipt.epoch, number)
                gap = await next_item(reader)
                assert isinstance(gap, Gap), gap
                assert gap.region == "forest"
                assert (gap.epoch, gap.first_sequence, gap.last_sequence) == (receipt.epoch, number, number)
                assert "forged" in gap.reason
                await true.publish("forest", "after")
                after = await next_item(reader)
                assert isinstance(after, Event)
                assert after.payload == "after"
    finally:
        await network.close()
    alerts = [each for each in caplog.records if each.name == "gamecast.security"]
    assert [each.levelno for each in alerts] == [logging.ERROR]
    assert "'forest'" in alerts[0].getMessage()


async def test_a_frame_of_a_kind_that_this_version_does_not_know_is_a_gap(redis_server: EmbeddedServer) -> None:
    async with gamecast.connect(redis_server.url, name="reader") as reader, patience(30):
        await reader.subscribe("forest")
        receipt = await reader.publish("forest", 1)
        plan = await reader.plan()
        assert plan is not None
        node = RedisNode("control", redis_server.url, plan)
        frame = PublishedFrame("forest", receipt.epoch, "newer", 9, 1, 1, b"?", cast(FrameKind, 7))
        [answer] = await node.publish([frame])
        assert answer.verdict == "ok"
        await node.close()
        await reader.publish("forest", 2)
        first, gap, last = [await next_item(reader) for _ in range(3)]
        assert isinstance(gap, Gap)
        assert "knows no frames of kind 7" in gap.reason
        assert [item.payload for item in (first, last) if isinstance(item, Event)] == [1, 2]
