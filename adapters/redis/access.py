"""What a user may do on a Redis server, and which streams are left on a node: optional parts of a survey."""

from __future__ import annotations

import re
import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from adapters.redis.connection import RedisConnection, Script, parse_info
from adapters.redis.control import SOLE_NODE, RedisControl
from adapters.redis.groups import replica_url, replicas_in
from adapters.redis.probe import ServerProbe, text
from adapters.urls import own_options
from sequencing.errors import AuthenticationFailed, GamecastError, NotAllowed
from sequencing.keyspace import NodeKeys

REPLICA_S_MAX = 1.0
ACL_LOG_MAX, LATELY_S = 128, 60.0
"""How many refusals are read, and how old they may be."""
READING = "xread", "xrange", "xrevrange", "subscribe", "hget", "hmget"
"""Commands that reading needs."""
_ADDRESS = re.compile(r"(?:^| )addr=(\S+?)(?::\d+)?(?: |$)")
SCAN_CALLS_MAX = 200
NO_END = -1
SCAN_KEYS_A_CALL = 1000
"""How many keys one call scans.

A Redis that other programs use may have any number of keys, so the search for old streams ends after some of them.
"""

# Keys: one that does not exist, before or after. Trying is the only way: only admins can read a user's permissions.
TOUCH = Script(
    b"""
local key = KEYS[1]
for _, command in ipairs({
  { 'DEL', key }, { 'TIME' }, { 'GET', key }, { 'SET', key, '', 'XX' },
  { 'HSET', key, 'f', '1' }, { 'HSETNX', key, 'f', '1' }, { 'HINCRBY', key, 'f', '1' }, { 'HGET', key, 'f' },
  { 'HMGET', key, 'f' }, { 'HGETALL', key }, { 'HKEYS', key }, { 'HDEL', key, 'f' },
  { 'ZADD', key, '1', 'm' }, { 'ZRANGE', key, '0', '-1' }, { 'ZRANGEBYSCORE', key, '-inf', '1' },
  { 'ZINCRBY', key, '1', 'm' }, { 'ZREM', key, 'm' },
  { 'SADD', key, 'm' }, { 'SMEMBERS', key }, { 'SREM', key, 'm' },
  { 'XADD', key, 'NOMKSTREAM', '*', 'f', 'v' }, { 'XTRIM', key, 'MINID', '1' },
  { 'XREVRANGE', key, '+', '-', 'COUNT', '1' }, { 'EXPIRE', key, '1' },
}) do
  local answer = redis.pcall(unpack(command))
  if type(answer) == 'table' and answer.err then
    redis.pcall('DEL', key)
    return command[1] .. ' in a script: ' .. answer.err
  end
end
return ''
""",
    "touch",
    writes=False,  # but while it is tried
)


@dataclass(frozen=True, slots=True)
class AccessState:
    """What one user may do on one server. ``refused``: the first refused command, with the server's message."""

    user: str | None
    refused: str | None


@dataclass(frozen=True, slots=True)
class LeftoverState:
    """Egress streams of a node from before ``first_epoch``, the earliest epoch in use.

    ``complete``: all keys were searched.
    """

    streams: int
    example: str | None
    complete: bool
    first_epoch: int


async def locked_out(url: str) -> AsyncIterator[tuple[str, str]]:
    """Yield the replicas that do not let the URL's user in, and what they say; users are not replicated.

    ``url``: of a server, or of a group of servers. One that does not answer is left out: how many there are
    is judged elsewhere. Raises as `survey` does.
    """
    server = ServerProbe(url, SOLE_NODE)
    try:
        info = parse_info(await server.ask("INFO", "replication") or b"")
    finally:
        await server.close()
    for replica in replicas_in(info):
        connection = RedisConnection(own_options(replica_url(url, replica))[0], SOLE_NODE)
        try:
            await connection.call("PING", timeout_s=REPLICA_S_MAX)
        except (AuthenticationFailed, NotAllowed) as error:
            yield str(replica), str(error.__cause__ or error)
        except GamecastError:
            continue
        finally:
            await connection.close()


@dataclass(frozen=True, slots=True)
class Refused:
    """What a server refused lately. ``what``: a command, key or channel, empty for a login."""

    user: str
    what: str
    times: int
    addresses: tuple[str, ...]


async def refused_lately(url: str) -> tuple[Refused, ...]:
    """Return who was refused by a server in the last `LATELY_S`, by user and what; none if this user may not ask.

    Raises as `survey` does.
    """
    server = ServerProbe(url, SOLE_NODE)
    try:
        told = await server.ask("ACL", "LOG", ACL_LOG_MAX)
    finally:
        await server.close()
    found: dict[tuple[str, str], list[tuple[int, str]]] = {}
    for entry in told or ():
        fields = {text(name): each for name, each in zip(entry[::2], entry[1::2], strict=False)}
        reason, of = text(fields.get("reason", b"")), text(fields.get("object", b""))
        if float(text(fields.get("age-seconds", b"inf"))) > LATELY_S:
            continue
        if reason == "command" and of not in READING:  # gamecast itself tries what only some users may do
            continue
        address = _ADDRESS.search(text(fields.get("client-info", b"")))
        place = text(fields.get("username", b"")), "" if reason == "auth" else of
        found.setdefault(place, []).append((int(fields.get("count", 1)), address[1] if address else ""))
    return tuple(
        Refused(*place, sum(times for times, _ in each), tuple(dict.fromkeys(at for _, at in each if at)))
        for place, each in found.items()
    )


async def access(url: str, node: str | None = None) -> AccessState:
    """Return whether the URL's user may do what gamecast needs; ``node``: on this node, else in the control Redis.

    A script tries the commands on an unused key, which it creates and removes. Raises as `survey` does.
    """
    tag = node or SOLE_NODE
    server = ServerProbe(url, tag)
    key = f"gamecast:{{{tag}}}:doctor-{secrets.token_hex(8)}"
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
        if node:
            commands += [("XTRIM", key, "MINID", "=", "1-0"), ("HSCAN", key, 0)]
        else:
            commands.append(("SET", key, "", "XX", "PX", 1))
        for command in commands:
            await server.ask(*command)
        said = await server.run(TOUCH, (key,))
        refused = [*server.refused, *([text(said)] if said else [])]
        return AccessState(text(user) if user is not None else None, refused[0] if refused else None)
    finally:
        await server.close()


async def leftovers(control_url: str, url: str, node: str) -> LeftoverState:
    """Search for egress streams of a node that are older than all plans in use and do not expire: nothing removes them.

    The plans are read after the streams, and the streams again after the plans. So a stream is not reported if a plan
    began it meanwhile, or if the network has just set its expiry. Raises as `survey` does.
    """
    server = ServerProbe(url, node)
    keys = NodeKeys(node)
    pattern = keys.egress(0, "").removesuffix("0:") + "*"
    seen: set[bytes] = set()
    cursor: Any = b"0"
    try:
        for _ in range(SCAN_CALLS_MAX):
            answer = await server.ask(
                *("SCAN", cursor, "MATCH", pattern, "COUNT", SCAN_KEYS_A_CALL, "TYPE", "stream"),
            )
            if answer is None:
                break
            cursor, page = answer
            seen.update(page)
            if cursor == b"0":
                break
        first = await _first_epoch_in_use(control_url)
        streams: set[bytes] = set()
        for key in seen:
            epoch = key[len(pattern) - 1 :].partition(b":")[0]
            if epoch.isdigit() and int(epoch) < first and await server.ask("TTL", key) == NO_END:
                streams.add(key)
        return LeftoverState(len(streams), text(min(streams)) if streams else None, cursor == b"0", first)
    finally:
        await server.close()


async def _first_epoch_in_use(control_url: str) -> int:
    """Return the earliest epoch of a plan that is published, being made or ending; 0 if it is unknown."""
    control = RedisControl(control_url)
    try:
        record, newest = await control.record(), await control.newest()
    except GamecastError:  # this user may not read it
        return 0
    finally:
        await control.close()
    if record is None or newest is None:
        return 0
    plans = (newest.plan, *newest.behind, record.plan, *record.behind, *record.abandoned)
    return min(min((plan.epoch, *plan.epochs.values())) for plan in plans)
