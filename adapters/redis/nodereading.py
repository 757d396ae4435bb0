"""Reads the sequencing nodes of a network from outside: all at the same time, none for longer than its limit."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from adapters.redis.connection import Script
from adapters.redis.networkstate import LinkState, NodeState, RegionState
from adapters.redis.probe import ServerProbe, text, whole
from sequencing.errors import GamecastError
from sequencing.keyspace import NodeKeys
from sequencing.plan import Plan

STREAMS_A_CALL = 200
"""How many egress streams one script call reads: Redis blocks while it runs."""

FIELDS_A_CALL = 1000
NODE_ANSWERS = 4
"""A node that takes so many times the limit for one answer is not waited for."""

STREAMS_WEIGHED_MAX = 5
"""For each node: the longest egress streams show how much memory an event takes."""

# Keys: streams. Only numbers leave the server, because an entry may have a megabyte.
LOOK = Script(
    b"""
local found = {}
for i, key in ipairs(KEYS) do
  local length = redis.pcall('XLEN', key)
  if type(length) ~= 'number' then
    found[i] = { -1, '', '' }
  else
    local oldest = redis.call('XRANGE', key, '-', '+', 'COUNT', 1)[1]
    local newest = redis.call('XREVRANGE', key, '+', '-', 'COUNT', 1)[1]
    found[i] = { length, oldest and oldest[1] or '', newest and newest[1] or '' }
  end
end
return found
""",
    "look",
    writes=False,
)


class NodeReader:
    """Reads the nodes of a plan, all at the same time, none for longer than its limit.

    ``asked``: gets the nodes that answered.
    """

    def __init__(self, plan: Plan | None, asked: dict[str, ServerProbe], answer_s_max: float | None) -> None:
        self._plan, self._asked, self._answer_s_max = plan, asked, answer_s_max
        self._node_s_max = NODE_ANSWERS * answer_s_max if answer_s_max is not None else None

    async def read(self, unseen: NodeState) -> NodeState:
        """Return the state of a node, with the reason if it does not answer."""
        try:
            server = ServerProbe(unseen.url, unseen.name, self._answer_s_max)
        except GamecastError as error:
            return replace(unseen, trouble=str(error))
        try:
            async with asyncio.timeout(self._node_s_max):
                seen = await self._answers(server, unseen)
        except (GamecastError, TimeoutError) as error:
            await server.close()
            limit = f"it did not answer everything within {self._node_s_max} s: it is overloaded"
            return replace(unseen, trouble=limit if isinstance(error, TimeoutError) else str(error))
        self._asked[unseen.name] = server
        return replace(seen, unread=tuple(server.unread))

    async def _answers(self, server: ServerProbe, unseen: NodeState) -> NodeState:
        keys = NodeKeys(unseen.name)
        described = await server.describe()
        state = await server.ask("HGETALL", keys.node)
        fields = dict(pairs(state or ()))
        installed = whole(fields.get(b"epoch", b"0")), whole(fields.get(b"version", b"0"))
        lacking = await _lacking(server, keys, self._plan)
        steps = await server.ask("HLEN", keys.steps)
        sent, accepted = await _counted_frames(server, keys)
        return replace(
            unseen,
            server=described,
            installed=None if state is None else installed,
            retention_events=whole(fields.get(b"retention", b"0")),
            steps=steps,
            lacking=lacking,
            links=await _links(server, keys, sent),
            accepted=accepted,
            read_at_s=time.monotonic(),
        )

    async def regions(self, plan: Plan) -> tuple[RegionState, ...]:
        """Return the state of each region of a plan, as far as its ingress and egress answer."""
        read = _RegionNumbers()
        await asyncio.gather(*(self._region_numbers(node, server, plan, read) for node, server in self._asked.items()))
        return tuple(read.state(region, path, plan.epoch_of(region)) for region, path in plan.paths.items())

    async def _region_numbers(self, node: str, server: ServerProbe, plan: Plan, read: _RegionNumbers) -> None:
        with suppress(GamecastError, TimeoutError):  # it became unreachable meanwhile: its numbers stay unknown
            async with asyncio.timeout(self._node_s_max):
                await read.read(node, server, plan)


def waited_s(nodes: Sequence[NodeState]) -> float:
    """Return the time since the last node answered, if there are others that did not."""
    answered = [node.read_at_s for node in nodes if node.read_at_s is not None]
    if not answered or len(answered) == len(nodes):
        return 0.0
    return time.monotonic() - max(answered)


async def _lacking(server: ServerProbe, keys: NodeKeys, plan: Plan | None) -> frozenset[str]:
    lacking: set[str] = set()
    if plan is None:
        return frozenset()
    for page in _pages((region for region, path in plan.paths.items() if keys.name in path), FIELDS_A_CALL):
        known = await server.ask("HMGET", keys.steps, *(f"{plan.epoch_of(region)} {region}" for region in page))
        lacking.update(region for region, step in zip(page, known or (), strict=False) if step is None)
    return frozenset(lacking)


async def _counted_frames(server: ServerProbe, keys: NodeKeys) -> tuple[Mapping[str, int] | None, int | None]:
    """Return how many frames the node has sent on each link, and accepted on all; None if it refuses to say."""
    sent: dict[str, int] = {}
    accepted: dict[str, int] = {}
    cursor: Any = b"0"
    while True:
        answer = await server.ask("HSCAN", keys.counters, cursor, "MATCH", "[io] *", "COUNT", FIELDS_A_CALL)
        if answer is None:
            return None, None
        cursor, flat = answer
        for name, number in pairs(flat):
            way, _, other = text(name).partition(" ")
            (sent if way == "o" else accepted)[other] = whole(number)
        if cursor == b"0":
            return sent, sum(accepted.values())


async def _links(server: ServerProbe, keys: NodeKeys, sent: Mapping[str, int] | None) -> tuple[LinkState, ...]:
    """Read the links on which the node has ever sent a frame: its counters name them."""
    links = []
    for target in sorted(sent or ()):
        looked = await server.run(LOOK, (keys.link(target),))
        if looked is not None and looked[0][0] >= 0:
            frames, head, newest = looked[0]
            number = whole(newest.partition(b"-")[0]) if newest else (sent or {})[target]
            links.append(LinkState(target, frames, text(head), number))
    return tuple(links)


@dataclass(slots=True)
class _RegionNumbers:
    """What ingresses and egresses report of their regions."""

    drawn: dict[str, int] = field(default_factory=dict)
    drawn_at_s: dict[str, float] = field(default_factory=dict)
    streams: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    weights: dict[str, int] = field(default_factory=dict)

    async def read(self, node: str, server: ServerProbe, plan: Plan) -> None:
        """Read the regions that begin or end at a node."""
        keys = NodeKeys(node)
        for page in _pages((r for r, path in plan.paths.items() if path[0] == node), FIELDS_A_CALL):
            fields = [f"r {plan.epoch_of(region)} {region}" for region in page]
            numbers = await server.ask("HMGET", keys.counters, *fields)
            read_at_s = time.monotonic()
            for region, number in zip(page, numbers or (), strict=False):
                self.drawn[region], self.drawn_at_s[region] = whole(number or b"0"), read_at_s
        leaving = {r: keys.egress(plan.epoch_of(r), r) for r, path in plan.paths.items() if path[-1] == node}
        for page in _pages(leaving, STREAMS_A_CALL):
            looked = await server.run(LOOK, [leaving[region] for region in page])
            for region, (frames, oldest, newest) in zip(page, looked or (), strict=False):
                if frames >= 0:
                    self.streams[region] = frames, _last(oldest), _last(newest)
        longest = sorted(leaving, key=lambda region: self.streams.get(region, (0,))[0], reverse=True)
        for region in longest[:STREAMS_WEIGHED_MAX]:
            taken = await server.ask("MEMORY", "USAGE", leaving[region])
            if isinstance(taken, int):
                self.weights[region] = taken

    def state(self, region: str, path: tuple[str, ...], epoch: int) -> RegionState:
        frames, first, last = self.streams.get(region, (None, None, None))
        numbers = frames, first, last, self.drawn.get(region), self.weights.get(region)
        return RegionState(region, path, epoch, *numbers, self.drawn_at_s.get(region))


def _pages(names: Iterable[str], size: int) -> Iterator[list[str]]:
    rest = iter(names)
    while page := list(islice(rest, size)):
        yield page


def pairs(flat: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    return zip(flat[::2], flat[1::2], strict=False)


def _last(entry_id: bytes) -> int:
    return whole(entry_id.rpartition(b"-")[2])
