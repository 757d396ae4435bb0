"""Survey a network in Redis: read its state from outside, without joining or changing it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import Any

from adapters.redis.announced import read_announced, with_people
from adapters.redis.connection import Script
from adapters.redis.control import SOLE_NODE, TTL_MS
from adapters.redis.controlkeys import ControlKeys
from adapters.redis.ledger import read_underway
from adapters.redis.networkstate import (
    ConnectionState,
    LinkState,
    NetworkState,
    NodeState,
    RegionState,
    TransitionState,
)
from adapters.redis.probe import ServerProbe, text, whole
from adapters.redis.rows import read_begun, read_interests, read_standings
from adapters.urls import as_user_of, redacted
from sequencing.errors import GamecastError, PlanError
from sequencing.joint import label
from sequencing.keyspace import NodeKeys
from sequencing.listing import listed
from sequencing.plan import Plan
from sequencing.record import Interest, Record

STREAMS_A_CALL = 200
"""How many egress streams one script call reads: Redis blocks while it runs."""

FIELDS_A_CALL = 1000
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


async def survey(url: str, *, regions: bool = False) -> NetworkState:
    """Return the state of a control Redis's network; ``regions``: including the content of each region's stream.

    Raises `UnknownScheme` for an invalid Redis URL, `NetworkError` or `OtherSideError` if the control Redis does not
    answer. All other errors are reported in the result.
    """
    control = ServerProbe(url, SOLE_NODE)
    asked: dict[str, ServerProbe] = {}
    try:
        described = await control.describe()
        published = await _published(control)
        plan = published.plan if published is not None else None
        registered = {
            text(name): text(at) for name, at in _pairs(await control.ask("HGETALL", ControlKeys.nodes) or ())
        }
        places = dict(registered)
        places.update(plan.nodes if plan is not None else {})
        names = sorted(places) or [SOLE_NODE]
        lossy = set(map(text, await control.ask("SMEMBERS", ControlKeys.lossy) or ()))
        runs = await control.ask("HMGET", ControlKeys.doubted, *names) or ()
        doubted = {name for name, run in zip(names, runs, strict=False) if run is not None}
        unseen = (
            NodeState(
                name,
                at := as_user_of(places.get(name, "") or url, url),
                redacted(at),
                registered=name in registered,
                planned=plan is not None and name in plan.nodes,
                may_lose=name in lossy,
                has_lost=name in doubted,
            )
            for name in names
        )
        nodes = await asyncio.gather(*(_node(node, plan, asked) for node in unseen))
        interests = await _interests(control)
        if published is not None and published.plan.sole:
            published = listed(published, interests, await _begun(asked.get(published.plan.sole), published.plan))
            plan = published.plan
        leader, lease_ms = await _leader(control)
        names = [*map(text, await control.ask("SMEMBERS", ControlKeys.published) or ())]
        state = NetworkState(
            where=redacted(url),
            control=described,
            plan=plan,
            transition=await _transition(control, plan),
            leader=leader,
            lease_ms=lease_ms,
            nodes=tuple(nodes),
            connections=await _connections(control, published, interests),
            unplaced=frozenset(map(label, plan.without_place(names) if plan is not None else names)),
            regions=await _regions(plan, asked) if regions and plan is not None else (),
        )
        now = await _published(control)  # last, so that everything read before belongs to that plan, or to a later one
        has_moved = now is not None and (plan is None or _number(now.plan) != _number(plan))
        return replace(state, unread=tuple(dict.fromkeys(control.unread)), has_moved=has_moved)
    finally:
        for server in (control, *asked.values()):
            await server.close()


def _number(plan: Plan) -> tuple[int, int]:
    return plan.epoch, plan.version


async def _published(control: ServerProbe) -> Record | None:
    try:
        record = await read_announced(control.ask_each)
        if record is None or record.plan.sole:
            return record
        return with_people(record, await read_standings(control.scan, control.ask_each))
    except PlanError as error:
        control.unread.append(f"the newest plan: {error}")
        return None


async def _transition(control: ServerProbe, published: Plan | None) -> TransitionState | None:
    try:
        underway = await read_underway(control.ask)
    except PlanError as error:
        control.unread.append(f"{ControlKeys.state}: {error}")
        return None
    if underway is None:
        return None
    number = underway.epoch, underway.version
    return TransitionState(
        *number,
        plans_behind=underway.plans_behind,
        old_epochs=len(underway.ending),
        published=published is not None and number <= (published.epoch, published.version),
    )


async def _interests(control: ServerProbe) -> Mapping[str, Interest]:
    def note(name: str, error: Exception) -> None:
        control.unread.append(f"what {name} wants: {error}")

    return await read_interests(control.scan, control.ask_each, note)


async def _leader(control: ServerProbe) -> tuple[str | None, int | None]:
    """Return the token and the remaining lease in ms, as `NetworkState` has them."""
    noted = len(control.unread)
    token = await control.ask("GET", ControlKeys.lease)
    lease_ms = await control.ask("PTTL", ControlKeys.lease)
    if len(control.unread) > noted:
        return None, None
    # The lease may have ended in between.
    return ("", None) if token is None or lease_ms == -2 else (text(token), lease_ms)


async def _node(unseen: NodeState, plan: Plan | None, asked: dict[str, ServerProbe]) -> NodeState:
    try:
        server = ServerProbe(unseen.url, unseen.name)
    except GamecastError as error:
        return replace(unseen, trouble=str(error))
    keys = NodeKeys(unseen.name)
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
            lacking=await _lacking(server, keys, plan),
            links=await _links(server, keys),
        )
    except GamecastError as error:
        await server.close()
        return replace(unseen, trouble=str(error))
    asked[unseen.name] = server
    return replace(seen, unread=tuple(server.unread))


async def _lacking(server: ServerProbe, keys: NodeKeys, plan: Plan | None) -> frozenset[str]:
    found: set[str] = set()
    if plan is None:
        return frozenset()
    for page in _pages((region for region, path in plan.paths.items() if keys.name in path), FIELDS_A_CALL):
        known = await server.ask("HMGET", keys.steps, *(f"{plan.epoch_of(region)} {region}" for region in page))
        found.update(region for region, step in zip(page, known or (), strict=False) if step is None)
    return frozenset(found)


async def _links(server: ServerProbe, keys: NodeKeys) -> tuple[LinkState, ...]:
    """Read the links on which the node has ever sent a frame: its counters name them."""
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


async def _begun(server: ServerProbe | None, plan: Plan) -> frozenset[str]:
    """Return the regions that have begun at the only node of a network, as far as it can be asked."""
    if server is None:
        return frozenset()
    return await read_begun(server.scan, NodeKeys(plan.sole).steps, plan.epoch)


async def _connections(
    control: ServerProbe, published: Record | None, interests: Mapping[str, Interest]
) -> tuple[ConnectionState, ...]:
    alive = {
        text(name): int(float(until))
        for name, until in _pairs(await control.ask("ZRANGE", ControlKeys.alive, 0, -1, "WITHSCORES") or ())
    }
    introduced = {
        text(name): whole(number)
        for name, number in _pairs(await control.ask("HGETALL", ControlKeys.connections) or ())
    }
    clock = await control.ask("TIME")
    now_ms = int(clock[0]) * 1000 + int(clock[1]) // 1000 if clock else time.time_ns() // 1_000_000
    heard = published.heard if published is not None else {}
    nothing = Interest(0, 0)
    found = []
    for name in sorted(alive.keys() | introduced.keys() | interests.keys()):
        interest = interests.get(name, nothing)
        waiting = interest.after(heard.get(name))
        found.append(
            ConnectionState(
                name=name,
                incarnation=introduced.get(name, 0),
                wanted=frozenset(interest.since),
                waiting=waiting,
                heard_ms_ago=max(0, now_ms - (alive[name] - TTL_MS)) if name in alive else None,
                alive=alive.get(name, 0) > now_ms,
                asks=frozenset((region, interest.since[region]) for region in waiting),
            )
        )
    return tuple(found)


async def _regions(plan: Plan, asked: Mapping[str, ServerProbe]) -> tuple[RegionState, ...]:
    drawn: dict[str, int] = {}
    streams: dict[str, tuple[int, int, int]] = {}
    weights: dict[str, int] = {}
    for node, server in asked.items():
        with suppress(GamecastError):  # it became unreachable meanwhile: its numbers stay unknown
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


def _pages(names: Iterable[str], size: int) -> Iterator[list[str]]:
    rest = iter(names)
    while page := list(islice(rest, size)):
        yield page


def _pairs(flat: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    return zip(flat[::2], flat[1::2], strict=False)


def _last(entry_id: bytes) -> int:
    return whole(entry_id.rpartition(b"-")[2])
