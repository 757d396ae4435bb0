"""Find the Redis server: at a fixed address, where Sentinel says, or where a cluster says.

All keys of a connection are under one hash tag, so one master at a time has them all. Its address is requested each
time a connection is opened. The sentinels or cluster nodes in the URL are asked one after the other, on connections
that end with the answer. The one that answered is asked first the next time. (redis-py's ``Sentinel`` and
``RedisCluster`` share pooled connections between tasks, and begin with the first address each time. With a short
timeout, callers never get past an address that is down.)

A redirection comes before a command is carried out, so a redirected command certainly had no effect.
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

from adapters.redis.tls import share_context
from adapters.urls import ESCAPES, own_options, split_url
from sequencing.errors import Unreachable

CONNECT_TIMEOUT_S = 5.0

SEED_TIMEOUT_S = 1.0
"""How long one sentinel or cluster node may take to report the master's address."""

READ_BYTES = 1 << 20
"""How much is read from the socket at once: replies with many frames are large."""

LOOK_AGAIN_S = 0.5
LOOK_AGAIN_TIMEOUT_S = 0.2
"""How long to wait for Sentinel when a connection asks again for the master.

Sentinel promotes a replica while the old master still answers, and informs the old master 8 s later at the soonest. So
a user of a connection asks again, unless this process did so recently; without an answer it keeps its server.
"""

REPLICAS_MAX = 64
"""How many replicas of one master are looked at."""

LEARNED_MAX = 32
"""How many nodes of a large cluster are remembered."""

SENTINEL_PORT, REDIS_PORT = 26379, 6379

_ELSEWHERE = exceptions.MovedError, exceptions.AskError, exceptions.TryAgainError, exceptions.ClusterDownError
_NO_MASTER = re.compile(r"(UNBLOCKED|NOREPLICAS) |.*-(READONLY|NOREPLICAS) ", re.DOTALL)
"""Errors without a class in redis-py.

They are a blocking read at a former master, a master that may not write without its replicas, and their forms within a
script in Redis 6.2. (Those come at the script's first write, if at all.)
"""


def is_from_no_master(error: Exception) -> bool:
    """Return whether a server answered that it is a replica, or may not write now. The command had no effect."""
    return isinstance(error, exceptions.ReadOnlyError) or (
        isinstance(error, exceptions.ResponseError) and _NO_MASTER.match(str(error)) is not None
    )


class Address(NamedTuple):
    """The address of a server; its text is in the form of URLs."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @classmethod
    def parse(cls, text: str, port: int) -> Address:
        """Parse ``host`` or ``host:port``; ``port`` is the default. Raises `ValueError`."""
        match = re.fullmatch(r"(?:\[([^\[\]]+)\]|([^\[\]:]+))(?::(\d{1,5}))?", text)
        if match is None:
            raise ValueError("it names its servers as host:port,host:port")
        return cls(unquote(match[1] or match[2]), int(match[3] or port))


class Places(ABC):
    """Finds one master, which has another address after each failover. Belongs to one connection."""

    asked: ClassVar[str]
    """The kind of server that is asked, for messages."""

    script_keys: tuple[str, ...] = ()
    """Keys to declare for each script, after its own."""

    check: tuple[str, ...] | None = None
    """A command without an effect that every server but the master refuses, if there is one."""

    _order: ClassVar[dict[tuple[Address, ...], tuple[Address, ...]]] = {}
    """Given servers → in which order they are asked: the one that answered last first, by all connections."""

    def __init__(self, seeds: Sequence[Address]) -> None:
        self._given = tuple(seeds)
        self._seeds = list(self._order.get(self._given, seeds))
        self._at = seeds[0]
        self._hint: Address | None = None

    @property
    def first_url(self) -> str:
        """A URL of any server, to check its options."""
        return self.url_of(self._at)

    @property
    def seeds(self) -> tuple[Address, ...]:
        """The servers that can be asked, the one that answered last first."""
        return tuple(self._seeds)

    async def look(self) -> str:
        """Return the current URL of the master.

        Raises `Unreachable` if no server knows one, and redis-py's errors if a server refuses to answer.
        """
        if self._hint is not None:
            self._at, self._hint = self._hint, None
            return self.url_of(self._at)
        failures: list[str] = []
        refusal: Exception | None = None
        for seed in list(self._seeds):
            self.doubt()  # a server that takes longer than the caller has time is not asked first again
            try:
                async with asyncio.timeout(SEED_TIMEOUT_S):
                    self._at, learned = self.understood(await ask(self.seed_url(seed), self.question()), seed)
            except (exceptions.AuthenticationError, exceptions.AuthorizationError, exceptions.ResponseError) as error:
                refusal = error
            except (exceptions.RedisError, OSError, TimeoutError, Unreachable) as error:
                failures.append(f"{seed}: {str(error) or type(error).__name__}")
            else:
                self._seeds = list(dict.fromkeys((seed, *self._given, *learned[:LEARNED_MAX])))
                self._order[self._given] = tuple(self._seeds)
                return self.url_of(self._at)
        if refusal is not None:
            raise refusal
        raise Unreachable(f"no {self.asked} knows where the master is ({'; '.join(failures)})")

    async def has_left(self) -> bool:
        """Return whether the master is known to have moved since `look`, although the server there does not say so."""
        return False

    def doubt(self) -> None:
        """Ask another server first the next time."""
        self._seeds.append(self._seeds.pop(0))

    def has_moved(self, error: Exception) -> bool:
        """Return whether the master's answer says that it has moved, or that it cannot serve now.

        Then the command had no effect.
        """
        if isinstance(error, exceptions.MovedError):
            # Without a host, it is the server that answered.
            self._hint = Address(error.host.strip("[]") if error.host not in ("", "?") else self._at.host, error.port)
            return True
        if isinstance(error, exceptions.ClusterDownError):
            self.doubt()
        return isinstance(error, _ELSEWHERE) or is_from_no_master(error)

    @abstractmethod
    def seed_url(self, seed: Address) -> str:
        """Return a redis:// URL of a server that can be asked."""

    @abstractmethod
    def url_of(self, master: Address) -> str:
        """Return a redis:// URL of the master."""

    @abstractmethod
    def question(self) -> tuple[str, ...]:
        """Return the command that asks for the master."""

    @abstractmethod
    def understood(self, answer: Any, seed: Address) -> tuple[Address, Sequence[Address]]:
        """Return the content of an answer: the master's address, and other servers to ask. Raises `Unreachable`."""


class SentinelPlaces(Places):
    """The master of a service that Sentinel monitors."""

    asked = "sentinel"

    _said: ClassVar[dict[tuple[object, ...], tuple[float, Address]]] = {}
    """Sentinels and service → the time and the content of their last answer."""

    def __init__(self, parts: _Parts) -> None:
        """Raises `ValueError`."""
        super().__init__([Address.parse(each, SENTINEL_PORT) for each in parts.hosts])
        self.service = unquote(parts.path.strip("/"))
        """The name under which the sentinels know the master."""
        if not self.service:
            raise ValueError("it names the service after the sentinels: redis+sentinel://host:port/SERVICE")
        mine = [option for option in parts.options if not option.startswith("sentinel_")]
        # Sentinels have users of their own, and no databases.
        theirs = [option for option in mine if option.partition("=")[0] not in ("username", "password", "db")]
        theirs += [option.removeprefix("sentinel_") for option in parts.options if option not in mine]
        self._who = *self._given, self.service
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
        return "SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.service

    def understood(self, answer: Any, seed: Address) -> tuple[Address, Sequence[Address]]:
        """See `Places.understood`."""
        if not answer:
            raise Unreachable(f"it does not monitor the service {self.service!r}")
        host, port = answer
        master = Address(host.decode(), int(port))
        self._said[self._who] = time.monotonic(), master
        return master, ()

    async def has_left(self) -> bool:
        """See `Places.has_left`."""
        asked_at, master = self._said[self._who]
        if time.monotonic() - asked_at > LOOK_AGAIN_S:
            # A caller that comes during this request asks, too: until there is an answer, nothing is known.
            try:
                async with asyncio.timeout(LOOK_AGAIN_TIMEOUT_S):
                    master, _ = self.understood(await ask(self.seed_url(self._seeds[0]), self.question()), self._at)
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
            raise ValueError("in a cluster, a connection needs one hash tag for its keys")
        if parts.path.strip("/") not in ("", "0") or any(map(_OTHER_DATABASE.match, parts.options)):
            raise ValueError("a cluster has no database but 0")
        nowhere = f"gamecast:{{{tag}}}:-"
        self._slot = crc.key_slot(nowhere.encode())
        self._url = f"{parts.scheme}://{parts.credentials}", _query(parts.options)
        self.check = ("EXISTS", nowhere)
        # A key that never exists. While the slot migrates, a script that computes the names of its streams could find
        # one of them missing, and stop halfway; with this key declared, it is redirected before it begins.
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
        primary: Address | None = None
        for first, last, *servers in answer:
            # A node that does not know its own address leaves it out.
            hosts = (host.decode() if host not in (None, b"", b"?") else seed.host for host, *_ in servers)
            addresses = [Address(host, int(server[1])) for host, server in zip(hosts, servers, strict=True)]
            known.update(dict.fromkeys(addresses))
            if first <= self._slot <= last:
                primary = addresses[0]
        if primary is None:
            raise Unreachable(f"no master serves slot {self._slot}")
        return primary, list(known)


class _Parts(NamedTuple):
    """The parts of a URL: ``credentials`` end with an @ if there are any."""

    scheme: str
    credentials: str
    hosts: list[str]
    path: str
    options: list[str]


def moves(url: str) -> bool:
    """Return whether a URL's server may be replaced by another one, perhaps with less data."""
    return url.partition("://")[0] in _MOVING


def tag_in(url: str, tag: str) -> str:
    """Return the hash tag if a URL's server depends on it, "" if all tags are on one server there."""
    return tag if url.partition("://")[0].endswith("+cluster") else ""


def places_of(url: str, tag: str) -> Places | None:
    """Return what finds the master, None for a fixed server; raises `ValueError`."""
    url, _ = own_options(url)
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
    """Return a connection of redis-py that is not open yet; raises `ValueError` and `TypeError` for an invalid URL."""
    url, _ = own_options(url)
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
    connection = pool.make_connection()  # type: ignore[no-untyped-call]
    share_context(connection)
    return connection


def _require_place(url: str) -> None:
    """Raise `ValueError` for a URL that redis-py would misread, or would repeat although it may have a secret."""
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


async def ask(url: str, question: tuple[Any, ...]) -> Any:
    """Ask one server one thing, on a connection that ends with the answer. Raises redis-py's errors, and `OSError`."""
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
