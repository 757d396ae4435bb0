"""A network within this process: the pure state machines, without a server. ``memory://NAME``; public, for tests.

Frames take the same steps as over Redis (ingress, links, relays, egress), without the wire.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Any
from urllib.parse import parse_qs, urlsplit

from adapters.leadership import RESUME_S, Seen
from adapters.manager import Manager
from adapters.network import Hidden, Position
from adapters.relay import Relays, RelayTask
from sequencing.cut import Looks, ReadResult
from sequencing.errors import (
    NoLeader,
    SessionExpired,
    Superseded,
    Unreachable,
    UsageError,
    session_expired_message,
    superseded_message,
)
from sequencing.extras import require
from sequencing.frames import FrameKind, LinkedFrame, PublishedFrame, StampedFrame, parse_meta
from sequencing.node import Answer, Node, TransferAnswer
from sequencing.plan import Ordering, Plan
from sequencing.record import Interest, Pair, Record
from sequencing.steps import StepState
from sequencing.transition import Task

NODES_MAX = 64
FAULTS = "gamecast.testing.faults"
"""The name of the publisher whose events are lost, to make gaps."""


class MemoryWorld:
    """The shared state of all connections of one ``memory://NAME``. It lives while any of them is open."""

    def __init__(self, nodes: int, retention_events: int, ordering: Ordering, resume_s: float) -> None:
        self.nodes = {f"n{number}": Node(f"n{number}", retention_events) for number in range(1, nodes + 1)}
        self.incarnation = 0
        """The last incarnation that was assigned."""
        self.newest: dict[str, int] = {}
        """Name → its newest connection, which speaks for it."""
        self.interests: dict[str, Interest] = {}
        self.expected: frozenset[Pair] = frozenset()
        self.probes: dict[str, bytes] = {}
        self.published: frozenset[str] = frozenset()
        self.record: Record | None = None
        self.news: list[Record] = []
        self.told = 0
        self.loop = asyncio.get_running_loop()
        self.users = 0
        self.relays = Relays(self._relay)
        self.faults = MemoryFaults(self)
        self._changed = asyncio.Event()
        self._manager = Manager(MemoryControl(self), partial(MemoryNodeOperator, self), ordering, resume_s=resume_s)
        self._managing = asyncio.create_task(self._manager.run(), name="gamecast manager")

    @property
    def cannot_plan(self) -> ImportError | None:
        """See `Manager.cannot_plan`."""
        return self._manager.cannot_plan

    def changed(self) -> None:
        """Wake all tasks that wait for something to read."""
        self._changed.set()
        self._changed = asyncio.Event()

    def stepped(self, node: Node) -> None:
        """Wake all tasks that wait for the results of a node's step."""
        self.faults.stepped(node)
        self.changed()

    async def change(self, block_ms: int) -> None:
        """Wait for the next change, up to ``block_ms``."""
        try:
            async with asyncio.timeout(block_ms / 1000):
                await self._changed.wait()
        except TimeoutError:
            return

    async def end(self) -> None:
        """Stop all tasks of this world."""
        await self._manager.stop()
        await self._managing
        await self.relays.stop()

    def _relay(self, source: str, target: str, plan: Plan) -> RelayTask:
        return RelayTask(MemoryNode(self, source), MemoryNode(self, target), (source, target))


class MemoryFaults:
    """The injected faults of a world; see `gamecast.testing.faults`.

    Frames are lost where a server loses them: in the stream that subscribers read. The subscribers handle the rest.
    """

    def __init__(self, world: MemoryWorld) -> None:
        self._world = world
        self._disconnected: set[str] = set()
        self._expired: set[int] = set()
        """Expired connections: the network continues without them."""
        self._losing: dict[str, int] = {}
        """Region → how many of its next events must be lost."""
        self._gaps: list[tuple[str, int]] = []
        """Gaps, (region, events) each, that wait for an open ingress; 0 events: only the marker that reveals one."""
        self._seen: dict[tuple[str, int, str], int] = {}
        """Stream (node, epoch, region) → the last number that steps have produced."""

    def gap(self, region: str, events: int) -> None:
        """Lose events that nobody published, at once."""
        self._watch()
        self._gaps.append((region, events))
        self._show_gaps()

    def lose(self, region: str, events: int) -> None:
        """Lose the next events of a region."""
        self._watch()
        self._losing[region] = self._losing.get(region, 0) + events

    def disconnect(self, name: str) -> None:
        """Refuse all requests of a name's connection."""
        self._disconnected.add(name)
        self._world.changed()

    def reconnect(self, name: str) -> None:
        """Accept the requests of a name's connection again."""
        self._disconnected.discard(name)
        self._world.changed()

    def expire(self, name: str) -> None:
        """Continue without a name's connection, which gets an error when it asks for news."""
        world = self._world
        self._expired.add(world.newest.pop(name))
        world.interests.pop(name, None)
        world.told += 1
        world.changed()

    def require_reachable(self, name: str) -> None:
        """Raise `Unreachable` for a connection that is disconnected."""
        if name in self._disconnected:
            raise Unreachable(f"the test disconnected {name!r}: connect it again with faults.reconnect({name!r})")

    def require_known(self, name: str, connection: int) -> None:
        """Raise `Unreachable`, or `SessionExpired` for a connection that has expired."""
        self.require_reachable(name)
        if connection in self._expired:
            raise SessionExpired(session_expired_message(name))

    def stepped(self, node: Node) -> None:
        """Lose the results of a node's step that must be lost."""
        if not self._seen:
            return
        for (epoch, region), stream in node.egress.items():
            seen = self._seen.get((node.name, epoch, region), 0)
            if not stream or stream[-1].last <= seen:
                continue
            self._seen[node.name, epoch, region] = stream[-1].last
            kept = [frame for frame in stream if frame.last <= seen or not self._is_lost(frame)]
            if len(kept) < len(stream):
                stream[:] = kept
        self._show_gaps()

    def _watch(self) -> None:
        """Begin to watch the results of steps."""
        for node in self._world.nodes.values():
            for (epoch, region), stream in node.egress.items():
                if stream:
                    self._seen[node.name, epoch, region] = stream[-1].last
            self._seen.setdefault((node.name, 0, ""), 0)

    def _is_lost(self, frame: StampedFrame) -> bool:
        kind, events, publisher = parse_meta(frame.meta)
        if kind != FrameKind.EVENTS:
            return False
        if publisher == FAULTS:
            return True
        left = self._losing.pop(frame.region, 0)
        if left > events:
            self._losing[frame.region] = left - events
        if left:
            self._gaps.append((frame.region, 0))  # so that its subscribers need not wait for the next event
        return left > 0

    def _show_gaps(self) -> None:
        """Publish the events to lose, and a marker after them, which shows subscribers that something is missing."""
        waiting, self._gaps = self._gaps, []
        for region, events in waiting:
            ingresses = [
                (epoch, node)
                for node in self._world.nodes.values()
                for (epoch, placed), step in node.steps.items()
                if placed == region and step.state is StepState.OPEN
            ]
            if not ingresses:
                self._gaps.append((region, events))
                continue
            epoch, node = max(ingresses, key=lambda each: each[0])
            self._world.incarnation += 1
            incarnation = self._world.incarnation
            marker = PublishedFrame(region, epoch, FAULTS, incarnation, events + 1, 1, b"", FrameKind.JOIN)
            lost = PublishedFrame(region, epoch, FAULTS, incarnation, 1, events, b"")
            node.publish([lost, marker] if events else [marker])
            self._world.stepped(node)


class MemoryControl:
    """The control store in memory. Implements `adapters.leadership.Control`. The only candidate leads."""

    def __init__(self, world: MemoryWorld) -> None:
        self._world = world

    async def look(self, token: str, lease_ms: int) -> Seen | None:
        """See `Control.look`."""
        world = self._world
        plan = world.news[-1].plan if world.news else None
        announced = (plan.epoch, plan.version) if plan is not None else (0, 0)
        nodes = dict.fromkeys(world.nodes, "")
        return Seen(
            *(world.record, dict(world.interests), world.published, announced, str(world.told), nodes),
            expected=len(world.expected),
        )

    async def expected(self) -> frozenset[Pair]:
        """See `Control.expected`."""
        return frozenset(self._world.expected)

    async def keep(self, token: str, lease_ms: int) -> bool:
        """See `Control.keep`."""
        return True

    async def save(self, token: str, record: Record) -> bool:
        """See `Control.save`."""
        self._world.record = record
        return True

    async def announce(self, token: str, record: Record) -> bool:
        """See `Control.announce`."""
        world = self._world
        world.news.append(record)
        world.relays.follow(record)
        world.changed()
        return True

    async def settle(self, token: str, record: Record) -> bool:
        """See `Control.settle`."""
        self._world.record = record.settled()
        return await self.announce(token, record)

    async def incarnations(self) -> tuple[int, frozenset[str]]:
        """See `Control.incarnations`."""
        return self._world.incarnation, frozenset(self._world.newest)

    async def resign(self, token: str) -> None:
        """See `Control.resign`."""

    async def asked(self, after: str, *, block_ms: int) -> None:
        """See `Control.asked`."""
        if str(self._world.told) == after:
            await self._world.change(block_ms)

    async def close(self) -> None:
        """See `Control.close`."""
        self._world.changed()


class MemoryNodeOperator:
    """The nodes in memory. Implements `adapters.leadership.NodeOperator`."""

    def __init__(self, world: MemoryWorld) -> None:
        self._world = world

    emptied: frozenset[str] = frozenset()
    """See `NodeOperator.emptied`."""

    async def runs(self, nodes: Mapping[str, str]) -> Mapping[str, str]:
        """See `NodeOperator.runs`."""
        return nodes

    async def perform(self, task: Task, plan: Plan) -> Any:
        """See `NodeOperator.perform`."""
        node = self._world.nodes[task.node]
        answer = task.perform(node)
        self._world.stepped(node)
        return answer

    async def forget_publishers(self, plan: Plan, upto: int, living: AbstractSet[str]) -> None:
        """See `NodeOperator.forget_publishers`."""
        for node in self._world.nodes.values():
            node.forget_publishers([each for each in node.accepted_of if each[1] not in living], upto)

    async def close(self) -> None:
        """See `NodeOperator.close`."""


_worlds: dict[str, MemoryWorld] = {}


class MemoryNode:
    """One task's access to one node in memory."""

    def __init__(self, world: MemoryWorld, name: str, of: str = "") -> None:
        """``of``: the name of the connection that uses it, empty for a relay."""
        self.name, self._of = name, of
        self._world = world
        self._node = world.nodes[name]
        self._looks = Looks()

    def follow(self, plan: Plan) -> None:
        """See `Lane.follow`."""

    async def publish(self, frames: Sequence[PublishedFrame]) -> list[Answer]:
        """See `Lane.publish`."""
        await asyncio.sleep(0)
        self._world.faults.require_reachable(self._of)
        answers = self._node.publish(frames)
        self._world.stepped(self._node)
        return answers

    async def transfer(self, source: str, frames: Sequence[LinkedFrame]) -> TransferAnswer:
        """See `LinkTarget.transfer`."""
        answer = self._node.transfer(source, frames)
        self._world.stepped(self._node)
        return answer

    async def read(self, after: Mapping[str, Position], *, frames_max: int, block_ms: int | None) -> ReadResult:
        """See `Reader.read`."""
        self._world.faults.require_reachable(self._of)
        streams = {region: epoch for region, (epoch, _) in after.items()}
        found = self._read_now(after, frames_max)
        if not found and block_ms is not None and self._looks.may_wait(streams):
            await self._world.change(block_ms)
            self._world.faults.require_reachable(self._of)
            found = self._read_now(after, frames_max)
        return self._looks.found(streams, found, frames_max)

    async def interrupt(self) -> None:
        """See `Reader.interrupt`."""
        self._world.changed()

    def hidden(self) -> Sequence[Hidden]:
        """See `Reader.hidden`: here it is always empty."""
        return ()

    async def newest(self, streams: Sequence[tuple[str, int]]) -> list[StampedFrame | None]:
        """See `Reader.newest`."""
        self._world.faults.require_reachable(self._of)
        found = (self._node.egress.get((epoch, region)) for region, epoch in streams)
        return [stream[-1] if stream else None for stream in found]

    async def read_link(self, target: str, after: int, *, frames_max: int, block_ms: int) -> list[LinkedFrame]:
        """See `LinkSource.read_link`."""
        link = self._node.links.get(target, [])
        found = [linked for linked in link[: 2 * frames_max] if linked.sequence > after][:frames_max]
        if not found:
            await self._world.change(block_ms)
        return found

    opened = 1
    """See `LinkSource.opened`."""

    async def sent(self, target: str) -> tuple[int, int]:
        """See `LinkSource.sent`."""
        link = self._node.links.get(target, [])
        return self._node.link_last.get(target, 0), link[0].sequence if link else 0

    async def taken(self, source: str) -> int:
        """See `LinkTarget.taken`."""
        return self._node.accepted_from.get(source, 0)

    async def report_loss(self, lost: str) -> None:
        """See `LinkSource.report_loss`: nothing is lost here."""

    async def acknowledge(self, target: str, accepted: int) -> None:
        """See `LinkSource.acknowledge`."""
        self._node.acknowledge(target, accepted)

    async def close(self) -> None:
        """Wake a waiting `read` or `read_link`: it checks again, and its caller sees that it should stop."""
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

    def __init__(self, url: str, *, ordering: Ordering, retention_events: int, resume_s: float = RESUME_S) -> None:
        """``url``: ``memory://NAME`` or ``memory://NAME?nodes=3``; the first to open sets the number of nodes."""
        self.url = url
        parts = urlsplit(url)
        self._world_name = parts.netloc + parts.path
        if not self._world_name:
            raise UsageError(
                "a memory network needs a name, by which other connections of this process find it: memory://NAME"
            )
        self._node_count = parse_node_count(parts.query)
        self._ordering = ordering
        self._retention_events = retention_events
        self._resume_s = resume_s
        self._world: MemoryWorld | None = None
        self._name = ""
        self._connection = 0

    async def open(self) -> None:
        """Join the world of this name, or create it.

        Raises `ExtraMissing` without a planner: no other process could lead.
        """
        require("planner", "a network in memory")
        if self._world_name not in _worlds:
            _worlds[self._world_name] = MemoryWorld(
                self._node_count, self._retention_events, self._ordering, self._resume_s
            )
        world = _worlds[self._world_name]
        if world.loop is not asyncio.get_running_loop():
            raise UsageError(
                f"memory://{self._world_name} belongs to another event loop: open all its connections in the same one"
            )
        self._world = world
        world.users += 1

    async def close(self) -> None:
        """Leave the world; the last connection ends it."""
        world, self._world = self._world, None
        if world is not None:
            world.users -= 1
            if not world.users:
                del _worlds[self._world_name]
                await world.end()

    async def introduce(self, name: str) -> int:
        """See `Network.introduce`."""
        self._name = name
        self._open_world.faults.require_reachable(name)
        self._connection = self._open_world.newest[name] = await self.renew()
        return self._connection

    async def renew(self, after: int = 0) -> int:
        """See `Network.renew`."""
        self._require_known()
        self._open_world.incarnation = max(self._open_world.incarnation, after) + 1
        return self._open_world.incarnation

    async def set_interest(self, interest: Interest, published: frozenset[str]) -> None:
        """See `Network.set_interest`."""
        world = self._open_world
        await self.beat()
        world.interests[self._name] = interest
        world.published |= published
        world.told += 1
        world.changed()

    async def declare_overlaps(self, overlaps: frozenset[Pair]) -> None:
        """See `Network.expect`."""
        self._require_known()
        world = self._open_world
        world.expected |= overlaps
        world.told += 1
        world.changed()

    async def beat(self) -> bool:
        """See `Network.beat`."""
        self._require_known()
        if self._open_world.newest.get(self._name) != self._connection:
            raise Superseded(superseded_message(self._name))
        return False

    async def leave(self) -> None:
        """See `Network.leave`."""
        world = self._open_world
        if world.newest.get(self._name) == self._connection:
            del world.newest[self._name]
            world.interests.pop(self._name, None)

    async def announce_probe(self, name: str, text: bytes) -> None:
        """See `Network.announce_probe`."""
        self._open_world.probes[name] = text

    async def withdraw_probe(self, name: str) -> None:
        """See `Network.withdraw_probe`."""
        self._open_world.probes.pop(name, None)

    async def probe_addresses(self) -> Mapping[str, bytes]:
        """See `Network.probe_addresses`."""
        return dict(self._open_world.probes)

    async def news(self, after: Plan | None, *, block_ms: int) -> list[Record]:
        """See `Network.news`."""
        world = self._open_world
        self._require_known()
        if not self._after(after):
            await world.change(block_ms)
            self._require_known()
        return self._after(after)

    def _after(self, after: Plan | None) -> list[Record]:
        news = self._open_world.news
        if after is None:
            return news[-1:]
        return [r for r in news if (r.plan.epoch, r.plan.version) > (after.epoch, after.version)]

    async def stop_watching(self) -> None:
        """See `Network.stop_watching`."""
        self._open_world.changed()

    async def plans(self, regions: Collection[str], after: int) -> list[Plan]:
        """See `Network.plans`."""
        self._require_known()
        return [record.plan for record in self._open_world.news]

    async def ending(self) -> frozenset[tuple[str, int]]:
        """See `Network.ending`."""
        self._require_known()
        record = self._open_world.record
        return record.ending() if record is not None else frozenset()

    async def no_leader_error(self) -> NoLeader | None:
        """See `Network.no_leader_error`."""
        lacking = self._open_world.cannot_plan
        if lacking is None:
            return None
        return NoLeader(f"no leader can plan the network, so all requests wait: {lacking}")

    async def latest_plan(self) -> Plan | None:
        """See `Network.latest_plan`."""
        self._require_known()
        news = self._open_world.news
        return news[-1].plan if news else None

    def lane(self, node: str, plan: Plan) -> MemoryNode:
        """See `Network.lane`."""
        return MemoryNode(self._open_world, node, self._name)

    def reader(self, node: str, plan: Plan) -> MemoryNode:
        """See `Network.reader`."""
        return MemoryNode(self._open_world, node, self._name)

    def _require_known(self) -> None:
        self._open_world.faults.require_known(self._name, self._connection)

    @property
    def _open_world(self) -> MemoryWorld:
        assert self._world is not None, "the connection opens its network before it uses it"
        return self._world


def world_of(url: str) -> MemoryWorld | None:
    """Return the world of a ``memory://`` URL, None if no connection to it is open."""
    parts = urlsplit(url)
    return _worlds.get(parts.netloc + parts.path)


def parse_node_count(query: str) -> int:
    """Return ``nodes=N`` of a URL's query, 1 if absent; raises `UsageError`."""
    options = parse_qs(query, keep_blank_values=True)
    if unknown := options.keys() - {"nodes"}:
        raise UsageError(f"unknown option in the URL: {', '.join(sorted(unknown))}; only nodes=N is known")
    text = options.get("nodes", ["1"])[-1]
    if not text.isdecimal() or not 1 <= int(text) <= NODES_MAX:
        raise UsageError(f"nodes={text!r}: a network must have 1 to {NODES_MAX} nodes")
    return int(text)
