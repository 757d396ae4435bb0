"""One Redis server as seen from outside: what it reports, and what it refuses."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from redis import exceptions

from adapters.redis.connection import RedisConnection, Script, parse_info
from adapters.redis.places import REPLICAS_MAX, is_from_no_master, moves
from adapters.urls import own_options, redacted
from sequencing.errors import OtherSideError, Unreachable

ANSWER_S_MAX = 5.0
"""The time limit for one answer of a server; the nodes are asked at the same time."""


@dataclass(frozen=True, slots=True)
class ServerState:
    """One Redis server. ``None``, empty texts and a ``pid`` of 0 mean: the server does not report it to this user.

    ``clock_ahead_ms``: compared with this machine's clock, ± ``round_trip_ms / 2``. ``memory_bytes_max``: 0 is no
    limit. ``save``: the snapshot rules of redis.conf, empty if there are none. ``may_be_replaced``: by a replica that
    has less data. ``loading``: it has started and is still reading its data; until then it reports that it appends to
    no file, whatever its configuration. ``replicas``: those that follow it now; ``replicas_wanted``: how many of them
    must have what was written before it is acknowledged, by its URL; ``writes_need``: how many must be there for it to
    write at all (min-replicas-to-write).
    """

    run: str
    pid: int
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
    may_be_replaced: bool = False
    loading: bool = False
    replicas: int = 0
    replicas_wanted: int = 0
    writes_need: int | None = None
    disk_wanted: bool = False
    """Whether what was written must be on disk before it is acknowledged, by its URL."""
    product: str = "Redis"
    """Whose server it is, with its version: Redis, Valkey, Dragonfly, KeyDB."""
    loads_truncated: bool | None = None
    """Whether it starts from an AOF whose end is missing (aof-load-truncated)."""
    output_bytes_max: int = 0
    """Bytes that may wait for one reader before it is disconnected; 0 is no limit."""

    @property
    def keeps_all(self) -> bool:
        """Whether no acknowledged data is lost when it restarts or fails, as far as it reports that."""
        is_kept = self.append_only and self.appendfsync == "always"
        return is_kept and (not self.may_be_replaced or self.replicas_wanted > 0)


@dataclass(slots=True)
class ServerProbe:
    """Asks one server. It notes refused and invalid answers, and raises errors for an unreachable server.

    ``tag``: of the keys that it is asked about, see `RedisConnection`. ``answer_s_max``: the time limit for one reply;
    None for `ANSWER_S_MAX`.
    """

    url: str
    tag: str
    answer_s_max: float | None = None
    unread: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    _connection: RedisConnection = field(init=False)

    def __post_init__(self) -> None:
        self._connection = RedisConnection(self.url, self.tag)

    async def ask(self, *command: Any) -> Any:
        """Return the reply to a command, None for an error."""
        try:
            return await self._connection.call(*command, timeout_s=self.answer_s_max or ANSWER_S_MAX)
        except (OtherSideError, Unreachable) as error:
            self._note(" ".join(map(str, command[:2])), error)
            return None

    async def ask_each(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Return the replies to commands that are sent together, an empty one each for an error."""
        try:
            return list(await self._connection.pipeline(commands))
        except (OtherSideError, Unreachable) as error:
            self._note(str(commands[0][0]), error)
            return [()] * len(commands)

    async def scan(self, *command: Any) -> Any:
        """Return the reply to a HSCAN, that of an empty hash for an error."""
        return await self.ask(*command) or (b"0", ())

    async def run(self, script: Script, keys: Sequence[str]) -> Any:
        """Return the answer of a script, None for an error."""
        try:
            return await self._connection.run(script, keys)
        except (OtherSideError, Unreachable) as error:
            self._note("EVAL", error)
            return None

    async def close(self) -> None:
        await self._connection.close()

    async def describe(self) -> ServerState:
        """Read what the server reports about itself."""
        info = parse_info(await self.ask("INFO") or b"")
        before = time.time()
        clock = await self.ask("TIME")
        after = time.time()
        _, own = own_options(self.url)
        ahead_ms = None
        if clock is not None:
            ahead_ms = (int(clock[0]) + int(clock[1]) / 1e6 - (before + after) / 2) * 1000
        return ServerState(
            run=self._connection.run_in(info) or redacted(self.url),
            pid=whole(info.get("process_id", "")),
            version=info.get("redis_version", ""),
            role=info.get("role", ""),
            memory_bytes=whole(info["used_memory"]) if "used_memory" in info else None,
            memory_bytes_max=whole(info.get("maxmemory", "")),
            machine_bytes=whole(info.get("total_system_memory", "")),
            memory_policy=info.get("maxmemory_policy", ""),
            append_only=info.get("aof_enabled") == "1",
            appendfsync=await self._setting("appendfsync"),
            save=await self._setting("save"),
            clock_ahead_ms=ahead_ms,
            round_trip_ms=(after - before) * 1000 if clock is not None else None,
            may_be_replaced=moves(self.url),
            loading=info.get("loading", "0") != "0",
            replicas=sum("state=online" in info.get(f"slave{number}", "") for number in range(REPLICAS_MAX)),
            replicas_wanted=own.replicas,
            writes_need=whole(await self._setting("min-replicas-to-write") or "") if own.replicas else None,
            disk_wanted=own.durability == "disk",
            product=product_of(info),
            loads_truncated=_is_yes(await self._setting("aof-load-truncated")),
            output_bytes_max=_limit_of_readers(await self._setting("client-output-buffer-limit") or ""),
        )

    async def _setting(self, name: str) -> str | None:
        # Managed servers often refuse CONFIG, which gamecast itself does not need.
        noted = len(self.unread), len(self.refused)
        answer = await self.ask("CONFIG", "GET", name)
        del self.unread[noted[0] :], self.refused[noted[1] :]
        return text(answer[1]) if answer else None

    def _note(self, what: str, error: OtherSideError | Unreachable) -> None:
        """Note what could not be read, where the server refused a command; raise any other error."""
        cause = error.__cause__
        if not isinstance(cause, exceptions.ResponseError) or isinstance(cause, exceptions.AuthenticationError):
            raise error
        if isinstance(error, Unreachable) and not is_from_no_master(cause):
            raise error
        if not isinstance(cause, exceptions.NoPermissionError) and str(cause).startswith(("NOAUTH", "WRONGPASS")):
            raise error
        said = f"{what}: {_CODES.get(type(cause), '')}{cause}"
        self.unread.append(said)
        self.refused.append(said)


# redis-py removes them from the messages.
_CODES: Mapping[type[Exception], str] = {
    exceptions.NoPermissionError: "NOPERM ",
    exceptions.OutOfMemoryError: "OOM ",
    exceptions.ReadOnlyError: "READONLY ",
}


def product_of(info: Mapping[str, str]) -> str:
    """Return whose server answered INFO, and its own version if that is another number than Redis's."""
    if version := info.get("dragonfly_version", ""):
        return f"Dragonfly {version.removeprefix('df-').removeprefix('v')}"
    if info.get("server_name") == "valkey" or "valkey_version" in info:
        return f"Valkey {info.get('valkey_version', '')}".strip()
    if info.get("executable", "").endswith("keydb-server"):
        return "KeyDB"
    return "Redis"


def _is_yes(value: str | None) -> bool | None:
    return None if value is None else value == "yes"


def _limit_of_readers(limits: str) -> int:
    """Return the hard limit for normal clients, of the form ``normal 0 0 0 replica 268435456 67108864 60 …``."""
    words = limits.split()
    place = words.index("normal") + 1 if "normal" in words[:-1] else len(words)
    return whole(words[place]) if place < len(words) else 0


def text(value: Any) -> str:
    """Decode a text, whatever another program wrote."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def whole(value: bytes | str) -> int:
    """Parse a number; 0 if another program wrote something else there."""
    try:
        return int(value)
    except ValueError:
        return 0
