"""A network within this process: the pure state machines, run as they are. ``memory://NAME``; public, for tests.

Frames take the same steps as over Redis (ingress, links, relays, egress); only the wire is missing.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import parse_qs, urlsplit

from adapters.network import Position
from adapters.relay import Relays, RelayTask
from sequencing.errors import GamecastError, UsageError
from sequencing.frames import PublishedFrame, StampedFrame
from sequencing.node import Answer, LinkedFrame, Node, TransferAnswer
from sequencing.plan import Ordering, Plan
from sequencing.roster import Roster

NODES_MAX = 64


class MemoryWorld:
    """What the connections of one ``memory://NAME`` share. It lives while any of them is open."""

    def __init__(self, nodes: int, retention_events: int) -> None:
        self.nodes = {f"n{number}": Node(f"n{number}", retention_events) for number in range(1, nodes + 1)}
        self.roster = Roster(ttl_ms=2**62)
        self.plan: Plan | None = None
        self.loop = asyncio.get_running_loop()
        self.users = 0
        self.relays = Relays(self._relay)
        self._changed = asyncio.Event()

    def changed(self) -> None:
        """Wake whoever waits for something to read."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def change(self, block_ms: int) -> None:
        """Wait for the next change, up to ``block_ms``."""
        try:
            async with asyncio.timeout(block_ms / 1000):
                await self._changed.wait()
        except TimeoutError:
            return

    def _relay(self, source: str, target: str, plan: Plan) -> RelayTask:
        return RelayTask(MemoryNode(self, source), MemoryNode(self, target))


_worlds: dict[str, MemoryWorld] = {}


class MemoryNode:
    """One task's way to one node in memory."""

    def __init__(self, world: MemoryWorld, name: str) -> None:
        self.name = name
        self._world = world
        self._node = world.nodes[name]

    async def publish(self, frames: Sequence[PublishedFrame]) -> list[Answer]:
        """See `Lane.publish`."""
        await asyncio.sleep(0)
        answers = self._node.publish(frames)
        self._world.changed()
        return answers

    async def transfer(self, source: str, frames: Sequence[LinkedFrame]) -> TransferAnswer:
        """See `LinkTarget.transfer`."""
        answer = self._node.transfer(source, frames)
        self._world.changed()
        return answer

    async def read(self, after: Mapping[str, Position], *, frames_max: int, block_ms: int) -> list[StampedFrame]:
        """See `Reader.read`."""
        found = self._read_now(after, frames_max)
        if not found:
            await self._world.change(block_ms)
            found = self._read_now(after, frames_max)
        return found

    async def read_link(self, target: str, after: int, *, frames_max: int, block_ms: int) -> list[LinkedFrame]:
        """See `LinkSource.read_link`."""
        link = self._node.links.get(target, [])
        found = [linked for linked in link[: 2 * frames_max] if linked.sequence > after][:frames_max]
        if not found:
            await self._world.change(block_ms)
        return found

    async def acknowledge(self, target: str, accepted: int) -> None:
        """See `LinkSource.acknowledge`."""
        self._node.acknowledge(target, accepted)

    async def close(self) -> None:
        """Wake what waits in `read` or `read_link`: it looks again, and its caller sees that it should stop."""
        self._world.changed()

    def _read_now(self, after: Mapping[str, Position], frames_max: int) -> list[StampedFrame]:
        found: list[StampedFrame] = []
        for region, position in after.items():
            stream = self._node.egress.get((position[0], region), [])
            start = bisect_right(stream, position[1], key=lambda frame: frame.last)
            found += stream[start : start + frames_max]
        return found


class MemoryNetwork:
    """One connection's view of a network in this process. Implements `adapters.network.Network`."""

    def __init__(self, url: str, *, ordering: Ordering, retention_events: int) -> None:
        """``url``: ``memory://NAME`` or ``memory://NAME?nodes=3``; the first to open decides how many nodes."""
        self.url = url
        parts = urlsplit(url)
        self._world_name = parts.netloc + parts.path
        if not self._world_name:
            raise UsageError("a memory network has a name, by which others in this process find it: memory://NAME")
        self._node_count = parse_node_count(parts.query)
        self._ordering = ordering
        self._retention_events = retention_events
        self._world: MemoryWorld | None = None
        self._name = ""
        self._incarnation = 0

    async def open(self) -> None:
        """Join the world of this name, or begin it."""
        if self._world_name not in _worlds:
            _worlds[self._world_name] = MemoryWorld(self._node_count, self._retention_events)
        world = _worlds[self._world_name]
        if world.loop is not asyncio.get_running_loop():
            raise UsageError(f"{self.url} belongs to another event loop: all its connections live in one")
        self._world = world
        world.users += 1

    async def close(self) -> None:
        """Leave the world; the last to leave ends it."""
        world, self._world = self._world, None
        if world is not None:
            world.users -= 1
            if not world.users:
                del _worlds[self._world_name]
                await world.relays.stop()

    async def introduce(self, name: str) -> int:
        """See `Network.introduce`."""
        self._name = name
        self._incarnation = self._open_world.roster.introduce(name, _now_ms())
        return self._incarnation

    async def renew(self) -> int:
        """See `Network.renew`."""
        self._incarnation = self._open_world.roster.renew(self._name, self._incarnation, _now_ms())
        return self._incarnation

    async def subscribe(self, regions: Iterable[str]) -> int:
        """See `Network.subscribe`."""
        return self._open_world.roster.subscribe(self._name, self._incarnation, regions, _now_ms())

    async def unsubscribe(self, regions: Iterable[str]) -> bool:
        """See `Network.unsubscribe`."""
        return self._open_world.roster.unsubscribe(self._name, self._incarnation, regions)

    async def subscribed(self) -> frozenset[str]:
        """See `Network.subscribed`."""
        return self._open_world.roster.subscribed(self._name, self._incarnation)

    async def beat(self) -> None:
        """See `Network.beat`."""
        self._open_world.roster.beat(self._name, self._incarnation, _now_ms())

    async def leave(self) -> None:
        """See `Network.leave`."""
        self._open_world.roster.leave(self._name, self._incarnation)

    async def settle(self, regions: Iterable[str]) -> Plan:
        """See `Network.settle`."""
        world, wanted = self._open_world, frozenset(regions)
        world.roster.publishing(self._name, self._incarnation)
        epoch, members = world.roster.settle(_now_ms())
        plan = world.plan
        if plan is None or plan.epoch < epoch:
            try:
                from adapters.planning import plan_epoch

                nodes = dict.fromkeys(world.nodes, "")
                plan = plan_epoch(members, wanted, nodes, epoch=epoch, ordering=self._ordering, before=plan)
            except GamecastError:
                world.roster.reopen()
                raise
        elif missing := wanted - plan.paths.keys():
            plan = plan.with_regions(missing)
        if plan is not world.plan:
            for node in world.nodes.values():
                node.install(plan.epoch, plan.version, plan.steps(node.name))
            world.plan = plan
            world.relays.follow(plan)
            world.changed()
        return plan

    async def plan_since(self, epoch: int, *, block_ms: int) -> Plan | None:
        """See `Network.plan_since`."""
        world = self._open_world
        if world.plan is None or world.plan.epoch < epoch:
            await world.change(block_ms)
        return world.plan if world.plan is not None and world.plan.epoch >= epoch else None

    async def stop_watching(self) -> None:
        """See `Network.stop_watching`."""
        self._open_world.changed()

    async def latest_plan(self) -> Plan | None:
        """See `Network.latest_plan`."""
        return self._open_world.plan

    def lane(self, node: str, plan: Plan) -> MemoryNode:
        """See `Network.lane`."""
        return MemoryNode(self._open_world, node)

    def reader(self, node: str, plan: Plan) -> MemoryNode:
        """See `Network.reader`."""
        return MemoryNode(self._open_world, node)

    @property
    def _open_world(self) -> MemoryWorld:
        assert self._world is not None, "the connection opens its network before it uses it"
        return self._world


def parse_node_count(query: str) -> int:
    """Return ``nodes=N`` of a URL's query, 1 when absent; raises `UsageError`."""
    options = parse_qs(query, keep_blank_values=True)
    if unknown := options.keys() - {"nodes"}:
        raise UsageError(f"unknown option in the URL: {', '.join(sorted(unknown))}; there is only nodes=N")
    text = options.get("nodes", ["1"])[-1]
    if not text.isdecimal() or not 1 <= int(text) <= NODES_MAX:
        raise UsageError(f"nodes={text!r}: a network has 1 to {NODES_MAX} nodes")
    return int(text)


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
