"""The Redis users of a secured network: each may do what its part of the work needs, and nothing else.

The same users, with the same passwords, are on every server, so the URL of the control Redis with a user in it is all
that somebody needs: nodes are registered without one, and are reached as that user (`adapters.urls.as_user_of`).

What Redis can tell apart are commands and keys, for scripts too. Scripts are not: who may run one may run any, within
these keys and commands. So a publisher cannot read what is published, take the lease, change a plan or touch a key that
is not gamecast's; but one that is taken over could write nonsense into the streams that it may write.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote

from adapters.redis.connection import RedisConnection, parse_info
from adapters.redis.control import SOLE_NODE, ControlKeys
from adapters.urls import redacted, with_user
from sequencing.errors import UnsupportedServer

VERSION_MIN = 7
"""Reading and writing are told apart, and users have selectors, from Redis 7 on."""

PASSWORD_BYTES = 32

_CONNECTING = ("+ping", "+info", "+client|id", "+client|unblock", "+hello", "+time")
_SCRIPTS = ("+eval", "+evalsha")
_CONTROL_KEYS = tuple(f"~{key}" for key in ControlKeys.script)
_NEWS = (f"%R~{ControlKeys.news}", f"%R~{ControlKeys.parts}")
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
_PROBING = (f"(+hset +hdel +hgetall +pexpire ~{ControlKeys.probes})",)
"""Servers that record tell each other where they answer probes."""
_LINKS, _EGRESS = "gamecast:{*}:link:*", "gamecast:{*}:egress:*"
_PUSHING = ("+publish", f"&{_EGRESS}")
_PUSHED = ("+subscribe", "+unsubscribe", f"&{_EGRESS}")
"""What ends at a node is pushed to who reads it there. Redis cannot tell apart who may send and who may listen but by
commands."""

_PUBLISHER = (
    *(*_CONNECTING, *_SCRIPTS, *_CONTROL_KEYS, *_STEP_KEYS, *_TELLING, *_STEPPING),
    *(f"%W~{_LINKS}", *_PROBING, *_PUSHING),
)

ROLES: dict[str, tuple[str, ...]] = {
    # Publishes; sees nothing of what anybody publishes.
    "publisher": (*_PUBLISHER, f"%W~{_EGRESS}"),
    # A game server: follows regions, for which it publishes markers, and publishes.
    "subscriber": (*_PUBLISHER, *_PUSHED, f"~{_EGRESS}"),
    # Carries frames over links.
    "relay": (
        *(*_CONNECTING, *_SCRIPTS, *_NEWS, *_STEP_KEYS, *_STEPPING, *_PUSHING, "+xread", "+xrevrange"),
        *(f"~{_LINKS}", f"%W~{_EGRESS}"),
    ),
    # A game server that remembers, for all gateways, which tokens were used and what was answered, and that may look at
    # everything for its metrics.
    "gateway": (
        *(*_PUBLISHER, *_PUSHED, f"~{_EGRESS}", f"~{_LINKS}"),
        *("(+set +get +del +hgetall ~gamecast:{gateway}:*)", "(+@read -keys -scan -randomkey -dbsize %R~gamecast:*)"),
    ),
    # Looks at everything and changes nothing: the dashboard, metrics, `gamecast status`, `gamecast record`.
    "watcher": (
        *(*_CONNECTING, *_SCRIPTS, *_PUSHED, "~gamecast:*", "+memory|usage"),
        *("+get", "+pttl", "+hget", "+hmget", "+hgetall", "+hlen", "+hscan", "+smembers", "+zrange"),
        *("+xlen", "+xrange", "+xrevrange", "+xread", "+xinfo|stream"),
    ),
    # Makes the plans and installs them.
    "manager": (
        *(*_CONNECTING, *_SCRIPTS, *_TELLING, *_STEPPING, *_PUSHING, "~gamecast:*"),
        *("+get", "+set", "+del", "+expire", "+hgetall", "+hkeys", "+hscan", "+hsetnx", "+smembers", "+scard", "+srem"),
        *("+zrange", "+zrangebyscore", "+zremrangebyrank", "+zincrby", "+xlen"),
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


def new_users() -> dict[str, RedisUser]:
    """Return a user with a new password for each role."""
    return {role: RedisUser(role, secrets.token_urlsafe(PASSWORD_BYTES)) for role in ROLES}


async def create_users(server_urls: Sequence[str], users: dict[str, RedisUser]) -> None:
    """Create users on servers, as whoever the URLs name; those of these names that are there are replaced.

    Raises `UnsupportedServer` for a Redis before 7, and `NetworkError` or `OtherSideError`.
    """
    for url in server_urls:
        connection = RedisConnection(url, SOLE_NODE)
        try:
            info = parse_info(await connection.call("INFO", "server"))
            if int(info.get("redis_version", "0").partition(".")[0]) < VERSION_MIN:
                raise UnsupportedServer(
                    f"{redacted(url)} is older than Redis {VERSION_MIN}, which users like these need"
                )
            for role, user in users.items():
                rules = ("reset", "on", f">{user.password}", "resetchannels", *ROLES[role])
                await connection.call("ACL", "SETUSER", role, *rules)
        finally:
            await connection.close()
