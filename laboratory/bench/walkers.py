"""Live events of servers that walk, and beside a replay: how long they take from publishing to the server's tick."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from itertools import product
from random import Random
from typing import Any

from rich import box
from rich.console import Group
from rich.table import Table

import gamecast
from laboratory.bench.figures import percentile

SIDE = 12
BLOCK = 3
WALKERS = 2
STEP_S = 0.25
TICK_S = 0.05
RATE = 1_000
"""Events/s, to random cells."""

REPLAYED = 10_000
BESIDE: Sequence[str] = ("nothing", "joins", "replays")
"""What goes on beside the live events: joins, over and over, without history and with it."""

REPLAY_S = 3.0
TAKE_MAX = 100_000
NEVER_NS = 1 << 62

Cell = tuple[int, int]
CELLS: Sequence[Cell] = [(x, y) for x in range(SIDE) for y in range(SIDE)]


def measure_walkers(seconds: float, begin: Callable[[str], None]) -> dict[str, Any]:
    """Return the delays of live events in ms, of servers that walk for ``seconds`` in each trial, and of a replay."""
    walks: list[dict[str, Any]] = []
    for nodes, history in product((1, 3), (False, True)):
        begin(f"nodes: {nodes}")
        walks.append({"nodes": nodes, "history": history, **asyncio.run(_walk(nodes, seconds, history=history))})
    replays: list[dict[str, Any]] = []
    for nodes, what in product((1, 3), BESIDE):
        begin(f"{what}: {nodes}")
        replays.append({"nodes": nodes, "beside": what, **asyncio.run(_replay(nodes, what))})
    return {"walks": walks, "replays": replays}


def _name(cell: Cell) -> str:
    return f"cell:{cell[0]}:{cell[1]}"


def _block(x: int, y: int) -> set[str]:
    return {_name((x + right, y + down)) for right, down in product(range(BLOCK), repeat=2)}


async def _publish(cast: gamecast.Client, cells: Sequence[Cell], rate: float) -> None:
    random, began, number = Random(1), time.perf_counter(), 0
    while True:
        cast.publish_nowait(_name(random.choice(cells)), time.time_ns())
        number += 1
        await asyncio.sleep(max(0.0, began + number / rate - time.perf_counter()))


class _Server:
    """Takes events at its ticks, and notes how old the live ones are: those published after it was in."""

    def __init__(self, cast: gamecast.Client, tick_s: float) -> None:
        self.cast, self._tick_s = cast, tick_s
        self.since_ns: dict[str, int] = {}
        self.delays_ms: list[float] = []
        self.joins_ms: list[float] = []

    async def run(self) -> None:
        next_s = time.perf_counter()
        while True:
            next_s += self._tick_s
            await asyncio.sleep(max(0.0, next_s - time.perf_counter()))
            # In a tick, all that there is: one call ends where a replay does.
            while events := await self.cast.fetch(TAKE_MAX if self._tick_s else 1, 0.0 if self._tick_s else None):
                self._note(events)
                if not self._tick_s:
                    break

    def _note(self, events: Sequence[gamecast.Item]) -> None:
        now_ns = time.time_ns()
        for event in events:
            if isinstance(event, gamecast.Event) and event.sent_at_ns > self.since_ns.get(event.region, NEVER_NS):
                self.delays_ms.append((now_ns - event.sent_at_ns) / 1e6)

    async def turn_to(self, wanted: set[str], *, history: bool) -> None:
        have = self.since_ns.keys()
        if left := have - wanted:
            await self.cast.unsubscribe(*left)
            for region in left:
                del self.since_ns[region]
        if new := wanted - have:
            began = time.perf_counter()
            await (self.cast.subscribe(*new, since=0, order="any") if history else self.cast.subscribe(*new))
            self.joins_ms.append((time.perf_counter() - began) * 1000)
            self.since_ns.update(dict.fromkeys(new, time.time_ns()))


async def _walk(nodes: int, seconds: float, *, history: bool) -> dict[str, float]:
    random = Random(2)

    async def walk(server: _Server) -> None:
        x, y = random.randrange(SIDE - BLOCK), random.randrange(SIDE - BLOCK)
        while True:
            await server.turn_to(_block(x, y), history=history)
            await asyncio.sleep(STEP_S)
            right, down = random.choice(((1, 0), (-1, 0), (0, 1), (0, -1)))
            x, y = min(max(x + right, 0), SIDE - BLOCK), min(max(y + down, 0), SIDE - BLOCK)

    async with gamecast.share(f"embedded://?nodes={nodes}") as network, AsyncExitStack() as stack:
        publisher = await stack.enter_async_context(network.connect(name="publisher"))
        casts = [await stack.enter_async_context(network.connect(name=f"server-{n}")) for n in range(WALKERS)]
        servers = [_Server(cast, TICK_S) for cast in casts]
        await _for(
            seconds, _publish(publisher, CELLS, RATE), *(server.run() for server in servers), *map(walk, servers)
        )
    joins_ms = sorted(ms for server in servers for ms in server.joins_ms)
    return _percentiles(sorted(ms for server in servers for ms in server.delays_ms)) | {
        "joins": len(joins_ms),
        "join_p50_ms": percentile(joins_ms, 50),
    }


async def _replay(nodes: int, beside: str) -> dict[str, float]:
    live, past = CELLS[:30], "past"
    async with gamecast.share(f"embedded://?nodes={nodes}") as network, AsyncExitStack() as stack:
        publisher = await stack.enter_async_context(network.connect(name="publisher"))
        cast = await stack.enter_async_context(network.connect(name="server"))
        await publisher.publish_batch([(past, number) for number in range(REPLAYED)])
        server = _Server(cast, 0.0)
        await server.turn_to(set(map(_name, live)), history=False)

        caught_up = asyncio.Event()
        cast.on_caught_up(lambda _: caught_up.set())

        async def look_back() -> None:
            while True:
                await asyncio.sleep(REPLAY_S / 10)
                if beside == "nothing":
                    continue
                if beside == "replays":
                    await cast.subscribe(past, since=0)
                    await caught_up.wait()
                    caught_up.clear()
                else:
                    await cast.subscribe(past)
                await cast.unsubscribe(past)

        await _for(REPLAY_S, _publish(publisher, live, RATE), server.run(), look_back())
    return _percentiles(sorted(server.delays_ms))


async def _for(seconds: float, *running: Any) -> None:
    """Run some endless tasks for a while; raises what one of them raises."""
    tasks = [asyncio.ensure_future(each) for each in running]
    done, left = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
    for task in done:
        task.result()


def _percentiles(ordered: Sequence[float]) -> dict[str, float]:
    return {"events": len(ordered), "p50_ms": percentile(ordered, 50), "p99_ms": percentile(ordered, 99)}


def walkers_report(result: Mapping[str, Any]) -> Group:
    """Two tables of 80 columns, and what they say."""
    walks = _table(f"{WALKERS} servers that walk", "nodes", "history", "live p50, ms", "p99", "a join, ms")
    for each in result["walks"]:
        walks.add_row(
            str(each["nodes"]),
            "yes" if each["history"] else "no",
            *(f"{each[key]:,.1f}" for key in ("p50_ms", "p99_ms", "join_p50_ms")),
        )
    replays = _table(
        f"live events beside joins, and replays of {REPLAYED:,} events", "nodes", "beside", "live p50, ms", "p99"
    )
    for each in result["replays"]:
        replays.add_row(str(each["nodes"]), each["beside"], *(f"{each[key]:,.2f}" for key in ("p50_ms", "p99_ms")))
    return Group(
        walks,
        f"Blocks of {BLOCK} x {BLOCK} of {SIDE} x {SIDE} cells move every {STEP_S:g} s; {RATE:,} events/s; "
        f"servers take\nevents every {TICK_S * 1000:g} ms.",
        replays,
        f"{RATE:,} events/s of 30 regions, in a server that takes events as they come, and joins another region and\n"
        "leaves it over and over.",
    )


def _table(title: str, *headings: str) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE, padding=(0, 1, 0, 0))
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    return table
