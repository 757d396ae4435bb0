"""What a network in Redis looks like now: read from outside, without joining it and without changing anything."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import orjson

from adapters.redis_connection import Script, redacted
from adapters.redis_network import SOLE_NODE, TTL_MS, ControlKeys
from adapters.redis_probe import ServerProbe, ServerState, text, whole
from sequencing.errors import GamecastError, PlanError
from sequencing.node import NodeKeys
from sequencing.plan import Plan

STREAMS_A_CALL = 200
"""Egress streams that one script call looks at: Redis blocks while it runs."""

FIELDS_A_CALL = 1000
STREAMS_WEIGHED_MAX = 5
"""Of each node: the longest egress streams tell what an event takes."""

# Keys: streams. Only numbers leave the server: an entry may have a megabyte.
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
"""
)


@dataclass(frozen=True, slots=True)
class LinkState:
    """Frames that wait on the link towards ``target``; ``head`` is the id of the first, empty when there is none."""

    target: str
    frames: int
    head: str


@dataclass(frozen=True, slots=True)
class NodeState:
    """One sequencing node, its ``url`` (``where``: without the password), and what is installed there.

    ``server`` is None where it cannot be reached, or refuses to answer: ``trouble`` says why. ``installed``: epoch and
    version, (0, 0) for nothing, None where it cannot be read. ``registered`` and ``planned``: whether it is in the
    registry, and in the plan. ``unread``: what could not be read although the server is there.
    """

    name: str
    url: str = field(repr=False)
    where: str
    registered: bool
    planned: bool
    server: ServerState | None = None
    trouble: str | None = None
    installed: tuple[int, int] | None = None
    retention_events: int = 0
    steps: int = 0
    links: tuple[LinkState, ...] = ()
    unread: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ConnectionState:
    """One connection of the roster; ``heard_ms_ago`` is None when it said that it leaves, or was never heard of."""

    name: str
    regions: int
    heard_ms_ago: int | None
    alive: bool
    takes_part: bool


@dataclass(frozen=True, slots=True)
class RegionState:
    """One region of the plan.

    ``frames`` are kept in its egress stream, the oldest ends in number ``first`` and the newest in ``last``; ``drawn``
    is the last number that its ingress gave. None where its node cannot be asked. ``stream_bytes``: of some long ones.
    """

    name: str
    path: tuple[str, ...]
    epoch: int
    frames: int | None = None
    first: int | None = None
    last: int | None = None
    drawn: int | None = None
    stream_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class NetworkState:
    """A network as it is seen from outside. ``lease_ms``: when the lease that is held ends, -1 for never.

    ``epoch`` and ``settled`` of the membership, ``lease_held`` and ``lease_ms`` are None where they cannot be read.
    """

    where: str
    control: ServerState
    epoch: int | None
    settled: bool | None
    plan: Plan | None
    nodes: tuple[NodeState, ...]
    connections: tuple[ConnectionState, ...]
    lease_held: bool | None
    lease_ms: int | None
    regions: tuple[RegionState, ...] = ()
    unread: tuple[str, ...] = ()


async def survey(url: str, *, regions: bool = False) -> NetworkState:
    """Return what the network of a control Redis looks like; ``regions``: with what is in each region's stream.

    Raises `UnknownScheme` for what is no Redis URL, `NetworkError` or `OtherSideError` when the control Redis cannot be
    asked. Whatever else cannot be read is said in its place.
    """
    control = ServerProbe(url)
    asked: dict[str, ServerProbe] = {}
    try:
        described = await control.describe()
        plan = await _newest_plan(control)
        registered = {
            text(name): text(at) for name, at in _pairs(await control.ask("HGETALL", ControlKeys.nodes) or ())
        }
        places = dict(registered)
        places.update(plan.nodes if plan is not None else {})
        names = sorted(places) or [SOLE_NODE]
        nodes = await asyncio.gather(
            *(_node(name, places.get(name, "") or url, name in registered, plan, asked) for name in names)
        )
        state = await control.ask("HGETALL", ControlKeys.state)
        fields = dict(_pairs(state or ()))
        lease = await control.ask("PTTL", ControlKeys.lease)
        return NetworkState(
            where=redacted(url),
            control=described,
            epoch=None if state is None else whole(fields.get(b"epoch", b"1")),
            settled=None if state is None else fields.get(b"settled") == b"1",
            plan=plan,
            nodes=tuple(nodes),
            connections=await _connections(control),
            lease_held=None if lease is None else lease != -2,
            lease_ms=None if lease == -2 else lease,
            regions=await _regions(plan, asked) if regions and plan is not None else (),
            unread=tuple(control.unread),
        )
    finally:
        for server in (control, *asked.values()):
            await server.close()


async def _newest_plan(control: ServerProbe) -> Plan | None:
    newest = await control.ask("XREVRANGE", ControlKeys.plans, "+", "-", "COUNT", 1)
    if not newest:
        return None
    try:
        return Plan.from_json(newest[0][1][1])
    except PlanError as error:
        control.unread.append(f"the newest plan, {text(newest[0][0])}: {error}")
        return None


async def _node(name: str, url: str, registered: bool, plan: Plan | None, asked: dict[str, ServerProbe]) -> NodeState:
    unseen = NodeState(name, url, redacted(url), registered, planned=plan is not None and name in plan.nodes)
    try:
        server = ServerProbe(url)
    except GamecastError as error:
        return replace(unseen, trouble=str(error))
    keys = NodeKeys(name)
    try:
        described = await server.describe()
        state = await server.ask("HGETALL", keys.node)
        fields = dict(_pairs(state or ()))
        installed = whole(fields.get(b"epoch", b"0")), whole(fields.get(b"version", b"0"))
        seen = replace(
            unseen,
            server=described,
            installed=None if state is None else installed,
            retention_events=whole(fields.get(b"retention", b"0")),
            steps=await server.ask("HLEN", keys.steps) or 0,
            links=await _links(server, keys),
        )
    except GamecastError as error:
        await server.close()
        return replace(unseen, trouble=str(error))
    asked[name] = server
    return replace(seen, unread=tuple(server.unread))


async def _links(server: ServerProbe, keys: NodeKeys) -> tuple[LinkState, ...]:
    """Read the links on which the node has ever sent something: its counters name them."""
    targets: set[str] = set()
    cursor: Any = b"0"
    while True:
        answer = await server.ask("HSCAN", keys.counters, cursor, "MATCH", "o *", "COUNT", FIELDS_A_CALL)
        if answer is None:
            return ()
        cursor, flat = answer
        targets.update(text(name)[2:] for name, _ in _pairs(flat))
        if cursor == b"0":
            break
    found = []
    for target in sorted(targets):
        looked = await server.run(LOOK, (keys.link(target),))
        if looked is not None and looked[0][0] >= 0:
            found.append(LinkState(target, looked[0][0], text(looked[0][1])))
    return tuple(found)


async def _connections(control: ServerProbe) -> tuple[ConnectionState, ...]:
    alive = {text(name): int(float(until)) for name, until in _pairs(await control.ask(*_ALIVE, "WITHSCORES") or ())}
    members = {text(name): packed for name, packed in _pairs(await control.ask("HGETALL", ControlKeys.members) or ())}
    participants = {text(name) for name in await control.ask("SMEMBERS", ControlKeys.participants) or ()}
    clock = await control.ask("TIME")
    now_ms = int(clock[0]) * 1000 + int(clock[1]) // 1000 if clock else time.time_ns() // 1_000_000
    return tuple(
        ConnectionState(
            name=name,
            regions=_length(members.get(name)),
            heard_ms_ago=max(0, now_ms - (alive[name] - TTL_MS)) if name in alive else None,
            alive=alive.get(name, 0) > now_ms,
            takes_part=name in participants,
        )
        for name in sorted(alive.keys() | members.keys())
    )


async def _regions(plan: Plan, asked: Mapping[str, ServerProbe]) -> tuple[RegionState, ...]:
    drawn: dict[str, int] = {}
    streams: dict[str, tuple[int, int, int]] = {}
    weights: dict[str, int] = {}
    for node, server in asked.items():
        with suppress(GamecastError):  # it went away meanwhile: its numbers stay unknown
            keys = NodeKeys(node)
            for page in _pages((r for r, path in plan.paths.items() if path[0] == node), FIELDS_A_CALL):
                fields = [f"r {plan.epoch_of(region)} {region}" for region in page]
                for region, number in zip(page, await server.ask("HMGET", keys.counters, *fields) or (), strict=False):
                    drawn[region] = whole(number or b"0")
            leaving = {r: keys.egress(plan.epoch_of(r), r) for r, path in plan.paths.items() if path[-1] == node}
            for page in _pages(leaving, STREAMS_A_CALL):
                looked = await server.run(LOOK, [leaving[region] for region in page])
                for region, (frames, oldest, newest) in zip(page, looked or (), strict=False):
                    if frames >= 0:
                        streams[region] = frames, _last(oldest), _last(newest)
            longest = sorted(leaving, key=lambda region: streams.get(region, (0,))[0], reverse=True)
            for region in longest[:STREAMS_WEIGHED_MAX]:
                taken = await server.ask("MEMORY", "USAGE", leaving[region])
                if isinstance(taken, int):
                    weights[region] = taken
    found = []
    for region, path in plan.paths.items():
        frames, first, last = streams.get(region, (None, None, None))
        numbers = frames, first, last, drawn.get(region), weights.get(region)
        found.append(RegionState(region, path, plan.epoch_of(region), *numbers))
    return tuple(found)


_ALIVE = ("ZRANGE", ControlKeys.alive, 0, -1)


def _pages(names: Iterable[str], size: int) -> Iterator[list[str]]:
    rest = iter(names)
    while page := list(islice(rest, size)):
        yield page


def _pairs(flat: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    return zip(flat[::2], flat[1::2], strict=False)


def _last(entry_id: bytes) -> int:
    return whole(entry_id.rpartition(b"-")[2])


def _length(packed: bytes | None) -> int:
    try:
        regions = orjson.loads(packed or b"[]")
    except ValueError:
        return 0
    return len(regions) if isinstance(regions, list) else 0
