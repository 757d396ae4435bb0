"""What the demo shows beside gamecast: plain Pub/Sub over real Redis servers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

import pytest
import redis.exceptions

import demo.plain
from adapters.embedded.server import EmbeddedServer, EmbeddedServers
from demo.match.hosting import Workload, build_workload
from demo.match.skirmish import generate_skirmish
from demo.outcome import judged
from demo.plain import replay_plain
from demo.replay import Replay
from sequencing.checkers import Verdict


@pytest.fixture(scope="module")
def workload() -> Workload:
    return build_workload(generate_skirmish(1), duration_s=200)


async def replay(workload: Workload, *, redis_servers: int, speed: float = 0.0) -> tuple[Replay, Verdict, int]:
    """Return the replay, what it was judged to be, and how much progress it told."""
    told: list[int] = []
    async with EmbeddedServers(redis_servers) as servers:
        urls = dict.fromkeys(workload.servers, servers.urls)
        replayed = await replay_plain(workload, urls, speed=speed, progress=told.append)
    return replayed, judged(workload, replayed), sum(told)


@pytest.mark.parametrize("redis_servers", [1, 3])
@pytest.mark.parametrize("loops", [32, 3])
async def test_several_redis_servers_are_read_in_opposite_orders_and_one_is_not(
    workload: Workload, redis_servers: int, loops: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo.plain, "LOOPS_MAX", loops)
    replayed, verdict, told = await replay(workload, redis_servers=redis_servers)
    expected = sum(workload.expected_deliveries().values())
    assert (verdict.deliveries, verdict.lost, verdict.duplicated, verdict.unexpected) == (expected, 0, 0, 0)
    assert told == replayed.delivery_count == expected
    assert verdict.publisher_order_violations == 0
    assert (verdict.inversions > 0) is (redis_servers > 1)


async def test_what_is_lost_ends_the_wait_after_a_silence(workload: Workload, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo.replay, "IDLE_S_MAX", 1.0)
    async with EmbeddedServers(2) as servers, EmbeddedServers(1) as elsewhere:
        urls = dict.fromkeys(workload.servers, servers.urls)
        urls[workload.servers[0]] = servers.urls[0], elsewhere.urls[0]
        replayed = await replay_plain(workload, urls, speed=0, progress=lambda _: None)
    verdict = judged(workload, replayed)
    assert verdict.lost
    assert replayed.seconds < 10


async def test_a_redis_server_that_goes_is_an_error_and_no_thread_stays(workload: Workload) -> None:
    with EmbeddedServer() as stays, EmbeddedServer() as goes:
        urls = dict.fromkeys(workload.servers, (stays.url, goes.url))
        async with replaying(workload, urls) as replay:
            goes.kill()
            with pytest.raises(redis.exceptions.ConnectionError):
                await replay
    assert not threads_of(workload)


async def test_a_replay_that_is_cancelled_ends_its_threads(workload: Workload) -> None:
    with EmbeddedServer() as server:
        async with replaying(workload, dict.fromkeys(workload.servers, (server.url,))) as replay:
            replay.cancel()
            with pytest.raises(asyncio.CancelledError):
                await replay
    assert not threads_of(workload)


@asynccontextmanager
async def replaying(workload: Workload, urls: Mapping[str, Sequence[str]]) -> AsyncIterator[asyncio.Task[Replay]]:
    """Yield a replay that has delivered something and takes a while yet."""
    heard = asyncio.Event()
    replay = asyncio.create_task(replay_plain(workload, urls, speed=2.0, progress=lambda _: heard.set()))
    await heard.wait()
    assert len(threads_of(workload)) == len(workload.servers)
    yield replay


def threads_of(workload: Workload) -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name in workload.servers]
