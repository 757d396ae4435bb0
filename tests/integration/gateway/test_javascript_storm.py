"""The JavaScript client under random cuts, pauses and kills of gateways: nothing lost, nothing twice, one order.

GAMECAST_STORM_S is how long it lasts, and GAMECAST_STORM_SEED the seed.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

import gamecast
from adapters.embedded.ports import free_port
from adapters.embedded.server import EmbeddedServer
from tests.integration.gateway.test_gateway_javascript import CLIENT, node
from tests.patience import patience

STORM_S = float(os.environ.get("GAMECAST_STORM_S", "8"))
SEED = int(os.environ.get("GAMECAST_STORM_SEED", "1"))
CLIENTS, GATEWAYS = 3, 2
REGIONS = "forest", "river"
CHUNK = 1 << 16

PLAYING = """
import { connect } from "%(client)s";
const game = connect(%(urls)s, { name: "js-%(number)s", connectTimeoutMs: Infinity });
const say = (what) => process.stdout.write(JSON.stringify(what) + "\\n");
game.on("error", (error) => say({ error: error.code }));
await game.subscribe(%(regions)s);
let published = 0, open = 0, last = false;
const publish = () => {
  open += 1;
  const id = published++;
  game.publish(%(regions)s[id %% 2], { by: %(number)s, id }).then(
    ({ position }) => say({ receipt: id, position }),
    ({ code, definite }) => say({ refused: id, code, definite }),
  ).finally(() => { open -= 1; if (last && !open) say({ settled: published }); });
};
let publishing;
say({ ready: true });
process.stdin.once("data", () => { publishing = setInterval(publish, 10); });
process.stdin.on("end", () => { clearInterval(publishing); last = true; publish(); });
process.stdin.resume();
for await (const event of game) {
  say("gap" in event ? { gap: event } : { event: [event.region, event.position, event.payload] });
}
"""


class Link:
    """A TCP proxy before a gateway that cuts connections in the middle of a message, and holds bytes back."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.port = 0
        self.cuts = 0
        self._writers: set[asyncio.StreamWriter] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[Link]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            self.cut()

    def cut(self) -> None:
        self.cuts += len(self._writers)
        for writer in self._writers:
            writer.transport.abort()

    async def hold(self, seconds: float) -> None:
        self._flowing.clear()
        await asyncio.sleep(seconds)
        self._flowing.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            there, to = await asyncio.open_connection("127.0.0.1", self.target)
            self._writers.add(to)
            try:
                with suppress(OSError):
                    await asyncio.gather(self._carry(reader, to), self._carry(there, writer))
            finally:
                self._writers.discard(to)
                to.transport.abort()
        except OSError:
            pass
        finally:
            self._writers.discard(writer)
            writer.transport.abort()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(CHUNK):
            await self._flowing.wait()
            writer.write(chunk)
            await writer.drain()
        raise ConnectionResetError


@asynccontextmanager
async def gateway(url: str, port: int) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gamecast", "gateway", url, "--port", str(port)), stderr=asyncio.subprocess.DEVNULL
    )
    try:
        async with patience(60):
            while True:
                with suppress(OSError):
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                    writer.close()
                    break
                assert process.returncode is None, "the gateway ended"
                await asyncio.sleep(0.05)
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def storm(
    links: list[Link],
    url: str,
    ports: list[int],
    random: Random,
    counts: Counter[str],
    events: dict[str, asyncio.Event],
) -> None:
    """Disturb for as long as asked; then everything runs."""
    loop = asyncio.get_running_loop()
    async with AsyncExitStack() as stack:
        running = [await stack.enter_async_context(gateway(url, port)) for port in ports]
        await events["ready"].wait()
        until = loop.time() + STORM_S
        while loop.time() < until:
            await asyncio.sleep(random.uniform(0.05, 0.6))
            place = random.randrange(GATEWAYS)
            match random.choice(("cut", "cut", "cut all", "hold", "kill", "stop")):
                case "cut":
                    links[place].cut()
                    counts["cuts"] += 1
                case "cut all":
                    for link in links:
                        link.cut()
                    counts["cuts"] += 1
                case "hold":
                    await links[place].hold(random.uniform(0.1, 2.0))
                    counts["pauses"] += 1
                case "kill":
                    running[place].send_signal(signal.SIGKILL)
                    await running[place].wait()
                    counts["kills"] += 1
                    running[place] = await stack.enter_async_context(gateway(url, ports[place]))
                case _:
                    running[place].send_signal(signal.SIGTERM)
                    async with patience(60):
                        await running[place].wait()
                    counts["stops"] += 1
                    running[place] = await stack.enter_async_context(gateway(url, ports[place]))
        events["over"].set()
        await asyncio.Event().wait()


class Player:
    """A client in a process of its own, and what it said."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.events: list[tuple[str, str, int, int]] = []
        self.receipts: dict[int, str] = {}
        self.refused: list[dict[str, Any]] = []
        self.gaps: list[Any] = []
        self.errors: Counter[str] = Counter()
        self.settled: int | None = None
        self.ready = asyncio.Event()
        self.settled_down = asyncio.Event()
        self.ended = asyncio.Event()
        """Whether it has the judge's last event of each region."""

    async def listen(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            said = json.loads(line)
            match said:
                case {"event": [region, position, {"by": by, "id": number}]}:
                    self.events.append((region, position, by, number))
                    if sum(each[2] == -1 for each in self.events[-2:]) == len(REGIONS):
                        self.ended.set()
                case {"receipt": number, "position": position}:
                    self.receipts[number] = position
                case {"refused": _}:
                    self.refused.append(said)
                case {"gap": gap}:
                    self.gaps.append(gap)
                case {"error": code}:
                    self.errors[code] += 1
                case {"ready": _}:
                    self.ready.set()
                case {"settled": count}:
                    self.settled = count
                    self.settled_down.set()


@pytest.mark.timeout(int(STORM_S * 3 + 300))
async def test_a_storm_loses_nothing_repeats_nothing_and_keeps_one_order(
    shared_redis: EmbeddedServer, tmp_path: Path
) -> None:
    random = Random(SEED)
    counts: Counter[str] = Counter()
    ports = [free_port() for _ in range(GATEWAYS)]
    players = [Player(number) for number in range(CLIENTS)]
    seen: list[tuple[str, str, int, int]] = []
    events = {name: asyncio.Event() for name in ("ready", "over", "looked")}
    async with AsyncExitStack() as stack:
        links = [await stack.enter_async_context(Link(port).listening()) for port in ports]
        judge = await stack.enter_async_context(gamecast.connect(shared_redis.url, name="storm-judge"))
        await judge.subscribe(*REGIONS)

        async def look() -> None:
            async for item in judge:
                assert isinstance(item, gamecast.Event)
                seen.append((item.region, item.position, item.payload["by"], item.payload["id"]))
                if sum(each[2] == -1 for each in seen[-2:]) == len(REGIONS):
                    events["looked"].set()

        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        background = [
            tasks.create_task(look()),
            tasks.create_task(storm(links, shared_redis.url, ports, random, counts, events)),
        ]
        processes = []
        try:
            urls = json.dumps([f"http://127.0.0.1:{link.port}" for link in links])
            for player in players:
                script = tmp_path / f"player-{player.number}.mjs"
                values = {"client": (CLIENT / "gamecast.js").as_uri(), "number": player.number, "urls": urls}
                script.write_text(PLAYING % {**values, "regions": json.dumps(REGIONS)})
                process = await asyncio.create_subprocess_exec(
                    *node(),
                    str(script),
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    limit=1 << 24,
                )
                processes.append(process)
                background.append(tasks.create_task(player.listen(process)))
            async with patience(STORM_S * 2 + 120):
                for player in players:
                    await player.ready.wait()
                for process in processes:
                    assert process.stdin is not None
                    process.stdin.write(b"publish")
                events["ready"].set()
                await events["over"].wait()
                for process in processes:
                    assert process.stdin is not None
                    process.stdin.close()
                for player in players:
                    await player.settled_down.wait()
                # One more event, of the judge's: what is before it has come.
                receipts = [await judge.publish(region, {"by": -1, "id": n}) for n, region in enumerate(REGIONS)]
                for player in players:
                    await player.ended.wait()
                await events["looked"].wait()
                assert len(receipts) == 2
        finally:
            for process in processes:
                with suppress(ProcessLookupError):
                    process.kill()
            for task in background:
                task.cancel()
    said = f"seed {SEED}, {STORM_S:.0f} s: {dict(counts)}, {len(seen)} events"
    print(said, {player.number: dict(player.errors) for player in players})
    assert counts["cuts"] + counts["pauses"] + counts["kills"] + counts["stops"] >= min(5, STORM_S / 2), said
    published = Counter(event[2:] for event in seen)
    assert max(published.values()) == 1, (said, [each for each, n in published.items() if n > 1][:5])
    positions = {event[2:]: event[1] for event in seen}
    for player in players:
        assert not player.gaps, (said, player.gaps[:3])
        assert player.events == seen, (said, player.number, _difference(player.events, seen))
        assert not [each for each in player.refused if each["definite"]], (said, player.refused[:3])
        for number, position in player.receipts.items():
            assert positions[player.number, number] == position, said
        assert player.settled == len(player.receipts) + len(player.refused), said
    assert sum(len(player.refused) for player in players) <= len(seen) * 0.05, said


def _difference(mine: list[Any], theirs: list[Any]) -> Any:
    return next(
        ((place, one, other) for place, (one, other) in enumerate(zip(mine, theirs, strict=False)) if one != other),
        (len(mine), len(theirs)),
    )


HUNG_UP = """
import { connect } from "%(client)s";
const game = connect("%(url)s", { name: "js", connectTimeoutMs: 800 });
console.log(await game.subscribe("forest").catch(({ code }) => code));
game.close();
"""


async def test_node_goes_on_where_a_server_hangs_up_before_the_handshake(tmp_path: Path) -> None:
    async with Link(free_port()).listening() as link:  # nothing listens behind it
        script = tmp_path / "hung-up.mjs"
        script.write_text(
            HUNG_UP % {"client": (CLIENT / "gamecast.js").as_uri(), "url": f"http://127.0.0.1:{link.port}"}
        )
        process = await asyncio.create_subprocess_exec(*node(), str(script), stdout=asyncio.subprocess.PIPE)
        async with patience(30):
            out, _ = await process.communicate()
    assert (process.returncode, out.decode().strip()) == (0, "unreachable")
