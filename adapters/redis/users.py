"""The Redis users of a secured network: each may do what its part of the work needs, and nothing else.

The same users, with the same passwords, are on every server. So the URL of the control Redis with a user is all that a
program needs: nodes are registered without a user, and are accessed as that user (`adapters.urls.as_user_of`). Only
managers can write the registry, so no other user can redirect programs to another address, with their password.

Redis can restrict commands, keys, and the first word of some commands. So only operators may send scripts: what
gamecast runs on the server are functions (`Script.as_library`), which survive a restart, and each user may call those
of its part. A script from another program could block a server for any time.

Redis checks what a function does against the caller's rights, so these cannot be less than what the function does. A
publisher cannot read events, lead, change a plan or access a key of another program. A compromised publisher could
still write invalid data into the counters and streams that publishing writes: docs/security.md.
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
from adapters.redis.control import CONTROL, SOLE_NODE
from adapters.redis.controlkeys import ControlKeys
from adapters.redis.groups import Group, ask_sentinel, group_behind
from adapters.redis.leadercontrol import LEADING
from adapters.redis.node import INSTALL, STEP
from adapters.redis.nodereading import LOOK
from adapters.redis.presence import PRESENCE
from adapters.urls import redacted, with_finder, with_user
from sequencing.errors import OtherSideError, UnsupportedServer, UsageError

VERSION_MIN = 7
"""From Redis 7 on, reading and writing are separate rights, users have selectors, and there are functions."""

PASSWORD_BYTES = 32

FCALL = "+fcall|"
FUNCTIONS = CONTROL, PRESENCE, LEADING, STEP, INSTALL, LOOK, TOUCH


def _calling(*scripts: Script) -> tuple[str, ...]:
    return tuple(f"{FCALL}{script.function}" for script in scripts)


def _keys(*names: str) -> str:
    return " ".join(f"~{getattr(ControlKeys, name)}" for name in names)


_CONNECTING = ("+ping", "+info", "+client|id", "+client|unblock", "+hello", "+time", "+acl|whoami", "+wait")
_CONTROL_KEYS = (
    f"~{ControlKeys.connections}",
    *(f"%R~{key}" for key in (*ControlKeys.of_connections, ControlKeys.lease)),
    *(f"(+pexpire ~{ControlKeys.box('*')})", f"(+hexists %R~{ControlKeys.regions})"),
)
_NEWS = (
    *("+multi", "+exec", f"%R~{ControlKeys.news}", f"%R~{ControlKeys.past}:*", f"%R~{ControlKeys.past}"),
    *(f"(+get %R~{ControlKeys.plan})", f"(+hgetall %R~{ControlKeys.regions} %R~{ControlKeys.atoms})"),
    *(f"(+hget %R~{ControlKeys.state})", f"%R~{ControlKeys.woken}"),
    *(f"%R~{ControlKeys.superseded}", f"%R~{ControlKeys.box('*')}"),
)
_STEP_KEYS = tuple(f"~gamecast:{{*}}:{name}" for name in ("node", "steps", "counters", "publishers"))
_STEPPING = (
    f"(+hset +hincrby +hdel {' '.join(_STEP_KEYS)})",
    "(+xadd +xtrim %W~gamecast:{*}:link:* %W~gamecast:{*}:egress:*)",
)
_READING = ("+exists", "+hget", "+hmget", "+zscore", "+xrevrange", "+xread", "+xrange")
_WRITING = (
    f"(+hset +hincrby +hdel {_keys('incarnations', 'connections', 'said', 'boxes', 'doing')})",
    f"(+xadd {_keys('asked', 'changes', 'superseded')} ~{ControlKeys.box('*')})",
    f"(+zadd +zrem {_keys('alive', 'gone')})",
    f"(+sadd {_keys('published', 'expected')})",
)
"""The rights for registering, reporting, leaving, storing interests and following the news.

A command that writes is allowed for keys of its own type only: a key that does not exist yet gets no other type.
"""
_DOUBTING = (f"%R~{ControlKeys.doubted}", f"(+hset {_keys('doubted')})", f"(+xadd {_keys('asked')})")
"""Each of them reports to the leader if it finds that a node has lost something."""
_PROBING = (f"(+hset +hdel +hgetall +pexpire ~{ControlKeys.probes})",)
"""Recording servers share the addresses at which they answer probes."""
_ROWS = (
    f"(+del +hset +hdel +hgetall ~{ControlKeys.rows('*')})",
    f"(+smembers %R~{ControlKeys.counted('*')})",
    f"(+hscan %R~{ControlKeys.said} %R~{ControlKeys.heard} %R~gamecast:{{*}}:steps)",
)
"""What each connection wants; and what it has, for `Client.plan`."""
_LINKS, _EGRESS, _HEADS = "gamecast:{*}:link:*", "gamecast:{*}:egress:*", "gamecast:{*}:heads:*"
_VALUES = "gamecast:{*}:values:*"
_KEYS = (f"(+hget +hset +hmget +hlen +hdel ~{_HEADS} ~gamecast:{{*}}:keyed)", f"(+hset +hdel %W~{_VALUES})")
"""The heads of keys, which publishing compares and sets, and the values, which it sets."""
_DECIDING = tuple(f"~gamecast:{{*}}:{name}" for name in ("pending:*", "undecided", "verdicts", "outcomes"))
_LATER = (f"(+hget +hmget +hset +hdel +hgetall +exists {' '.join(_DECIDING)})",)
"""What several nodes decide of events of several regions, one after the other."""
_PRESENCE = (
    f"~{ControlKeys.present}",
    f"(+zadd +zrem +zscore +zrangebyscore ~{ControlKeys.present})",
    f"(+hset +hdel +hmget +hlen +hexists +hgetall +del ~{ControlKeys.present}:*)",
)
"""Who is present in which regions."""
_STATES = (f"(+hgetall %R~{_HEADS} %R~{_VALUES})",)
"""The keys of a region as they are."""
_UPDATES = "&gamecast:{*}:update:*"
"""The channels of updates, which may be lost."""
_PUSHING = ("+publish", f"&{_EGRESS}")
_PUSHED = ("+subscribe", "+unsubscribe", f"&{_EGRESS}")
"""Frames that end at a node are pushed to its readers. Redis can separate senders from listeners only by commands."""

_PUBLISHER = (
    *(
        *_CONNECTING,
        *_calling(CONTROL, PRESENCE, STEP),
        *_CONTROL_KEYS,
        *_NEWS,
        *_STEP_KEYS,
        *_READING,
        *_WRITING,
        *_STEPPING,
    ),
    *(*_DOUBTING, *_PROBING, *_ROWS, *_PUSHING, *_KEYS, *_LATER, _UPDATES, *_PRESENCE),
)

ROLES: dict[str, tuple[str, ...]] = {
    # Publishes; cannot read any events.
    "publisher": _PUBLISHER,
    # A game server: subscribes, which takes publishing of markers, and publishes.
    "subscriber": (*_PUBLISHER, *_PUSHED, *_STATES, f"~{_EGRESS}"),
    # Carries frames over links.
    "relay": (
        *(*_CONNECTING, *_calling(STEP), *_NEWS, *_STEP_KEYS, *_STEPPING, *_PUSHING, *_READING),
        *(*_DOUBTING, *_KEYS, *_LATER, f"~{_LINKS}", f"(+set ~{ControlKeys.carried('*')})"),
    ),
    # A game server that stores, for all gateways, used tokens and the answers to publishes, and that may read
    # everything for its metrics.
    "gateway": (
        *(*_PUBLISHER, *_calling(LOOK), *_PUSHED, *_STATES, f"~{_EGRESS}", f"~{_LINKS}"),
        "(+set +get +del +hset +hdel +hgetall ~gamecast:{gateway}:*)",
        "(+@read -keys -scan -randomkey -dbsize %R~gamecast:*)",
    ),
    # Reads everything and changes nothing: the dashboard, metrics, `gamecast status`, `gamecast record`.
    "watcher": (
        *(*_CONNECTING, *_calling(LOOK, TOUCH), *_PUSHED, "~gamecast:*", "+memory|usage"),
        *("+get", "+pttl", "+hget", "+hmget", "+hgetall", "+hlen", "+hscan", "+smembers", "+zrange", "+multi", "+exec"),
        *("+xlen", "+xrange", "+xrevrange", "+xread", "+xinfo|stream", "+type"),
    ),
    # Makes the plans and installs them; registers nodes.
    "manager": (
        *(*_CONNECTING, *_calling(*FUNCTIONS), *_READING, *_PUSHING, *_PUSHED, "~gamecast:*"),
        *("+hlen", "+pttl", "+xinfo|stream", "+memory|usage", "+type", "+acl|log", _UPDATES),
        *("+hincrby", "+hset", "+hdel", "+zadd", "+zrem", "+sadd", "+xadd", "+xtrim"),
        *(
            "+get",
            "+multi",
            "+exec",
            "+set",
            "+del",
            "+expire",
            "+pexpire",
            "+hgetall",
            "+hkeys",
            "+hscan",
            "+hsetnx",
            "+smembers",
            "+sismember",
            "+scard",
            "+srem",
        ),
        *("+zrange", "+zrangebyscore", "+zremrangebyrank", "+zincrby", "+xlen"),
    ),
    # Ends what blocks a server, and lists connections and refused commands; accesses no key.
    "operator": (
        *("+ping", "+info", "+hello", "+script|kill", "+function|kill", "+function|list", "+client|list"),
        *("+client|kill", "+slowlog|get", "+acl|log", "+acl|whoami"),
    ),
}


REPLICATING: dict[str, tuple[str, ...]] = {
    # A replica, at its master.
    "replica": ("+psync", "+replconf", "+ping"),
    # A sentinel, at the servers that it watches over.
    "sentinel": (
        *(
            "allchannels",
            "+multi",
            "+exec",
            "+slaveof",
            "+failover",
            "+ping",
            "+subscribe",
            "+publish",
            "+config|rewrite",
        ),
        *("+role", "+info", "+client|setname", "+client|kill", "+script|kill"),
    ),
}
"""Users of the servers themselves, where replicas may take over. No program connects as one of them."""

FINDER = "finder"
"""At the sentinels: who asks for the master, and may do nothing else."""
ALL = *ROLES, *REPLICATING, FINDER
FINDING = ("+ping", "+hello", "+sentinel|get-master-addr-by-name")


@dataclass(frozen=True, slots=True)
class RedisUser:
    """A user with its password, which its ``repr`` does not show."""

    role: str
    password: str

    def __repr__(self) -> str:
        return f"RedisUser({self.role!r})"

    def url(self, server_url: str) -> str:
        """Return the URL with which this user accesses a server."""
        return with_user(server_url, f"{quote(self.role, safe='')}:{quote(self.password, safe='')}")


def found_by(server_url: str, finder: RedisUser | None) -> str:
    """Return a URL whose sentinels are asked by ``finder``, if it names a password of theirs."""
    if finder is None or "sentinel_password=" not in server_url:
        return server_url
    password = quote(finder.password, safe="")
    return with_finder(server_url, [f"sentinel_username={finder.role}", f"sentinel_password={password}"])


@dataclass(frozen=True, slots=True)
class UserState:
    """The state of a user on a server: whether it exists and may log in, and how many passwords it has.

    ``is_current``: whether the functions of this version are there, and the user may do what this version's part needs.
    """

    server: str
    role: str
    is_there: bool
    is_on: bool = False
    passwords: int = 0
    is_current: bool = False


def new_users(roles: Iterable[str] = tuple(ROLES)) -> dict[str, RedisUser]:
    """Return a user with a new password for each role; raises `UsageError` for an unknown role."""
    users: dict[str, RedisUser] = {}
    for role in roles:
        if role not in ALL:
            raise UsageError(f"a role must be one of {', '.join(ROLES)}, not {role!r}")
        users[role] = RedisUser(role, secrets.token_urlsafe(PASSWORD_BYTES))
    return users


async def create_users(server_urls: Sequence[str], users: Mapping[str, RedisUser]) -> None:
    """Create users on servers, as the user that the URLs name, and load the functions that they call.

    On the replicas of these servers, too. With the user ``replica``, they follow their master as that user from now on;
    with ``sentinel`` and ``finder``, so do the sentinels. Existing users of these names are replaced. Raises
    `UnsupportedServer` for a Redis before 7, and `NetworkError` or `OtherSideError`.
    """
    for group in await _groups(server_urls):
        for url in group.servers:
            async with _operating(url) as connection:
                for role, user in users.items():
                    if role in ROLES:
                        rules = await _all_rules(connection, role)
                    elif role in REPLICATING and group.may_change:
                        rules = REPLICATING[role]
                    else:
                        continue
                    await connection.call("ACL", "SETUSER", role, "reset", "on", f">{user.password}", *rules)
        await _have_replicate(group, users)
        await _have_found(group, users, "reset", "on", *FINDING)


async def may_change(server_urls: Sequence[str]) -> bool:
    """Return whether any of these servers has replicas or sentinels, which need users of their own.

    Raises as `group_behind`.
    """
    return any(group.may_change for group in await _groups(server_urls))


async def load_functions(server_urls: Sequence[str]) -> None:
    """Load the functions of this version, and let the existing users call them, with their present passwords.

    Functions of other versions stay, for programs that still use them. Raises as `create_users`.
    """
    for url in await _servers(server_urls):
        async with _operating(url) as connection:
            for role in await _there(connection):
                rules = await _all_rules(connection, role)
                await connection.call("ACL", "SETUSER", role, "resetkeys", "-@all", "clearselectors", *rules)


async def add_passwords(server_urls: Sequence[str], users: Mapping[str, RedisUser]) -> None:
    """Give each user one more password; the earlier ones stay valid. Replicas and sentinels use theirs from now on.

    Raises as `create_users`, and `UsageError` for a missing user, with nothing changed.
    """
    groups = await _groups(server_urls)
    for url in [url for group in groups for url in group.servers]:
        async with _operating(url) as connection:
            there = await _there(connection)
            if missing := [role for role in users if role in ROLES and role not in there]:
                raise UsageError(f"{redacted(url)} has no user {missing[0]!r}: make it with `gamecast users create`")
    for group in groups:
        for url in group.servers:
            async with _operating(url) as connection:
                for role in await _there(connection, users):
                    await connection.call("ACL", "SETUSER", role, f">{users[role].password}")
        await _have_replicate(group, users)
        await _have_found(group, users)


async def drop_other_passwords(server_urls: Sequence[str], users: Mapping[str, RedisUser]) -> None:
    """Leave each user only this password, and close connections that used others. Raises as `create_users`."""
    for group in await _groups(server_urls):
        await _have_replicate(group, users)  # with these, whatever they used
        for url in group.servers:
            async with _operating(url) as connection:
                there = await _there(connection, ROLES | REPLICATING)
                for role, user in users.items():
                    if role in there:
                        await connection.call("ACL", "SETUSER", role, "resetpass", f">{user.password}")
                        if role in ROLES:  # a replica, or a sentinel, was told its new password
                            await connection.call("CLIENT", "KILL", "USER", role)
        await _have_found(group, users, "resetpass")


async def revoke_users(server_urls: Sequence[str], roles: Iterable[str]) -> None:
    """Lock users out, and close their connections. Raises as `create_users`."""
    roles = new_users(roles)
    for url in await _servers(server_urls):
        async with _operating(url) as connection:
            for role in roles:
                await connection.call("ACL", "SETUSER", role, "off", "resetpass")
                await connection.call("CLIENT", "KILL", "USER", role)


async def save_users(server_urls: Sequence[str]) -> list[str]:
    """Have servers write their users to their ACL files, and as whom they replicate to their configuration.

    Return what servers will forget when they restart, a sentence each. Raises `NetworkError`.
    """
    forgotten: list[str] = []
    for group in await _groups(server_urls):
        for url in group.servers:
            connection = RedisConnection(url, SOLE_NODE)
            try:
                is_saved = await _is_done(connection, "ACL", "SAVE")
                # Without an ACL file, with the users.
                is_written = group.may_change and await _is_done(connection, "CONFIG", "REWRITE")
                if not (is_saved or is_written):
                    forgotten.append(
                        f"{redacted(url)} loses its users when it restarts: configure an aclfile, and run this again"
                    )
                if group.may_change and not is_written:
                    forgotten.append(
                        f"{redacted(url)} loses masteruser and masterauth when it restarts: give it a configuration "
                        "file that it may write, and run this again"
                    )
            finally:
                await connection.close()
    return forgotten


async def _is_done(connection: RedisConnection, *command: str) -> bool:
    try:
        await connection.call(*command)
    except OtherSideError:
        return False
    return True


async def users_of(server_urls: Sequence[str]) -> list[UserState]:
    """Return the state of each user on servers. Raises as `create_users`."""
    states: list[UserState] = []
    for group in await _groups(server_urls):
        roles = [*ROLES, *(REPLICATING if group.may_change else ())]
        for url in group.servers:
            connection = RedisConnection(url, SOLE_NODE)
            try:
                told = await connection.pipeline([("ACL", "GETUSER", role) for role in roles])
                libraries = await connection.call("FUNCTION", "LIST", "LIBRARYNAME", "gamecast_*")
                loaded = {library[library.index(b"library_name") + 1].decode() for library in libraries}
                categories = await _categories(connection, told)
                states += (
                    _state(redacted(url), role, answer, loaded, categories)
                    for role, answer in zip(roles, told, strict=True)
                )
            finally:
                await connection.close()
    return states


async def _have_replicate(group: Group, users: Mapping[str, RedisUser]) -> None:
    """Have the servers of a group, and its sentinels, use their users; each server, for it may become a replica."""
    if "replica" in users and group.may_change:
        for url in group.servers:
            connection = RedisConnection(url, SOLE_NODE)
            try:
                user = users["replica"]
                await connection.call("CONFIG", "SET", "masteruser", user.role, "masterauth", user.password)
            finally:
                await connection.close()
    if "sentinel" in users:
        user = users["sentinel"]
        for url in group.sentinels:
            changed = "auth-user", user.role, "auth-pass", user.password  # at once, so that no login fails
            await ask_sentinel(url, "SENTINEL", "SET", group.service, *changed)


async def _have_found(group: Group, users: Mapping[str, RedisUser], *rules: str) -> None:
    """Give the sentinels the user who asks for the master."""
    if FINDER in users:
        for url in group.sentinels:
            await ask_sentinel(url, "ACL", "SETUSER", FINDER, *rules, f">{users[FINDER].password}")
            await ask_sentinel(url, "SENTINEL", "FLUSHCONFIG")


async def _groups(server_urls: Sequence[str]) -> list[Group]:
    return [await group_behind(url) for url in server_urls]


async def _servers(server_urls: Sequence[str]) -> list[str]:
    return [url for group in await _groups(server_urls) for url in group.servers]


def _state(
    server: str,
    role: str,
    told: list[Any] | None,
    loaded: AbstractSet[str],
    categories: Mapping[str, AbstractSet[str]],
) -> UserState:
    if told is None:
        return UserState(server, role, is_there=False)
    user, rules = _fields(told), {**ROLES, **REPLICATING}[role]
    called = {rule.removeprefix(FCALL) for rule in rules if rule.startswith(FCALL)}
    return UserState(
        server,
        role,
        is_there=True,
        is_on=b"on" in user[b"flags"],
        passwords=len(user[b"passwords"]),
        is_current=called <= loaded and _has_all(user, rules, categories),
    )


def _has_all(user: Mapping[bytes, Any], rules: Iterable[str], categories: Mapping[str, AbstractSet[str]]) -> bool:
    """Return whether a user, as the server tells it, has all rights that rules give. It may have others, too."""
    own = _rights_in(user, categories)
    selectors = [_rights_in(_fields(each), categories) for each in user.get(b"selectors", ())]
    for rule in rules:
        if rule.startswith("("):
            wanted = [right for right in rule[1:-1].split() if right[0] != "-" and not right.startswith("+@")]
            if not any(all(_is_in(right, there) for right in wanted) for there in selectors):
                return False
        elif not _is_in({"allchannels": "&*"}.get(rule, rule), own):
            return False
    return True


def _is_in(right: str, rights: AbstractSet[str]) -> bool:
    """Return whether a right is among others; one for all keys, or all channels, and one to both read and write a key
    stand for what they include.
    """
    kind, _, pattern = right.rpartition("~")
    return right in rights or (kind[:1] == "%" and f"~{pattern}" in rights) or _all_of(right) in rights


def _all_of(right: str) -> str:
    return "&*" if right[0] == "&" else "~*" if right[0] in "~%" else right


def _rights_in(told: Mapping[bytes, Any], categories: Mapping[str, AbstractSet[str]]) -> set[str]:
    """Return rights, with each command by its name; servers tell some of them as categories."""
    rights: set[str] = set()
    for rule in told[b"commands"].decode().split():
        names = categories.get(rule[2:], frozenset()) if rule[1] == "@" else {rule[1:]}
        changed = {f"+{name}" for name in names}
        rights = rights | changed if rule[0] == "+" else rights - changed
    return rights | {right for field in (b"keys", b"channels") for right in told[field].decode().split()}


def _fields(told: Sequence[Any]) -> dict[bytes, Any]:
    return dict(zip(told[::2], told[1::2], strict=True))


async def _categories(connection: RedisConnection, told: Iterable[list[Any] | None]) -> dict[str, AbstractSet[str]]:
    """Return the commands of the categories that users are told to have."""
    users = [_fields(each) for each in told if each is not None]
    rules = [each[b"commands"] for user in users for each in (user, *map(_fields, user.get(b"selectors", ())))]
    names = sorted({rule[2:] for each in rules for rule in each.decode().split() if rule[1] == "@"} - {"all"})
    known = await connection.pipeline([("ACL", "CAT", name) for name in names]) if names else []
    return {name: {each.decode() for each in there} for name, there in zip(names, known, strict=True)}


async def _newer_commands(connection: RedisConnection) -> list[str]:
    """Return the rules for the commands that not every supported server has."""
    [known] = await connection.call("COMMAND", "INFO", "waitaof")
    return ["+waitaof"] if known else []


async def _older_functions(connection: RedisConnection, role: str) -> list[str]:
    """Return the rules by which a user calls functions of other versions, for programs that still use them."""
    told = await connection.call("ACL", "GETUSER", role)
    return [rule for rule in _commands(told) if rule.startswith(FCALL)] if told is not None else []


def _commands(told: list[Any]) -> list[str]:
    return str(_fields(told)[b"commands"].decode()).split()


async def _all_rules(connection: RedisConnection, role: str) -> tuple[str, ...]:
    older = await _older_functions(connection, role)
    return "resetchannels", *ROLES[role], *await _newer_commands(connection), *older


async def _there(connection: RedisConnection, roles: Iterable[str] = ROLES) -> list[str]:
    known = {name.decode() for name in await connection.call("ACL", "USERS")}
    return [role for role in roles if role in known]


@asynccontextmanager
async def _operating(url: str) -> AsyncIterator[RedisConnection]:
    """Open a connection to a server that has the functions of this version; a replica has those of its master."""
    connection = RedisConnection(url, SOLE_NODE)
    try:
        info = parse_info(await connection.call("INFO"))
        if int(info.get("redis_version", "0").partition(".")[0]) < VERSION_MIN:
            raise UnsupportedServer(f"{redacted(url)} is older than Redis {VERSION_MIN}, which users like these need")
        for script in FUNCTIONS if info.get("role") != "slave" else ():
            await connection.call("FUNCTION", "LOAD", "REPLACE", script.as_library)
        yield connection
    finally:
        await connection.close()
