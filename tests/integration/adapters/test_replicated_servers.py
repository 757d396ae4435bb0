"""A private network with replicas: masters die, one after the other, and nothing that was acknowledged is lost."""

from __future__ import annotations

import asyncio
import os
import signal
from functools import partial

import orjson
import pytest
from click.testing import CliRunner

import gamecast
from adapters.embedded.network import EmbeddedNetwork
from adapters.embedded.replicated import ReplicatedServers
from adapters.embedded.server import EmbeddedServer
from cli.up import up
from gamecast import Event
from gamecast.errors import UsageError
from tests.integration.adapters.test_cluster import until
from tests.patience import patience


async def test_each_master_that_dies_is_replaced_and_comes_back_as_a_replica() -> None:
    async with ReplicatedServers(1, 1) as servers:
        keeping = asyncio.create_task(servers.keep())
        [url] = servers.urls
        async with (
            gamecast.connect(url, name="p", publish_timeout_s=40) as publisher,
            gamecast.connect(url, name="s") as subscriber,
        ):
            await subscriber.subscribe("a")
            places: list[tuple[int, int]] = []
            for turn in range(2):
                master = await asyncio.to_thread(servers.master, 0)
                os.kill(master.pid, signal.SIGKILL)
                for number in range(20):
                    receipt = await publisher.publish("a", [turn, number])
                    places.append((receipt.epoch, receipt.sequence))
                await asyncio.to_thread(until, partial(_is_another, servers, master))
            got: list[tuple[int, int]] = []
            async with patience(20):
                while len(got) < len(places):
                    item = await anext(subscriber)
                    if isinstance(item, Event):
                        got.append((item.epoch, item.sequence))
        assert got == places
        keeping.cancel()


def _is_another(servers: ReplicatedServers, dead: EmbeddedServer) -> bool:
    return servers.master(0) is not dead and not any(server.has_ended for server in servers.servers)


def test_up_tells_a_url_that_waits_for_replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cli.up.run_until_stopped", lambda run: asyncio.run(run(_Stopped())))
    told = CliRunner().invoke(up, ["--nodes", "2", "--replicas", "1", "--no-gateway", "--json"])
    assert told.exit_code == 0, told.output
    document = orjson.loads(told.stdout)
    assert document["url"].startswith("redis+sentinel://127.0.0.1:")
    assert document["url"].endswith("/n1?replicas=1")
    assert document["nodes"]["n2"].endswith("/n2?replicas=1")


class _Stopped:
    """A request to stop that comes at once."""

    def is_set(self) -> bool:
        return False

    async def wait(self) -> None:
        pass


def test_replicas_and_users_exclude_each_other() -> None:
    with pytest.raises(UsageError, match="either secure or has replicas"):
        EmbeddedNetwork("embedded://", ordering="acyclic", retention_events=1, secure=True, replicas=1)
    told = CliRunner().invoke(up, ["--secure", "--replicas", "1"])
    assert told.exit_code == 2
    assert "exclude each other" in told.stderr
