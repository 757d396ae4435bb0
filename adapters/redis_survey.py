"""What a network in Redis looks like now: read from outside, without joining it and without changing anything."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import orjson
from redis import exceptions

from adapters.redis_connection import RedisConnection, Script, redacted
from adapters.redis_network import SOLE_NODE, TTL_MS, ControlKeys
from sequencing.errors import GamecastError, OtherSideError, PlanError
from sequencing.node import NodeKeys
from sequencing.plan import Plan

ANSWER_S_MAX = 5.0
"""How long a server may take for one answer; the nodes are asked at the same time."""

STREAMS_A_CALL = 200
"""Egress streams that one script call looks at: Redis blocks while it runs."""

FIELDS_A_CALL = 1000
STREAMS_WEIGHED_MAX = 5
"""Of each node: the longest egress streams tell what an event takes."""

SCAN_CALLS_MAX = 200
SCAN_KEYS_A_CALL = 1000
"""A Redis that others use too may have any number of keys: the look for old streams ends after some of them."""

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

# Keys: one that does not exist, and does not afterwards. Only trying tells: what a user may do is for admins to read.
TOUCH = Script(
    b"""
local key = KEYS[1]
for _, command in ipairs({
  { 'DEL', key }, { 'TIME' }, { 'GET', key }, { 'SET', key, '', 'XX' },
  { 'HSET', key, 'f', '1' }, { 'HSETNX', key, 'f', '1' }, { 'HINCRBY', key, 'f', '1' }, { 'HGET', key, 'f' },
  { 'HMGET', key, 'f' }, { 'HGETALL', key }, { 'HKEYS', key }, { 'HDEL', key, 'f' },
  { 'ZADD', key, '1', 'm' }, { 'ZSCORE', key, 'm' }, { 'ZREM', key, 'm' },
  { 'SADD', key, 'm' }, { 'SMEMBERS', key }, { 'SREM', key, 'm' },
  { 'XADD', key, 'NOMKSTREAM', '*', 'f', 'v' }, { 'XTRIM', key, 'MINID', '1' },
  { 'XREVRANGE', key, '+', '-', 'COUNT', '1' },
}) do
  local answer = redis.pcall(unpack(command))
  if type(answer) == 'table' and answer.err then
    redis.pcall('DEL', key)
    return command[1] .. ' in a script: ' .. answer.err
  end
end
return ''
"""
)


@dataclass(frozen=True, slots=True)
class ServerState:
    """One Redis server. ``None`` and empty texts stand for what it does not tell this user.

    ``clock_ahead_ms``: of this machine's clock, ``round_trip_ms / 2`` more or less. ``memory_bytes_max``: 0 is no
    limit. ``save``: the snapshot rules of redis.conf, empty when it makes none.
    """

    run: str
    version: str
    role: str
    memory_bytes: int | None
    memory_bytes_max: int
    machine_bytes: int
    memory_policy: str
    append_only: bool
    appendfsync: str | None
    save: str | None
    clock_ahead_ms: float | None
    round_trip_ms: float | None


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


@dataclass(frozen=True, slots=True)
class AccessState:
    """What one user may do on one server: ``refused`` names the first command that is, with the server's words."""

    user: str | None
    refused: str | None


@dataclass(frozen=True, slots=True)
class LeftoverState:
    """Egress streams of a node that the plan does not name (any more); ``complete``: whether all keys were seen."""

    streams: int
    example: str | None
    complete: bool


async def survey(url: str, *, regions: bool = False) -> NetworkState:
    """Return what the network of a control Redis looks like; ``regions``: with what is in each region's stream.

    Raises `UnknownScheme` for what is no Redis URL, `NetworkError` or `OtherSideError` when the control Redis cannot be
    asked. Whatever else cannot be read is said in its place.
    """
    control = _Server(url)
    asked: dict[str, _Server] = {}
    try:
        described = await control.describe()
        plan = await _newest_plan(control)
        registered = {
            _text(name): _text(at) for name, at in _pairs(await control.ask("HGETALL", ControlKeys.nodes) or ())
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
            epoch=None if state is None else _int(fields.get(b"epoch", b"1")),
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


async def access(url: str, node: str | None = None) -> AccessState:
    """Return whether the URL's user may do what gamecast needs; ``node``: there, else in the control Redis.

    It is tried on a key that nobody has, which one script makes and removes. Raises as `survey` does.
    """
    server = _Server(url)
    key = f"gamecast:{{{node or 'control'}}}:doctor-{secrets.token_hex(8)}"
    try:
        await server.ask("INFO", "server")
        needed = list(server.refused)
        user = await server.ask("ACL", "WHOAMI")
        server.refused[:] = needed
        commands: list[tuple[object, ...]] = [
            ("PING",),
            ("HGETALL", key),
            ("XREVRANGE", key, "+", "-", "COUNT", 1),
            ("XREAD", "COUNT", 1, "BLOCK", 1, "STREAMS", key, "0-0"),
            ("XADD", key, "NOMKSTREAM", "*", "f", "v"),
        ]
        commands.append(("XTRIM", key, "MINID", "=", "1-0") if node else ("SET", key, "", "XX", "PX", 1))
        for command in commands:
            await server.ask(*command)
        said = await server.run(TOUCH, (key,))
        refused = [*server.refused, *([_text(said)] if said else [])]
        return AccessState(_text(user) if user is not None else None, refused[0] if refused else None)
    finally:
        await server.close()


async def leftovers(url: str, node: str, plan: Plan) -> LeftoverState:
    """Look for egress streams of a node that the plan does not name: no step ever trims those again."""
    server = _Server(url)
    keys = NodeKeys(node)
    known = {keys.egress(plan.epoch_of(region), region).encode() for region in plan.paths}
    pattern = keys.egress(0, "").removesuffix("0:") + "*"
    found: set[bytes] = set()
    cursor: Any = b"0"
    try:
        for _ in range(SCAN_CALLS_MAX):
            answer = await server.ask(
                *("SCAN", cursor, "MATCH", pattern, "COUNT", SCAN_KEYS_A_CALL, "TYPE", "stream"),
            )
            if answer is None:
                break
            cursor, page = answer
            found.update(set(page) - known)
            if cursor == b"0":
                break
        return LeftoverState(len(found), _text(min(found)) if found else None, cursor == b"0")
    finally:
        await server.close()


@dataclass(slots=True)
class _Server:
    """Asks one server; what it refuses or cannot make sense of is noted, what it is not there for is raised."""

    url: str
    unread: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    _connection: RedisConnection = field(init=False)

    def __post_init__(self) -> None:
        self._connection = RedisConnection(self.url)

    async def ask(self, *command: Any) -> Any:
        """Return the reply to a command, None for an error in it."""
        try:
            return await self._connection.call(*command, timeout_s=ANSWER_S_MAX)
        except OtherSideError as error:
            self._note(" ".join(map(str, command[:2])), error)
            return None

    async def run(self, script: Script, keys: Sequence[str]) -> Any:
        """Return what a script answers, None for an error."""
        try:
            return await self._connection.run(script, keys)
        except OtherSideError as error:
            self._note("EVAL", error)
            return None

    async def close(self) -> None:
        await self._connection.close()

    async def describe(self) -> ServerState:
        """Read what the server says of itself."""
        info = _fields(await self.ask("INFO") or b"")
        before = time.time()
        clock = await self.ask("TIME")
        after = time.time()
        ahead_ms = None
        if clock is not None:
            ahead_ms = (int(clock[0]) + int(clock[1]) / 1e6 - (before + after) / 2) * 1000
        return ServerState(
            run=info.get("run_id", redacted(self.url)),
            version=info.get("redis_version", ""),
            role=info.get("role", ""),
            memory_bytes=_int(info["used_memory"]) if "used_memory" in info else None,
            memory_bytes_max=_int(info.get("maxmemory", "")),
            machine_bytes=_int(info.get("total_system_memory", "")),
            memory_policy=info.get("maxmemory_policy", ""),
            append_only=info.get("aof_enabled") == "1",
            appendfsync=await self._setting("appendfsync"),
            save=await self._setting("save"),
            clock_ahead_ms=ahead_ms,
            round_trip_ms=(after - before) * 1000 if clock is not None else None,
        )

    async def _setting(self, name: str) -> str | None:
        # Managed servers often refuse CONFIG, which gamecast itself does not need.
        noted = len(self.unread), len(self.refused)
        answer = await self.ask("CONFIG", "GET", name)
        del self.unread[noted[0] :], self.refused[noted[1] :]
        return _text(answer[1]) if answer else None

    def _note(self, what: str, error: OtherSideError) -> None:
        cause = error.__cause__
        if not isinstance(cause, exceptions.ResponseError) or isinstance(cause, exceptions.AuthenticationError):
            raise error
        if not isinstance(cause, exceptions.NoPermissionError) and str(cause).startswith(("NOAUTH", "WRONGPASS")):
            raise error
        said = f"{what}: {_CODES.get(type(cause), '')}{cause}"
        self.unread.append(said)
        self.refused.append(said)


# redis-py takes them off the messages.
_CODES: Mapping[type[Exception], str] = {
    exceptions.NoPermissionError: "NOPERM ",
    exceptions.OutOfMemoryError: "OOM ",
    exceptions.ReadOnlyError: "READONLY ",
}


async def _newest_plan(control: _Server) -> Plan | None:
    newest = await control.ask("XREVRANGE", ControlKeys.plans, "+", "-", "COUNT", 1)
    if not newest:
        return None
    try:
        return Plan.from_json(newest[0][1][1])
    except PlanError as error:
        control.unread.append(f"the newest plan, {_text(newest[0][0])}: {error}")
        return None


async def _node(name: str, url: str, registered: bool, plan: Plan | None, asked: dict[str, _Server]) -> NodeState:
    unseen = NodeState(name, url, redacted(url), registered, planned=plan is not None and name in plan.nodes)
    try:
        server = _Server(url)
    except GamecastError as error:
        return replace(unseen, trouble=str(error))
    keys = NodeKeys(name)
    try:
        described = await server.describe()
        state = await server.ask("HGETALL", keys.node)
        fields = dict(_pairs(state or ()))
        installed = _int(fields.get(b"epoch", b"0")), _int(fields.get(b"version", b"0"))
        seen = replace(
            unseen,
            server=described,
            installed=None if state is None else installed,
            retention_events=_int(fields.get(b"retention", b"0")),
            steps=await server.ask("HLEN", keys.steps) or 0,
            links=await _links(server, keys),
        )
    except GamecastError as error:
        await server.close()
        return replace(unseen, trouble=str(error))
    asked[name] = server
    return replace(seen, unread=tuple(server.unread))


async def _links(server: _Server, keys: NodeKeys) -> tuple[LinkState, ...]:
    """Read the links on which the node has ever sent something: its counters name them."""
    targets: set[str] = set()
    cursor: Any = b"0"
    while True:
        answer = await server.ask("HSCAN", keys.counters, cursor, "MATCH", "o *", "COUNT", FIELDS_A_CALL)
        if answer is None:
            return ()
        cursor, flat = answer
        targets.update(_text(name)[2:] for name, _ in _pairs(flat))
        if cursor == b"0":
            break
    found = []
    for target in sorted(targets):
        looked = await server.run(LOOK, (keys.link(target),))
        if looked is not None and looked[0][0] >= 0:
            found.append(LinkState(target, looked[0][0], _text(looked[0][1])))
    return tuple(found)


async def _connections(control: _Server) -> tuple[ConnectionState, ...]:
    alive = {_text(name): int(float(until)) for name, until in _pairs(await control.ask(*_ALIVE, "WITHSCORES") or ())}
    members = {_text(name): packed for name, packed in _pairs(await control.ask("HGETALL", ControlKeys.members) or ())}
    participants = {_text(name) for name in await control.ask("SMEMBERS", ControlKeys.participants) or ()}
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


async def _regions(plan: Plan, asked: Mapping[str, _Server]) -> tuple[RegionState, ...]:
    drawn: dict[str, int] = {}
    streams: dict[str, tuple[int, int, int]] = {}
    weights: dict[str, int] = {}
    for node, server in asked.items():
        with suppress(GamecastError):  # it went away meanwhile: its numbers stay unknown
            keys = NodeKeys(node)
            for page in _pages((r for r, path in plan.paths.items() if path[0] == node), FIELDS_A_CALL):
                fields = [f"r {plan.epoch_of(region)} {region}" for region in page]
                for region, number in zip(page, await server.ask("HMGET", keys.counters, *fields) or (), strict=False):
                    drawn[region] = _int(number or b"0")
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


def _fields(info: bytes) -> dict[str, str]:
    lines = (line.partition(":") for line in info.decode(errors="replace").splitlines())
    return {name: value.strip() for name, colon, value in lines if colon}


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _int(value: bytes | str) -> int:
    """Read a number; 0 for what a stranger wrote in its place."""
    try:
        return int(value)
    except ValueError:
        return 0


def _last(entry_id: bytes) -> int:
    return _int(entry_id.rpartition(b"-")[2])


def _length(packed: bytes | None) -> int:
    try:
        regions = orjson.loads(packed or b"[]")
    except ValueError:
        return 0
    return len(regions) if isinstance(regions, list) else 0
