"""The manager over real Redis: servers that roam, leaders that die, and a node that comes back with nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from random import Random

import redis

import gamecast
from adapters.embedded.server import EmbeddedServer, EmbeddedServers
from adapters.manager import Manager
from adapters.redis.leadercontrol import LeaderControl
from adapters.redis.operating import RedisNodeOperator
from laboratory.simulation.judging import Drawn, Run, violations
from laboratory.simulation.network import events_in
from sequencing.frames import FrameKind, parse_meta
from tests.integration.live_player import LivePlayer, LiveRelays, stopped
from tests.integration.networks import register
from tests.patience import Deadline, patience, until

REGIONS = "abcdef"
REST_S_MAX = 20.0

Turns = list[tuple[float, Callable[[], None]]]
"""What to do, each after how many seconds."""


class Leaders:
    """Candidates for leading, of which one may be killed."""

    def __init__(self, url: str, count: int) -> None:
        self.managers = [
            Manager(LeaderControl(url), partial(RedisNodeOperator, url, retention_events=10_000), ordering="acyclic")
            for _ in range(count)
        ]
        self._tasks = {manager: asyncio.create_task(manager.run()) for manager in self.managers}

    async def kill_leader(self) -> None:
        """End the leader in the middle of what it does; the lease is not given back."""
        [leader] = [manager for manager in self.managers if manager.leads]
        leader._control.resign = lambda token: asyncio.sleep(0)  # type: ignore[method-assign]
        self.managers.remove(leader)
        task = self._tasks.pop(leader)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def stop(self) -> None:
        await asyncio.gather(*(manager.stop() for manager in self.managers))
        await asyncio.gather(*self._tasks.values())


async def roam(
    players: Sequence[LivePlayer], seconds: float, seed: int, disturb: Callable[[float], None] = lambda _: None
) -> None:
    random, deadline = Random(seed), Deadline(seconds)
    while (passed := seconds - deadline.look()) < seconds:
        for player in players:
            player.act(random, REGIONS)
        disturb(passed)
        await asyncio.sleep(0.01)


def in_turn(turns: Turns) -> Callable[[float], None]:
    """Return what does one thing after another for `roam`, each when so many seconds have passed; what is done goes."""

    def disturb(passed: float) -> None:
        if turns and passed > turns[0][0]:
            turns.pop(0)[1]()

    return disturb


async def rest(players: Sequence[LivePlayer]) -> str:
    """Wait until all is published, joined and delivered; say what is not."""
    deadline, quiet_since, seen = Deadline(REST_S_MAX), time.monotonic(), -1
    while not deadline.passed:
        delivered = sum(len(player.session.deliveries) for player in players)
        if delivered != seen or not all(player.settled for player in players):
            quiet_since, seen = time.monotonic(), delivered
        elif time.monotonic() - quiet_since > 1.0:
            return ""
        await asyncio.sleep(0.02)
    return f"{[player.name for player in players if not player.settled]} are not at rest"


def kept(urls: Mapping[str, str]) -> dict[str, tuple[str, int, int]]:
    """Return the events that are in the egress streams: event → (region, epoch, number)."""
    found: dict[str, tuple[str, int, int]] = {}
    for name, url in urls.items():
        with redis.Redis.from_url(url) as client:
            for key in client.keys(f"gamecast:{{{name}}}:egress:*"):
                *_, epoch, region = key.decode().split(":")
                for entry, fields in client.xrange(key):
                    if parse_meta(fields[b"m"]).kind == FrameKind.EVENTS:
                        events = events_in(fields[b"b"])
                        first = int(entry.partition(b"-")[2]) - len(events) + 1
                        found |= {event: (region, int(epoch), n) for n, event in enumerate(events, first)}
    return found


def judged(
    players: Sequence[LivePlayer], urls: Mapping[str, str], unrest: str, may_lose: dict[tuple[str, int], bool]
) -> list[str]:
    there = kept(urls)
    drawn: dict[str, set[Drawn]] = {}
    for known in (there, *(player.seen for player in players)):
        for event, (region, epoch, number) in known.items():
            drawn.setdefault(region, set()).add(Drawn(epoch, number, event))
    published_ms = {event: at for player in players for event, at in player.published_ms.items()}
    sessions = [player.session for player in players]
    in_order = {region: sorted(events) for region, events in drawn.items()}
    in_streams = {(region, event) for event, (region, _, _) in there.items()}
    return violations(Run(sessions, in_order, in_streams, published_ms, unrest, False, True, may_lose))


async def test_servers_roam_while_leaders_die(three_redis_servers: EmbeddedServers) -> None:
    urls = dict(zip(("n1", "n2", "n3"), three_redis_servers.urls, strict=True))
    await register(urls["n1"], urls)
    leaders, relays = Leaders(urls["n1"], 3), LiveRelays(urls["n1"], urls)
    relays.start_all()
    players = [await LivePlayer.join(urls["n1"], urls, f"s{number}") for number in range(4)]
    try:
        await roam(players, 1.0, seed=1)
        await leaders.kill_leader()
        await roam(players, 3.0, seed=2)
        unrest = await rest(players)
    finally:
        await stopped(relays, *players)
        await leaders.stop()
    assert judged(players, urls, unrest, {}) == []
    assert sum(len(player.session.deliveries) for player in players) > 50
    assert players[0].plan is not None
    assert players[0].plan.epoch > players[0].plan.first_epoch


async def test_a_node_that_comes_back_with_nothing_is_taken_back_and_what_is_lost_is_announced(
    three_redis_servers: EmbeddedServers,
) -> None:
    servers = three_redis_servers.servers
    control, *urls_of = three_redis_servers.urls
    urls = dict(zip(("n2", "n3"), urls_of, strict=True))  # most of the traffic goes through the first
    await register(control, urls, may_lose=True)
    leaders, relays = Leaders(control, 1), LiveRelays(control, urls)
    relays.start_all()
    players = [await LivePlayer.join(control, urls, f"s{number}") for number in range(4)]
    lost: list[str] = []

    def lose(passed: float) -> None:
        if passed > 0.7 * (len(lost) + 1) and len(lost) < 3:
            victim = len(lost) % 2 + 1
            lost.append(f"n{victim + 1}")
            servers[victim].kill()
            servers[victim].restart()

    try:
        await roam(players, 3.0, seed=3, disturb=lose)
        unrest = await rest(players)
    finally:
        await stopped(relays, *players)
        await leaders.stop()
    assert lost == ["n2", "n3", "n2"]
    assert players[0].plan is not None
    epochs = range(players[0].plan.first_epoch, players[0].plan.epoch)
    may_lose = {(region, epoch): True for region in REGIONS for epoch in epochs}
    assert len(epochs) >= len(lost), "each loss begins one"
    # Whether any event was lost is a matter of milliseconds; if so, it was announced.
    assert judged(players, urls, unrest, may_lose) == []


async def test_who_leads_and_cannot_do_what_leaders_do_leaves_it_to_others(redis_server: EmbeddedServer) -> None:
    def broken() -> RedisNodeOperator:
        raise ValueError("numpy.dtype size changed")

    manager = Manager(LeaderControl(redis_server.url), broken, ordering="acyclic")
    standing = asyncio.create_task(manager.run())
    try:
        await until(lambda: manager.leads, 20)
        async with gamecast.connect(redis_server.url, name="healthy") as cast, patience(25):
            await cast.subscribe("forest")
    finally:
        await manager.stop()
        await standing
