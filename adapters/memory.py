"""A network within this process: the pure state machines, without a server. ``memory://NAME``; public, for tests.

Frames take the same steps as over Redis (ingress, links, relays, egress), without the wire.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from urllib.parse import parse_qs, urlsplit

from adapters.leadership import RESUME_S
from adapters.memorypresence import MemoryPresence
from adapters.memoryupdates import MemoryUpdates
from adapters.memoryworld import MemoryNode, MemoryWorld
from adapters.network import Forgotten, Sender, UpdateUser
from sequencing.errors import (
    NoLeader,
    Superseded,
    UsageError,
    superseded_message,
)
from sequencing.extras import require
from sequencing.plan import Ordering, Plan
from sequencing.record import Pair, Record, Request
from sequencing.store import ControlStore, Heard, number_of

NODES_MAX = 64


_worlds: dict[str, MemoryWorld] = {}


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
        self._said = 0
        """Up to which ``said`` the network knows what the connection wants."""

    async def open(self) -> None:
        """Join the world of this name, or create it.

        Raises `ExtraMissing` for several nodes without a planner: no other process could lead.
        """
        if self._node_count > 1:
            require("planner", "a network of several nodes in memory")
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
        self._connection = self._store.introduce(name, self._open_world.now_ms)
        self._open_world.changed()
        return self._connection

    async def renew(self, after: int = 0) -> int:
        """See `Network.renew`."""
        self._require_known()
        renewed = self._store.renew(self._name, self._connection, after)
        if renewed is None:
            raise Superseded(superseded_message(self._name))
        return renewed

    async def join(self, request: Request) -> bool:
        """See `Network.join`."""
        self._require_known()
        answer = self._heard(self._store.join(self._name, request, self._open_world.now_ms))
        if answer is Heard.BACK:
            raise Forgotten
        self._said = request.said
        self._open_world.changed()
        return answer is Heard.OK

    async def place(self, regions: frozenset[str]) -> None:
        """See `Network.place`."""
        self._require_known()
        self._heard(self._store.place(self._name, self._connection, regions, self._open_world.now_ms))
        self._open_world.changed()

    async def declare_overlaps(self, overlaps: frozenset[Pair]) -> None:
        """See `Network.declare_overlaps`."""
        self._require_known()
        self._store.expect(overlaps)
        self._open_world.changed()

    async def beat(self, *, at_once: bool = True, doing: str = "") -> bool:
        """See `Network.beat`."""
        self._require_known()
        answer = self._store.beat(self._name, self._connection, self._said, self._open_world.now_ms)
        return self._heard(answer) is Heard.BACK

    async def leave(self) -> None:
        """See `Network.leave`."""
        self._store.leave(self._name, self._connection)
        self._open_world.changed()

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
        self._require_known()
        known = number_of(after) if after is not None else None
        if not self._store.news(known):
            await self._open_world.change(block_ms)
            self._require_known()
        if self._store.connections.get(self._name, 0) > self._connection:
            raise Superseded(superseded_message(self._name))
        return self._store.news(known)

    async def stop_watching(self) -> None:
        """See `Network.stop_watching`."""
        self._open_world.changed()

    async def plans(self, regions: Collection[str], after: int) -> list[Plan]:
        """See `Network.plans`."""
        self._require_known()
        return [record.plan for record in self._store.announced]

    async def ending(self) -> frozenset[tuple[str, int]]:
        """See `Network.ending`."""
        self._require_known()
        record = self._store.record
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
        return next((record.plan for record in self._store.news(None)), None)

    async def listed(self) -> Record | None:
        """See `Network.listed`."""
        self._require_known()
        return self._open_world.listed()

    def lane(self, node: str, plan: Plan, sender: Sender | None = None) -> MemoryNode:
        """See `Network.lane`."""
        return MemoryNode(self._open_world, node, self._name, sender)

    def reader(self, node: str, plan: Plan) -> MemoryNode:
        """See `Network.reader`."""
        return MemoryNode(self._open_world, node, self._name)

    def presence(self) -> MemoryPresence:
        """See `Network.presence`."""
        return MemoryPresence(self._open_world, self._name, self._connection)

    def updates(self, user: UpdateUser) -> MemoryUpdates:
        """See `Network.updates`."""
        return MemoryUpdates(self._open_world, user)

    @property
    def _store(self) -> ControlStore:
        return self._open_world.store

    def _heard(self, answer: Heard) -> Heard:
        if answer is Heard.SUPERSEDED:
            raise Superseded(superseded_message(self._name))
        return answer

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
