"""One Redis server as seen from outside: what it reports, and what it refuses."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from redis import exceptions

from adapters.redis.connection import RedisConnection, Script, parse_info
from adapters.redis.places import REPLICAS_MAX, is_from_no_master, moves
from adapters.redis.refusals import Refusal, refusals
from adapters.urls import own_options, redacted
from sequencing.errors import OtherSideError, OutOfMemory, Unreachable

SETTINGS = (
    "appendfsync",
    "save",
    "min-replicas-to-write",
    "stop-writes-on-bgsave-error",
    "timeout",
    "aof-load-truncated",
    "client-output-buffer-limit",
)
"""What is read with CONFIG GET."""

ANSWER_S_MAX = 5.0
"""The time limit for one answer of a server; the nodes are asked at the same time."""


@dataclass(frozen=True, slots=True)
class ServerState:
    """One Redis server. ``None``, empty texts and a ``pid`` of 0 mean: the server does not report it to this user.

    ``clock_ahead_ms``: compared with this machine's clock, ± ``round_trip_ms / 2``. ``memory_bytes_max``: 0 is no
    limit. ``machine_bytes``: 0 if it is not reported. ``save``: the snapshot rules of redis.conf, empty if there
    are none. ``may_be_replaced``: by a replica that has less data. ``loading``: it has started and is still reading
    its data; until then it reports that it appends to no file, whatever its configuration. ``replicas``: those that
    follow it now; ``replicas_wanted``: how many of them must have what was written before it is acknowledged, by
    its URL; ``writes_need``: how many must be there for it to write at all (min-replicas-to-write).
    """

    run: str
    pid: int
    version: str
    role: str
    memory_bytes: int | None
    memory_bytes_max: int | None
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
    output_bytes_max: int | None = 0
    """Bytes that may wait for one reader before it is disconnected; 0 is no limit."""
    idle_s_max: int | None = 0
    """Seconds after which it closes an idle connection (timeout); 0 is never."""
    refuses: tuple[Refusal, ...] = ()
    """Why it accepts no writes now."""
    settings_unread: tuple[str, ...] = ()
    """The `SETTINGS` that it does not report to this user."""

    @property
    def memory_limit_bytes(self) -> int:
        """The memory that it may use, its machine's without a limit; 0 if it reports neither."""
        return self.memory_bytes_max or self.machine_bytes

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
            return list(await self._connection.pipeline(commands, timeout_s=self.answer_s_max or ANSWER_S_MAX))
        except (OtherSideError, Unreachable) as error:
            if isinstance(error, OutOfMemory) and commands[0] == ("MULTI",):
                # A full server takes no transactions. Nothing changes between two reads: it takes no writes either.
                return [await self.ask_each(commands[1:-1])]
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
        settings = await self._settings()
        save, writes_need = settings.get("save"), _writes_need(info, settings)
        stops_on_save_error = _is_yes(settings.get("stop-writes-on-bgsave-error"))
        return ServerState(
            run=self._connection.run_in(info) or redacted(self.url),
            pid=whole(info.get("process_id", "")),
            version=info.get("redis_version", ""),
            role=info.get("role", ""),
            memory_bytes=whole(info["used_memory"]) if "used_memory" in info else None,
            memory_bytes_max=whole(info["maxmemory"]) if "maxmemory" in info else None,
            machine_bytes=whole(info.get("total_system_memory", "")),
            memory_policy=info.get("maxmemory_policy", ""),
            append_only=info.get("aof_enabled") == "1",
            appendfsync=settings.get("appendfsync"),
            save=save,
            clock_ahead_ms=ahead_ms,
            round_trip_ms=(after - before) * 1000 if clock is not None else None,
            may_be_replaced=moves(self.url),
            loading=info.get("loading", "0") != "0",
            replicas=sum("state=online" in info.get(f"slave{number}", "") for number in range(REPLICAS_MAX)),
            replicas_wanted=own.replicas,
            writes_need=writes_need,
            disk_wanted=own.durability == "disk",
            product=product_of(info),
            loads_truncated=_is_yes(settings.get("aof-load-truncated")),
            output_bytes_max=_limit_of_readers(settings.get("client-output-buffer-limit")),
            idle_s_max=whole(settings["timeout"]) if "timeout" in settings else None,
            refuses=refusals(info, save=save, stops_on_save_error=stops_on_save_error, writes_need=writes_need),
            settings_unread=tuple(name for name in SETTINGS if name not in settings),
        )

    async def _settings(self) -> Mapping[str, str]:
        """Return `SETTINGS`, those that the server reports."""
        # Managed servers often refuse CONFIG, which gamecast itself does not need. One setting is asked for alone: a
        # pipeline with a refused command ends its connection.
        noted = len(self.unread), len(self.refused)
        answers = [await self.ask("CONFIG", "GET", SETTINGS[0])]
        if answers[0] is not None:
            answers += await self.ask_each([("CONFIG", "GET", name) for name in SETTINGS[1:]])
        del self.unread[noted[0] :], self.refused[noted[1] :]
        return {name: text(answer[1]) for name, answer in zip(SETTINGS, answers, strict=False) if answer}

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


def _writes_need(info: Mapping[str, str], settings: Mapping[str, str]) -> int | None:
    """Return how many replicas must be there for writes; None if that cannot be read."""
    # Redis counts good replicas only where both min-replicas-to-write and min-replicas-max-lag are set.
    if "role" in info and "min_slaves_good_slaves" not in info:
        return 0
    need = settings.get("min-replicas-to-write")
    return None if need is None else whole(need)


def _limit_of_readers(limits: str | None) -> int | None:
    """Return the hard limit for normal clients, of the form ``normal 0 0 0 replica 268435456 67108864 60 …``."""
    if limits is None:
        return None
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
