"""What several nodes bring a world whose servers shoot, trade and hand over across borders, beside one node."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from random import Random
from threading import Event as Flag
from threading import Thread
from typing import Any

from redis.asyncio import Redis
from rich import box
from rich.console import Group
from rich.table import Table

import gamecast
from adapters.embedded.network import EmbeddedNetwork
from adapters.redis.leadercontrol import LeaderControl
from adapters.redis.running import apply, look
from laboratory.bench.campaign import versions
from laboratory.bench.figures import percentiles
from placement.replanning import Replanning, replanned

SERVERS = 3
BATCH = 300
"""Events that a server has under way at full speed."""
BORDER_RATE = 0.1
"""Events over each border, where a cell has one."""
MEASURED_S = 2.0
HANDOVERS = 400
TICK_S = 0.001


@dataclass(frozen=True, slots=True)
class Borders:
    """A square world of ``side`` × ``side`` cells in three columns of servers.

    ``sees``: whether each server also has the first cells beyond its borders; ``share``: of a core that each
    redis-server may use.
    """

    side: int = 6
    sees: bool = False
    share: float = 0.06

    def cell(self, column: int, row: int) -> str:
        """Name a cell."""
        return f"cell:{column}:{row}"

    def own(self, server: int) -> list[str]:
        """Return the cells of a server."""
        return self._cells(server * self.side // SERVERS, (server + 1) * self.side // SERVERS)

    def seen(self, server: int) -> list[str]:
        """Return the cells that a server has."""
        first, last = server * self.side // SERVERS, (server + 1) * self.side // SERVERS
        return self._cells(max(0, first - self.sees), min(self.side, last + self.sees))

    def borders(self) -> list[tuple[str, str]]:
        """Return the cells that touch."""
        places = [(column, row) for column in range(self.side) for row in range(self.side)]
        steps = [(here, (here[0] + right, here[1] + 1 - right)) for here in places for right in (0, 1)]
        return [(self.cell(*here), self.cell(*there)) for here, there in steps if max(there) < self.side]

    def _cells(self, first: int, last: int) -> list[str]:
        return [self.cell(column, row) for column in range(first, last) for row in range(self.side)]


def measure_borders(world: Borders, nodes: int, *, seconds: float, begin: Callable[[str], None]) -> dict[str, Any]:
    """Measure a world on one node, and on several; return what ``gamecast bench borders --json`` prints."""
    found: dict[str, Any] = {}
    for count in (1, nodes):
        begin(f"{count} node{'s' if count > 1 else ''}")
        found[str(count)] = asyncio.run(_measured(world, count, seconds))
    one, several = (found[str(count)]["events_per_s"] for count in (1, nodes))
    return {"world": asdict(world), "nodes": found, "gain": several / one, "versions": versions()}


async def _measured(world: Borders, nodes: int, seconds: float) -> dict[str, Any]:
    async with AsyncExitStack() as stack:
        network = EmbeddedNetwork(f"embedded://?nodes={nodes}", ordering="acyclic", retention_events=10_000)
        await network.open()
        stack.push_async_callback(network.close)
        network.stand(LeaderControl(network.url))
        servers = [
            await stack.enter_async_context(gamecast.connect(network.url, name=f"s{number}"))
            for number in range(SERVERS)
        ]
        await asyncio.gather(*(server.subscribe(*world.seen(number)) for number, server in enumerate(servers)))
        await servers[0].declare_joint(world.borders())
        readers = [asyncio.create_task(_read(server)) for server in servers]
        if nodes > 1:
            await _replanned(network.url, partial(_at_full_speed, world, servers))
        plan = await servers[0].plan()
        assert plan is not None
        urls = {name: url or network.url for name, url in plan.nodes.items()} or {"n1": network.url}
        async with _held(urls, world.share):
            await _at_full_speed(world, servers, 1.0)
            before, began = await _cpu_s(urls), time.monotonic()
            events = await _at_full_speed(world, servers, seconds)
            took, after = time.monotonic() - began, await _cpu_s(urls)
        regions = [region for number in range(SERVERS) for region in world.own(number)]
        entry = {region: plan.paths[region][0] if plan.paths else "n1" for region in regions}
        within, over = await _handovers(world, servers[0], entry)
        for reader in readers:
            reader.cancel()
        return {
            "events_per_s": events / took,
            "cpu_us_per_event": {name: (after[name] - before[name]) / events * 1e6 for name in urls},
            "ingresses": dict(sorted(Counter(entry.values()).items())),
            "handover_ms": {
                where: percentiles(ms) if ms else None for where, ms in (("within", within), ("over", over))
            },
        }


async def _read(server: gamecast.Client) -> None:
    async for item in server:
        assert isinstance(item, gamecast.Event), item


async def _at_full_speed(world: Borders, servers: Sequence[gamecast.Client], seconds: float) -> int:
    """Publish for some seconds from all servers; return how many events they had receipts of."""
    until, borders = time.monotonic() + seconds, world.borders()

    async def publish(number: int) -> int:
        server, random, own = servers[number], Random(number), world.own(number)
        mine = [each for each in borders if each[0] in own]
        of_borders = len(mine) * BORDER_RATE / (len(own) + len(mine) * BORDER_RATE)
        told = 0
        while time.monotonic() < until:
            regions = [
                random.choice(mine) if random.random() < of_borders else random.choice(own) for _ in range(BATCH)
            ]
            await asyncio.gather(*(server.publish(region, {"n": told}) for region in regions))
            told += BATCH
        return told

    return sum(await asyncio.gather(*map(publish, range(len(servers)))))


async def _replanned(url: str, traffic: Callable[[float], Any]) -> None:
    """Have a network go over to the plan that `gamecast plan improve URL --apply` makes."""
    busy = asyncio.ensure_future(traffic(MEASURED_S + 1))
    running = await look(url, seconds=MEASURED_S)
    await busy
    network = Replanning(running.plan, running.membership, rates=running.rates, nodes=running.nodes)
    for move in replanned(network).moves:
        await apply(url, move)


async def _handovers(
    world: Borders, server: gamecast.Client, entry: Mapping[str, str]
) -> tuple[list[float], list[float]]:
    """Hand over across borders, one at a time; return ms of those within a node, and of those over two."""
    random, found = Random(1), (list[float](), list[float]())
    for number in range(HANDOVERS):
        here, there = random.choice(world.borders())
        key = f"walker {number}"
        taken = await server.publish(here, {}, key=key, only_if=None)
        began = time.perf_counter()
        await server.publish((here, there), {}, key=key, only_if={(here, key): taken.position, (there, key): None})
        found[entry[here] != entry[there]].append((time.perf_counter() - began) * 1000)
        await server.publish((here, there), None, key=key)
    return found


async def _cpu_s(urls: Mapping[str, str]) -> dict[str, float]:
    found = {}
    for name, url in urls.items():
        async with Redis.from_url(url) as redis:
            used = await redis.info("cpu")
        found[name] = float(used["used_cpu_user"]) + float(used["used_cpu_sys"])
    return found


@asynccontextmanager
async def _held(urls: Mapping[str, str], share: float) -> AsyncIterator[None]:
    """Hold each redis-server to a share of a core: it is stopped while it has used more."""
    ended, threads = Flag(), list[Thread]()
    for url in urls.values():
        async with Redis.from_url(url) as redis:
            process = int((await redis.info("server"))["process_id"])
        threads.append(Thread(target=_hold, args=(process, share, ended), daemon=True))
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def _hold(process: int, share: float, ended: Flag) -> None:
    allowed, last = _ran_s(process), time.monotonic()
    while not ended.is_set():
        now, ran = time.monotonic(), _ran_s(process)
        allowed, last = min(allowed + (now - last) * share, ran + TICK_S), now
        if ran > allowed:
            os.kill(process, signal.SIGSTOP)
            time.sleep(max(TICK_S, (ran - allowed) / share))
            os.kill(process, signal.SIGCONT)
        else:
            time.sleep(TICK_S)


def _ran_s(process: int) -> float:
    """Return the seconds of CPU that a process has had, all threads of it."""
    threads = Path(f"/proc/{process}/task").iterdir()
    return sum(int((each / "schedstat").read_text().split()[0]) for each in threads) / 1e9


def report(result: Mapping[str, Any]) -> Group:
    """A table, and what its columns mean."""
    table = Table(box=box.SIMPLE, padding=(0, 1, 0, 0))
    headings = ("\nnodes", "events\nper s", "CPU µs an event,\nbusiest Redis", "regions that\nbegin there")
    for heading in (*headings, "handover in a\nnode, p50 / p99 ms", "over two,\np50 / p99 ms"):
        table.add_column(heading, justify="right")
    for nodes, found in result["nodes"].items():
        table.add_row(
            nodes,
            f"{found['events_per_s']:,.0f}",
            f"{max(found['cpu_us_per_event'].values()):.1f}",
            " / ".join(map(str, found["ingresses"].values())),
            *(
                f"{ms['p50']:.2f} / {ms['p99']:.2f}" if (ms := found["handover_ms"][where]) else ""
                for where in ("within", "over")
            ),
        )
    world = result["world"]
    cells = f"{world['side']} × {world['side']} cells in three servers"
    note = (
        f"{cells}, an event a cell and {BORDER_RATE} a border, as fast as\n"
        f"redis-servers with {world['share']:.0%} of a core each take them: {result['gain']:.2f} times as many on\n"
        "several nodes. Handovers one by one, without that limit."
    )
    return Group(table, note)
