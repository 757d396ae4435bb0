"""Where the Redis server is: in one place for ever, where Sentinel says, or where a cluster says.

All keys that a connection touches are under one hash tag, so one master at a time has them all. Its address is asked
for each time a connection is opened: of the sentinels or cluster nodes in the URL, one after the other, on connections
that end with the answer; who answered is asked first the next time. (redis-py's ``Sentinel`` and ``RedisCluster`` share
pooled connections between tasks, and begin with the first address each time: callers with little time never get past
one that is away.)

A redirection comes before a command is carried out, so what was redirected certainly had no effect.
"""

from __future__ import annotations

import asyncio
import math
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple
from urllib.parse import unquote

import hiredis
import redis.asyncio
from redis import crc, exceptions

from adapters.urls import ESCAPES, split_url
from sequencing.errors import Unreachable

CONNECT_TIMEOUT_S = 5.0

SEED_TIMEOUT_S = 1.0
"""How long one sentinel or cluster node may take to say where the master is."""

READ_BYTES = 1 << 20
"""What is asked of the socket at once: replies of many frames are large."""

LOOK_AGAIN_S = 0.5
LOOK_AGAIN_TIMEOUT_S = 0.2
"""Sentinel makes a replica the master while the old one still answers, and tells that one no sooner than 8 s later. So
whoever uses a connection asks again, if nobody in this process did so lately; without an answer it stays where it is.
"""

LEARNED_MAX = 32
"""Of a large cluster, no more nodes are remembered."""

SENTINEL_PORT, REDIS_PORT = 26379, 6379

_ELSEWHERE = exceptions.MovedError, exceptions.AskError, exceptions.TryAgainError, exceptions.ClusterDownError
_NO_MASTER = re.compile(r"(UNBLOCKED|NOREPLICAS) |.*-(READONLY|NOREPLICAS) ", re.DOTALL)
"""What redis-py has no class for: a read that waited where no master is any more, a master that may not write without
its replicas, and what Redis 6.2 says from within a script. (At its first write, if at any.)"""


def is_from_no_master(error: Exception) -> bool:
    """Return whether a server answered that it is a replica, or may not write just now. The command had no effect."""
    return isinstance(error, exceptions.ReadOnlyError) or (
        isinstance(error, exceptions.ResponseError) and _NO_MASTER.match(str(error)) is not None
    )


class Address(NamedTuple):
    """Of a server; as text, it is as URLs have it."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @classmethod
    def parse(cls, text: str, port: int) -> Address:
        """Read ``host`` or ``host:port``; ``port`` is the usual one. Raises `ValueError`."""
        found = re.fullmatch(r"(?:\[([^\[\]]+)\]|([^\[\]:]+))(?::(\d{1,5}))?", text)
        if found is None:
            raise ValueError("it names its servers as host:port,host:port")
        return cls(unquote(found[1] or found[2]), int(found[3] or port))


class Places(ABC):
    """Finds one master, which is in another place after each failover. Belongs to one connection."""

    asked: ClassVar[str]
    """Who is asked, for messages."""

    script_keys: tuple[str, ...] = ()
    """Keys to declare for each script, after its own."""

    check: tuple[str, ...] | None = None
    """A command without an effect that is refused where the master is not, if there is one."""

    def __init__(self, seeds: Sequence[Address]) -> None:
        self._given = tuple(seeds)
        self._seeds = list(seeds)
        self._at = seeds[0]
        self._hint: Address | None = None

    @property
    def first_url(self) -> str:
        """A URL of some server, to see whether its options can be understood."""
        return self.url_of(self._at)

    async def look(self) -> str:
        """Return the URL of the master as it is now.

        Raises `Unreachable` when nobody knows one, and redis-py's errors when who is asked refuses to say.
        """
        if self._hint is not None:
            self._at, self._hint = self._hint, None
            return self.url_of(self._at)
        failures: list[str] = []
        refusal: Exception | None = None
        for seed in list(self._seeds):
            self.doubt()  # who takes longer than our caller has time is not the first to be asked again
            try:
                async with asyncio.timeout(SEED_TIMEOUT_S):
                    self._at, learned = self.understood(await _ask(self.seed_url(seed), self.question()), seed)
            except (exceptions.AuthenticationError, exceptions.AuthorizationError, exceptions.ResponseError) as error:
                refusal = error
            except (exceptions.RedisError, OSError, TimeoutError, Unreachable) as error:
                failures.append(f"{seed}: {str(error) or type(error).__name__}")
            else:
                self._seeds = list(dict.fromkeys((seed, *self._given, *learned[:LEARNED_MAX])))
                return self.url_of(self._at)
        if refusal is not None:
            raise refusal
        raise Unreachable(f"no {self.asked} knows where the master is ({'; '.join(failures)})")

    async def has_left(self) -> bool:
        """Return whether the master is known to be elsewhere than `look` found it, although nothing there says so."""
        return False

    def doubt(self) -> None:
        """Ask somebody else first the next time."""
        self._seeds.append(self._seeds.pop(0))

    def has_moved(self, error: Exception) -> bool:
        """Return whether the master's answer says that it is elsewhere, or that it cannot be asked now.

        Then the command had no effect.
        """
        if isinstance(error, exceptions.MovedError):
            # Without a host, it is the one that answered.
            self._hint = Address(error.host.strip("[]") if error.host not in ("", "?") else self._at.host, error.port)
            return True
        if isinstance(error, exceptions.ClusterDownError):
            self.doubt()
        return isinstance(error, _ELSEWHERE) or is_from_no_master(error)

    @abstractmethod
    def seed_url(self, seed: Address) -> str:
        """Return a redis:// URL of somebody who can be asked."""

    @abstractmethod
    def url_of(self, master: Address) -> str:
        """Return a redis:// URL of the master."""

    @abstractmethod
    def question(self) -> tuple[str, ...]:
        """Return the command that asks."""

    @abstractmethod
    def understood(self, answer: Any, seed: Address) -> tuple[Address, Sequence[Address]]:
        """Return what an answer says: where the master is, and who else can be asked. Raises `Unreachable`."""


class SentinelPlaces(Places):
    """The master of a service that Sentinel watches over."""

    asked = "sentinel"

    _said: ClassVar[dict[tuple[object, ...], tuple[float, Address]]] = {}
    """Sentinels and service → when they were asked last, and what they said."""

    def __init__(self, parts: _Parts) -> None:
        """Raises `ValueError`."""
        super().__init__([Address.parse(each, SENTINEL_PORT) for each in parts.hosts])
        self._service = unquote(parts.path.strip("/"))
        if not self._service:
            raise ValueError("it names the service after the sentinels: redis+sentinel://host:port/SERVICE")
        mine = [option for option in parts.options if not option.startswith("sentinel_")]
        # Who watches has users of its own, and no databases.
        theirs = [option for option in mine if option.partition("=")[0] not in ("username", "password", "db")]
        theirs += [option.removeprefix("sentinel_") for option in parts.options if option not in mine]
        self._who = *self._given, self._service
        self._seed = f"{parts.scheme}://", _query(theirs)
        self._master = f"{parts.scheme}://{parts.credentials}", _query(mine)

    def seed_url(self, seed: Address) -> str:
        """See `Places.seed_url`."""
        return str(seed).join(self._seed)

    def url_of(self, master: Address) -> str:
        """See `Places.url_of`."""
        return str(master).join(self._master)

    def question(self) -> tuple[str, ...]:
        """See `Places.question`."""
        return "SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._service

    def understood(self, answer: Any, seed: Address) -> tuple[Address, Sequence[Address]]:
        """See `Places.understood`."""
        if not answer:
            raise Unreachable(f"it watches over no service {self._service!r}")
        host, port = answer
        master = Address(host.decode(), int(port))
        self._said[self._who] = time.monotonic(), master
        return master, ()

    async def has_left(self) -> bool:
        """See `Places.has_left`."""
        asked_at, master = self._said[self._who]
        if time.monotonic() - asked_at > LOOK_AGAIN_S:
            # Who comes while this is being asked asks, too: until there is an answer, nothing is known.
            try:
                async with asyncio.timeout(LOOK_AGAIN_TIMEOUT_S):
                    master, _ = self.understood(await _ask(self.seed_url(self._seeds[0]), self.question()), self._at)
            except (exceptions.RedisError, OSError, TimeoutError, Unreachable):
                self.doubt()
                self._said[self._who] = time.monotonic(), master
        return master != self._at


class ClusterPlaces(Places):
    """The master that serves a hash tag's slot."""

    asked = "node of the cluster"

    def __init__(self, parts: _Parts, tag: str) -> None:
        """Raises `ValueError`."""
        super().__init__([Address.parse(each, REDIS_PORT) for each in parts.hosts])
        if not tag:
            raise ValueError("in a cluster, only what is under one hash tag has a place")
        if parts.path.strip("/") not in ("", "0") or any(map(_OTHER_DATABASE.match, parts.options)):
            raise ValueError("a cluster has no database but 0")
        nowhere = f"gamecast:{{{tag}}}:-"
        self._slot = crc.key_slot(nowhere.encode())
        self._url = f"{parts.scheme}://{parts.credentials}", _query(parts.options)
        self.check = ("EXISTS", nowhere)
        # A key that never exists. While the slot is being migrated, a script that names its streams itself could find
        # one of them gone, and be broken off halfway; with this key declared, it is sent back before it begins.
        self.script_keys = (nowhere,)

    def seed_url(self, seed: Address) -> str:
        """See `Places.seed_url`."""
        return str(seed).join(self._url)

    def url_of(self, master: Address) -> str:
        """See `Places.url_of`."""
        return str(master).join(self._url)

    def question(self) -> tuple[str, ...]:
        """See `Places.question`."""
        return "CLUSTER", "SLOTS"  # CLUSTER SHARDS is not in Redis 6.2

    def understood(self, answer: Any, seed: Address) -> tuple[Address, Sequence[Address]]:
        """See `Places.understood`."""
        known: dict[Address, None] = {}
        found: Address | None = None
        for first, last, *servers in answer:
            # Who does not know its own address leaves it out.
            hosts = (host.decode() if host not in (None, b"", b"?") else seed.host for host, *_ in servers)
            addresses = [Address(host, int(server[1])) for host, server in zip(hosts, servers, strict=True)]
            known.update(dict.fromkeys(addresses))
            if first <= self._slot <= last:
                found = addresses[0]
        if found is None:
            raise Unreachable(f"no master serves slot {self._slot}")
        return found, list(known)


class _Parts(NamedTuple):
    """Of a URL: ``credentials`` end with an @ when there are any."""

    scheme: str
    credentials: str
    hosts: list[str]
    path: str
    options: list[str]


def moves(url: str) -> bool:
    """Return whether what is at a URL may be on another server soon, perhaps with less than it had."""
    return url.partition("://")[0] in _MOVING


def tag_in(url: str, tag: str) -> str:
    """Return a hash tag if what is under it has a place of its own at a URL, "" if all tags are on one server there."""
    return tag if url.partition("://")[0].endswith("+cluster") else ""


def places_of(url: str, tag: str) -> Places | None:
    """Return what finds the master, None for a server that stays where it is; raises `ValueError`."""
    kind, _, rest = url.partition("://")
    if kind not in _MOVING:
        return None
    place, _, query = rest.partition("?")
    authority, _, path = place.partition("/")
    credentials, at, hosts = authority.rpartition("@")
    options = [option for option in query.split("&") if option]
    parts = _Parts(_MOVING[kind], credentials + at, hosts.split(","), path, options)
    return ClusterPlaces(parts, tag) if kind.endswith("+cluster") else SentinelPlaces(parts)


def connection_to(url: str) -> Any:
    """Return a connection of redis-py that is not open yet; raises `ValueError` and `TypeError` for what is no URL."""
    _require_place(url)
    pool = redis.asyncio.ConnectionPool.from_url(url)
    # Set here, because options in the URL would override arguments.
    pool.connection_kwargs.update(
        protocol=2,
        decode_responses=False,
        socket_timeout=None,
        socket_connect_timeout=CONNECT_TIMEOUT_S,
        socket_read_size=READ_BYTES,
        driver_info=None,
    )
    return pool.make_connection()  # type: ignore[no-untyped-call]


def _require_place(url: str) -> None:
    """Raise `ValueError` for what redis-py would take for something else, or would repeat though it may be a secret."""
    parts = split_url(url)
    if parts.scheme == "unix":
        if not parts.path:
            raise ValueError("it names no socket: unix:///run/redis.sock")
        return
    try:
        parts.port  # noqa: B018 - it is looked at when it is asked for
    except ValueError:
        raise ValueError(f"its port is no number ({ESCAPES})") from None
    database = parts.path.removeprefix("/")
    if database and not database.isdecimal():
        raise ValueError("a database has a number, as in redis://127.0.0.1:6379/0")


async def _ask(url: str, question: tuple[Any, ...]) -> Any:
    connection = connection_to(url)
    try:
        await connection.connect()
        await connection.send_packed_command([hiredis.pack_command(question)], check_health=False)
        return await connection.read_response(disable_decoding=True, timeout=math.inf)
    finally:
        await connection.disconnect(nowait=True)


def _query(options: Sequence[str]) -> str:
    return f"?{'&'.join(options)}" if options else ""


SINGLE_SERVER_SCHEMES = ("redis", "rediss", "unix")
"""Schemes of URLs that name one server."""

_MOVING = {
    "redis+sentinel": "redis",
    "rediss+sentinel": "rediss",
    "redis+cluster": "redis",
    "rediss+cluster": "rediss",
}
SCHEMES = (*SINGLE_SERVER_SCHEMES, *_MOVING)
"""Schemes of URLs of Redis servers."""

_OTHER_DATABASE = re.compile(r"db=(?!0*$)")
