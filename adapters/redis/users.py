"""The Redis users of a secured network: each may do what its part of the work needs, and nothing else.

The same users, with the same passwords, are on every server, so the URL of the control Redis with a user in it is all
that somebody needs: nodes are registered without one, and are reached as that user (`adapters.urls.as_user_of`). Only
managers can write the registry, so nobody else can lead them to another address, with their password.

What Redis can tell apart are commands, keys, and the first word of some commands. So nobody but an operator brings
scripts: what gamecast runs on the server are functions (`Script.as_library`), which stay there over a restart, and each
user may call those of its part. A script that a stranger wrote would hold a server for as long as it likes.

What a function does is checked against its caller's rights, so these cannot be less than what it does. A publisher
cannot read what is published, lead, change a plan or touch a key that is not gamecast's; one that is taken over could
still write nonsense into the counters and streams that publishing writes: docs/security.md.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from adapters.redis.access import TOUCH
from adapters.redis.connection import RedisConnection, Script, parse_info
from adapters.redis.control import CONTROL, LEADING, SOLE_NODE, ControlKeys
from adapters.redis.node import INSTALL, STEP
from adapters.redis.survey import LOOK
from adapters.urls import redacted, with_user
from sequencing.errors import OtherSideError, UnsupportedServer, UsageError

VERSION_MIN = 7
"""Reading and writing are told apart, users have selectors, and there are functions, from Redis 7 on."""

PASSWORD_BYTES = 32

FCALL = "+fcall|"
FUNCTIONS = CONTROL, LEADING, STEP, INSTALL, LOOK, TOUCH


def _calling(*scripts: Script) -> tuple[str, ...]:
    return tuple(f"{FCALL}{script.function}" for script in scripts)


_CONNECTING = ("+ping", "+info", "+client|id", "+client|unblock", "+hello", "+time", "+acl|whoami")
_CONTROL_KEYS = (*(f"~{key}" for key in ControlKeys.of_connections), f"%R~{ControlKeys.lease}")
_NEWS = (f"%R~{ControlKeys.news}", f"%R~{ControlKeys.parts}", f"%R~{ControlKeys.past}:*", f"%R~{ControlKeys.past}")
_STEP_KEYS = tuple(f"~gamecast:{{*}}:{name}" for name in ("node", "steps", "counters", "publishers"))
_TELLING = (
    "+exists",
    "+hincrby",
    "+hset",
    "+hget",
    "+hdel",
    "+zadd",
    "+zrem",
    "+zscore",
    "+sadd",
    "+xadd",
    "+xrevrange",
    "+xread",
    "+xrange",
)
"""What introducing, beating, leaving and wanting do, following the news, and seeing whether anybody leads."""
_STEPPING = ("+hmget", "+hset", "+xadd", "+xtrim")
_DOUBTING = (f"~{ControlKeys.doubted}", f"~{ControlKeys.asked}")
"""Each of them tells the leader if it finds that a node has lost something."""
_PROBING = (f"(+hset +hdel +hgetall +pexpire ~{ControlKeys.probes})",)
"""Servers that record tell each other where they answer probes."""
_LINKS, _EGRESS = "gamecast:{*}:link:*", "gamecast:{*}:egress:*"
_PUSHING = ("+publish", f"&{_EGRESS}")
_PUSHED = ("+subscribe", "+unsubscribe", f"&{_EGRESS}")
"""What ends at a node is pushed to who reads it there. Redis cannot tell apart who may send and who may listen but by
commands."""

_PUBLISHER = (
    *(*_CONNECTING, *_calling(CONTROL, STEP), *_CONTROL_KEYS, *_NEWS, *_STEP_KEYS, *_TELLING, *_STEPPING),
    *(f"%W~{_LINKS}", *_DOUBTING, *_PROBING, *_PUSHING),
)

ROLES: dict[str, tuple[str, ...]] = {
    # Publishes; sees nothing of what anybody publishes.
    "publisher": (*_PUBLISHER, f"%W~{_EGRESS}"),
    # A game server: follows regions, for which it publishes markers, and publishes.
    "subscriber": (*_PUBLISHER, *_PUSHED, f"~{_EGRESS}"),
    # Carries frames over links.
    "relay": (
        *(*_CONNECTING, *_calling(STEP), *_NEWS, *_STEP_KEYS, *_STEPPING, *_PUSHING, "+xread", "+xrevrange", "+xrange"),
        *_DOUBTING,
        *(f"~{_LINKS}", f"%W~{_EGRESS}"),
    ),
    # A game server that remembers, for all gateways, which tokens were used and what was answered, and that may look at
    # everything for its metrics.
    "gateway": (
        *(*_PUBLISHER, *_calling(LOOK), *_PUSHED, f"~{_EGRESS}", f"~{_LINKS}"),
        "(+set +get +del +hset +hdel +hgetall ~gamecast:{gateway}:*)",
        "(+@read -keys -scan -randomkey -dbsize %R~gamecast:*)",
    ),
    # Looks at everything and changes nothing: the dashboard, metrics, `gamecast status`, `gamecast record`.
    "watcher": (
        *(*_CONNECTING, *_calling(LOOK, TOUCH), *_PUSHED, "~gamecast:*", "+memory|usage"),
        *("+get", "+pttl", "+hget", "+hmget", "+hgetall", "+hlen", "+hscan", "+smembers", "+zrange"),
        *("+xlen", "+xrange", "+xrevrange", "+xread", "+xinfo|stream"),
    ),
    # Makes the plans and installs them; registers nodes.
    "manager": (
        *(*_CONNECTING, *_calling(*FUNCTIONS), *_TELLING, *_STEPPING, *_PUSHING, *_PUSHED, "~gamecast:*"),
        *("+hlen", "+pttl", "+xinfo|stream", "+memory|usage"),
        *(
            "+get",
            "+set",
            "+del",
            "+expire",
            "+pexpire",
            "+hgetall",
            "+hkeys",
            "+hscan",
            "+hsetnx",
            "+smembers",
            "+scard",
            "+srem",
        ),
        *("+zrange", "+zrangebyscore", "+zremrangebyrank", "+zincrby", "+xlen"),
    ),
    # Ends what blocks a server, and sees who is connected and what was refused; touches no key.
    "operator": (
        *("+ping", "+info", "+hello", "+script|kill", "+function|kill", "+function|list", "+client|list"),
        *("+client|kill", "+slowlog|get", "+acl|log", "+acl|whoami"),
    ),
}


@dataclass(frozen=True, slots=True)
class RedisUser:
    """A user with its password, which its ``repr`` does not show."""

    role: str
    password: str

    def __repr__(self) -> str:
        return f"RedisUser({self.role!r})"

    def url(self, server_url: str) -> str:
        """Return the URL by which this user reaches a server."""
        return with_user(server_url, f"{quote(self.role, safe='')}:{quote(self.password, safe='')}")


@dataclass(frozen=True, slots=True)
class UserState:
    """What a server has of a user: whether it is there, and let in, and how many passwords it has.

    ``is_current``: whether the functions of this version are there, and it may call those of its part.
    """

    server: str
    role: str
    is_there: bool
    is_on: bool = False
    passwords: int = 0
    is_current: bool = False


def new_users(roles: Iterable[str] = tuple(ROLES)) -> dict[str, RedisUser]:
    """Return a user with a new password for each role; raises `UsageError` for one that there is not."""
    users: dict[str, RedisUser] = {}
    for role in roles:
        if role not in ROLES:
            raise UsageError(f"a role is {', '.join(ROLES)}, not {role!r}")
        users[role] = RedisUser(role, secrets.token_urlsafe(PASSWORD_BYTES))
    return users


async def create_users(server_urls: Sequence[str], users: Mapping[str, RedisUser]) -> None:
    """Create users on servers, as whoever the URLs name, and load the functions that they call.

    Those of these names that are there are replaced. Raises `UnsupportedServer` for a Redis before 7, and
    `NetworkError` or `OtherSideError`.
    """
    for url in server_urls:
        async with _operating(url) as connection:
            for role, user in users.items():
                rules = *_rules(role), *await _older_functions(connection, role)
                await connection.call("ACL", "SETUSER", role, "reset", "on", f">{user.password}", *rules)


async def load_functions(server_urls: Sequence[str]) -> None:
    """Load the functions of this version, and let the users that are there call them, with the passwords they have.

    Functions of other versions stay, for those who run them still. Raises as `create_users`.
    """
    for url in server_urls:
        async with _operating(url) as connection:
            for role in await _there(connection):
                rules = *_rules(role), *await _older_functions(connection, role)
                await connection.call("ACL", "SETUSER", role, "resetkeys", "-@all", "clearselectors", *rules)


async def add_passwords(server_urls: Sequence[str], users: Mapping[str, RedisUser]) -> None:
    """Give users a further password each; the ones before are good still.

    Raises as `create_users`, and `UsageError` for a user that is not there.
    """
    for url in server_urls:
        async with _operating(url) as connection:
            there = await _there(connection)
            for role, user in users.items():
                if role not in there:
                    raise UsageError(f"{redacted(url)} has no user {role!r}: make it with `gamecast users create`")
                await connection.call("ACL", "SETUSER", role, f">{user.password}")


async def drop_other_passwords(server_urls: Sequence[str], users: Mapping[str, RedisUser]) -> None:
    """Leave each user the one password, and close connections that others opened. Raises as `create_users`."""
    for url in server_urls:
        async with _operating(url) as connection:
            for role, user in users.items():
                await connection.call("ACL", "SETUSER", role, "resetpass", f">{user.password}")
                await connection.call("CLIENT", "KILL", "USER", role)


async def revoke_users(server_urls: Sequence[str], roles: Iterable[str]) -> None:
    """Let users in no more, and close their connections. Raises as `create_users`."""
    roles = new_users(roles)
    for url in server_urls:
        async with _operating(url) as connection:
            for role in roles:
                await connection.call("ACL", "SETUSER", role, "off", "resetpass")
                await connection.call("CLIENT", "KILL", "USER", role)


async def save_users(server_urls: Sequence[str]) -> list[str]:
    """Have servers write their users to their ACL files; return those that have no such file, and forget them.

    Raises `NetworkError`.
    """
    forgetful: list[str] = []
    for url in server_urls:
        connection = RedisConnection(url, SOLE_NODE)
        try:
            await connection.call("ACL", "SAVE")
        except OtherSideError:
            forgetful.append(redacted(url))
        finally:
            await connection.close()
    return forgetful


async def users_of(server_urls: Sequence[str]) -> list[UserState]:
    """Return what servers have of each user. Raises as `create_users`."""
    found: list[UserState] = []
    for url in server_urls:
        connection = RedisConnection(url, SOLE_NODE)
        try:
            told = await connection.pipeline([("ACL", "GETUSER", role) for role in ROLES])
            libraries = await connection.call("FUNCTION", "LIST", "LIBRARYNAME", "gamecast_*")
            loaded = {library[library.index(b"library_name") + 1].decode() for library in libraries}
            found += (_state(redacted(url), role, answer, loaded) for role, answer in zip(ROLES, told, strict=True))
        finally:
            await connection.close()
    return found


def _state(server: str, role: str, told: list[Any] | None, loaded: AbstractSet[str]) -> UserState:
    if told is None:
        return UserState(server, role, is_there=False)
    user = dict(zip(told[::2], told[1::2], strict=True))
    called = {rule for rule in ROLES[role] if rule.startswith(FCALL)}
    return UserState(
        server,
        role,
        is_there=True,
        is_on=b"on" in user[b"flags"],
        passwords=len(user[b"passwords"]),
        is_current=called <= set(_commands(told)) and {rule.removeprefix(FCALL) for rule in called} <= loaded,
    )


async def _older_functions(connection: RedisConnection, role: str) -> list[str]:
    """Return the rules by which a user calls functions of other versions: who runs those goes on."""
    told = await connection.call("ACL", "GETUSER", role)
    return [rule for rule in _commands(told) if rule.startswith(FCALL)] if told is not None else []


def _commands(told: list[Any]) -> list[str]:
    user = dict(zip(told[::2], told[1::2], strict=True))
    return str(user[b"commands"].decode()).split()


def _rules(role: str) -> tuple[str, ...]:
    return "resetchannels", *ROLES[role]


async def _there(connection: RedisConnection) -> list[str]:
    known = {name.decode() for name in await connection.call("ACL", "USERS")}
    return [role for role in ROLES if role in known]


@asynccontextmanager
async def _operating(url: str) -> AsyncIterator[RedisConnection]:
    """Give a connection to a server that has the functions of this version."""
    connection = RedisConnection(url, SOLE_NODE)
    try:
        info = parse_info(await connection.call("INFO", "server"))
        if int(info.get("redis_version", "0").partition(".")[0]) < VERSION_MIN:
            raise UnsupportedServer(f"{redacted(url)} is older than Redis {VERSION_MIN}, which users like these need")
        for script in FUNCTIONS:
            await connection.call("FUNCTION", "LOAD", "REPLACE", script.as_library)
        yield connection
    finally:
        await connection.close()
