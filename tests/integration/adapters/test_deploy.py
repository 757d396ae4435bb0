"""The files in deploy/, tried with servers of this machine: what they configure is what the page promises."""

from __future__ import annotations

import re
from contextlib import AsyncExitStack
from pathlib import Path
from urllib.parse import urlsplit

import gamecast
from adapters.embedded.replicated import online_replicas
from adapters.embedded.server import EmbeddedServer
from cli.doctor import findings_of
from tests.events import take
from tests.integration.adapters.test_cluster import until

DEPLOY = Path(__file__).parents[3] / "deploy"


def lines_of(name: str) -> list[str]:
    return [line for line in (DEPLOY / name).read_text().splitlines() if line and not line.startswith("#")]


def port_of(server: EmbeddedServer) -> str:
    return str(urlsplit(server.url).port)


async def test_a_pair_and_a_sentinel_as_configured_lose_nothing_by_the_doctor() -> None:
    settings = dict(line.split(" ", 1) for line in lines_of("redis.conf"))
    async with AsyncExitStack() as stack:
        master = await stack.enter_async_context(EmbeddedServer(settings=settings))
        replica = EmbeddedServer(settings=settings | {"replicaof": f"127.0.0.1 {port_of(master)}"})
        await stack.enter_async_context(replica)
        watched = [
            re.sub(r"monitor n1 n1 6379 2", f"monitor n1 127.0.0.1 {port_of(master)} 1", line)
            for line in lines_of("sentinel.conf")
            if " n2" not in line
        ]
        sentinel = await stack.enter_async_context(EmbeddedServer(arguments=("--sentinel",), lines=watched))
        until(lambda: online_replicas(master.url) == 1)
        url = f"redis+sentinel://127.0.0.1:{port_of(sentinel)}/n1?replicas=1"
        async with gamecast.connect(url, name="s") as client:
            await client.subscribe("a")
            await client.publish("a", 1)
            assert [event.payload for event in await take(client, 1)] == [1]
            troubles = [finding for finding in await findings_of(url) if finding.level != "ok"]
            assert troubles == []


def test_the_compose_file_uses_these_files_and_names() -> None:
    text = (DEPLOY / "compose.yaml").read_text()
    assert set(re.findall(r"\./([\w.]+):/etc/gamecast/", text)) == {"redis.conf", "sentinel.conf"}
    services = set(re.findall(r"^  ([\w-]+):", text.partition("services:")[2], re.MULTILINE))
    monitored = set(re.findall(r"monitor (\w+) (\w+) 6379", "\n".join(lines_of("sentinel.conf"))))
    assert {name for pair in monitored for name in pair} <= services
    for urls in re.findall(r"redis\+sentinel://([\w,-]+)/(\w+)", text):
        assert set(urls[0].split(",")) | {urls[1]} <= services
