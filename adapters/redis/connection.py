"""One connection to one Redis server, owned by one task.

In redis-py's pooled client, several tasks share connections, and a cancelled command leaves its reply for the next task
to read. Here a connection has one owner, which sends a command and reads its reply before the next command. An error, a
timeout or a cancellation in between drops the connection.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from hashlib import sha1
from itertools import chain
from pathlib import Path
from typing import Any

import hiredis
from redis import exceptions

from adapters.redis.deadline import Deadline
from adapters.redis.evidence import Missing
from adapters.redis.places import connection_to, is_from_no_master, places_of
from adapters.redis.wire import Wire
from adapters.urls import OwnOptions, own_options, redacted
from sequencing.errors import (
    AuthenticationFailed,
    CannotPersist,
    GamecastError,
    NetworkError,
    NotAllowed,
    OtherSideError,
    OutOfMemory,
    UnknownScheme,
    Unreachable,
    UnsupportedServer,
)

REDIS_VERSION_MIN = (6, 2)
"""The version of XTRIM MINID and GETDEL, which the scripts use."""

REPLY_TIMEOUT_S = 10.0
"""The time limit for every command, connecting included; blocking reads block for less."""

ON_DISK_MS_MAX = 3_000
"""Longer: with ``appendfsync everysec``, a second is usual."""

ON_DISK_VERSION_MIN = 7, 2
COPIED_MS_MAX = 1_000
"""How long a server waits for its replicas before it answers how many have what was written."""

TAKEN_S_MAX = 0.3
"""How long to check whether a server that did not answer accepts connections at all."""

LARGE_BYTES = 16_000_000
"""A request of this size may be the reason why a server does not answer. Only a single large event makes one."""

IDLE_S_MAX = 0.1
"""After a longer pause, a movable master that may lose data is asked for its run first.

It may have been replaced and be back, which takes longer than this.
"""


Replied = Callable[[Any, Exception | None], None]
"""Takes a reply, or why there is none."""

EVALSHA_REFUSED = "'evalsha' command"
"""What Redis answers to a user who may not send scripts."""

_REFUSED_IN_SCRIPTS = "The user executing the script can't", "ACL failure in script"
"""How Redis, until 7.0 and later, says that a user may not do what a script does."""

HANGS = "it hangs, is stopped, or is overloaded"

_ENDS_CONNECTION = "Protocol error"
"""What Redis answers to a request that it does not read, as one that is too large, before it closes the connection."""

_HTTP = 'got "H"'
"""What hiredis says of an answer that begins with ``HTTP/1.1``."""
_NO_ROOM = re.compile(r"(?:^|-)(MISCONF|OOM) ")
"""An error without a class in redis-py. Redis 6.2 has it inside the message if it refuses a script's first write."""


@dataclass(frozen=True, slots=True, eq=False)
class Script:
    """A server-side script, identified by its hash."""

    text: bytes
    name: str
    writes: bool = True
    """Whether it may change anything."""

    @classmethod
    def beside(cls, module_file: str, name: str) -> Script:
        """Read the script ``name`` from the folder of a module."""
        return cls(Path(module_file).with_name(name).read_bytes(), name.partition(".")[0])

    @property
    def function(self) -> str:
        """The name of the equivalent function, and of its library, for users who may not send scripts."""
        return f"gamecast_{self.name}_{self.sha[:16]}"

    @property
    def as_library(self) -> bytes:
        """The text of that library, for FUNCTION LOAD."""
        name = self.function.encode()
        return b"#!lua name=%b\nredis.register_function('%b', function(KEYS, ARGV)\n%b\nend)\n" % (
            name,
            name,
            self.text,
        )

    @property
    def sha(self) -> str:
        """The hash with which EVALSHA identifies it."""
        return sha1(self.text, usedforsecurity=False).hexdigest()


class RedisConnection:
    """A connection that opens on first use. Its errors are gamecast's: `Unreachable`, `AuthenticationFailed`, …"""

    def __init__(self, url: str, tag: str = "") -> None:
        """``url``: a fixed server (redis://, rediss://, unix://) or a movable one.

        Movable ones are redis+sentinel:// and redis+cluster://.

        ``tag``: the hash tag of all keys; a cluster needs it to find the server. Raises `UnknownScheme`; does not
        connect yet.
        """
        self.url = url
        try:
            _, own = own_options(url)
            self._places = places_of(url, tag)
            self._connection = connection_to(url if self._places is None else self._places.first_url)
        except ValueError as error:
            raise UnknownScheme(f"{redacted(url)!r} is not a Redis URL: {error}") from error
        except TypeError as error:  # of redis-py's constructors
            option = str(error).partition("'")[2].partition("'")[0]
            raise UnknownScheme(f"{redacted(url)!r} is not a Redis URL: there is no option {option!r}") from error
        self._wait = _waiting(own)
        """The command that answers once there are enough copies of what was written before; None if none are wanted."""
        self._replicas, self._on_disk = own.replicas, own.durability == "disk"
        self._wire: Wire | None = None
        self._closed = 0
        """How often it was closed."""
        self._is_over = False
        self._has_run: set[Script] = set()
        """The scripts that a fixed server has run by EVALSHA since the connection was opened."""
        self._shas: dict[Script, str] = {}
        self._calls_functions = False
        """Whether its user may not send scripts."""
        self._refusal: NotAllowed | None = None
        self._deadline = Deadline()
        self._used_at = 0.0
        self.found_run = ""
        """The run of the server when the connection was opened."""
        self._compared_run = ""
        """The last run of the server in which nothing was found to be missing, or that a plan names."""
        self._is_in_cluster = False
        self._was_taken = False
        """Whether the last opening of the connection succeeded: if so, a server without an answer hangs."""
        self.opened = 0
        """How often it was opened."""
        self.run_wanted = ""
        """The required run of the server, if it matters: another run may have lost something."""
        self.missing: Missing | None = None
        """Called when the connection is opened again; returns, in words, what the server has lost."""
        self.on_loss: Callable[[str, str], Awaitable[None]] | None = None
        """Called with the run in which something is missing, and with what is missing."""

    @property
    def _is_open(self) -> bool:
        return self._wire is not None and self._wire.is_open

    @property
    def has_channels(self) -> bool:
        """Whether the server has channels for the keys of this connection, see `adapters.redis.pushes`."""
        return not int(self._connection.db or 0)

    @property
    def may_listen(self) -> bool:
        """Whether all that ends at the server is pushed, the server is fixed, and nothing has to be copied first.

        Known after the first opening.
        """
        return self.has_channels and self._places is None and not (self._is_in_cluster or self.waits)

    @property
    def waits(self) -> bool:
        """Whether what a script has written is answered, and what is read is handed on, when there are copies of it."""
        return self._wait is not None

    async def call_packed(self, command: bytes, *, timeout_s: float = REPLY_TIMEOUT_S) -> Any:
        """As `call`, with a command that is already in Redis's protocol."""
        return (await self.pipeline((command,), timeout_s=timeout_s))[0]

    async def call(self, *command: Any, timeout_s: float = REPLY_TIMEOUT_S) -> Any:
        """Send one command and return its reply, undecoded. Raises `NetworkError` or `OtherSideError`."""
        return (await self.pipeline((command,), timeout_s=timeout_s))[0]

    async def pipeline(
        self, commands: Sequence[tuple[Any, ...] | bytes], *, timeout_s: float = REPLY_TIMEOUT_S
    ) -> list[Any]:
        """Send commands at once and return their replies, in order. Raises as `call`, with the first failure."""
        try:
            # redis-py's own timeout stops waiting, and leaves the reply for the next command to read.
            with self._deadline.within(timeout_s):
                if not self._is_open or self._is_other_run():
                    await self._open()
                if self._places is None:
                    return await self._exchange(commands)
                if await self._places.has_left():
                    await self._open()
                if self.run_wanted and time.monotonic() - self._used_at > IDLE_S_MAX:
                    await self._meet()
                answers = await self._exchange(commands)
                self._used_at = time.monotonic()
                return answers
        except exceptions.ResponseError as error:
            if len(commands) > 1 or _ENDS_CONNECTION in str(error):
                await self._drop()
            if _ENDS_CONNECTION in str(error):
                raise self._translated(ConnectionError(str(error)), sent_bytes=_bytes_of(commands)) from error
            has_moved = self._places.has_moved if self._places is not None else is_from_no_master
            if has_moved(error):
                await self._drop()
                where = redacted(self.url)
                raise Unreachable(f"the master of {where} has moved, or refuses commands now: {error}") from error
            raise self._translated(error) from error
        except BaseException as error:
            await self._drop()
            is_late = isinstance(error, TimeoutError) and _bytes_of(commands) < LARGE_BYTES
            if is_late and (self._was_taken or await self._is_taken()):
                raise Unreachable(
                    f"Redis at {redacted(self.url)} accepted the connection but did not answer for {timeout_s:g} s: "
                    f"{HANGS}"
                ) from error
            if isinstance(error, Exception) and not isinstance(error, GamecastError):
                raise self._translated(error, sent_bytes=_bytes_of(commands)) from error
            raise

    async def run(self, script: Script, keys: Sequence[str], *arguments: Any) -> Any:
        """Run a script, and load it if the server does not have it (a restart empties the script cache).

        A user who may not send scripts calls the function that an operator loaded, see `adapters.redis.users`.

        Of a script that writes, there is an answer when as many replicas as the URL wants have what it wrote, on disk
        if the URL wants that; until then `Unreachable` is raised.
        """
        reply = await self._run(script, keys, *arguments)
        if self._wait is not None and script.writes:
            opened = self.opened
            copies = await self.call(*self._wait)
            self._require_same(opened)  # WAIT speaks of what its own connection wrote
            self._require_copies(copies)
        return reply

    def _require_same(self, opened: int) -> None:
        if self.opened != opened:
            raise Unreachable(f"the connection to Redis at {redacted(self.url)} broke before all was copied")

    async def copied(self, write: tuple[Any, ...]) -> None:
        """Write something, and return when as many replicas as the URL wants have it, and all that was there before.

        The connection must be the one that it was. Raises `Unreachable` if it is not, and if they do not get it in
        time. Since Redis 7.2, WAIT speaks only of what its own connection has written.
        """
        if self._wait is None:
            return
        opened = self.opened
        _, copies = await self.pipeline((write, self._wait))
        self._require_same(opened)
        self._require_copies(copies)

    def _require_copies(self, copies: int | list[int]) -> None:
        if (lacking := self._lacking(copies)) is not None:
            raise lacking

    def _lacking(self, copies: int | list[int]) -> Unreachable | None:
        """Return what is wrong if so many replicas have what was written, None if these are enough.

        ``copies``: the answer to WAIT, or to WAITAOF, which begins with the server itself.
        """
        itself, there = copies if isinstance(copies, list) else (1, copies)
        if itself and there >= self._replicas:
            return None
        where, what = redacted(self.url), "have it on disk" if self._on_disk else "have what was written"
        if not itself:
            return Unreachable(f"Redis at {where} does not have on disk what was written: it may still be lost")
        return Unreachable(
            f"only {there} of the {self._replicas} replicas of Redis at {where} that its URL wants {what}: it may "
            "still be lost"
        )

    async def _run(self, script: Script, keys: Sequence[str], *arguments: Any) -> Any:
        if self._places is not None:
            keys = (*keys, *self._places.script_keys)
        if not self._calls_functions:
            sha = self._shas.get(script) or self._shas.setdefault(script, script.sha)
            try:
                reply = await self.call("EVALSHA", sha, len(keys), *keys, *arguments)
                if self._places is None:
                    self._has_run.add(script)
                return reply
            except NotAllowed as error:
                if EVALSHA_REFUSED not in str(error.__cause__):
                    raise
                self._calls_functions, self._refusal = True, error
            except OtherSideError as error:
                if not isinstance(error.__cause__, exceptions.NoScriptError):
                    raise
                return await self.call("EVAL", script.text, len(keys), *keys, *arguments)
        try:
            return await self.call("FCALL", script.function, len(keys), *keys, *arguments)
        except OtherSideError as error:
            if "Function not found" in str(error.__cause__):
                raise NotAllowed(
                    f"{self._refusal}, and it lacks the functions of this version: load them with `gamecast users load`"
                ) from (self._refusal.__cause__ if self._refusal is not None else error)
            raise

    def can_run(self, script: Script) -> bool:
        """Whether `run_at_once` can be called: the server is open, is the right one, and has the script."""
        wire, wanted = self._wire, self.run_wanted
        return wire is not None and wire.is_open and script in self._has_run and wanted in ("", self.found_run)

    def run_at_once(self, script: Script, keys: Sequence[str], arguments: Sequence[Any], told: Replied) -> None:
        """Run a script, and have its reply told, or what went wrong: a `NetworkError` or an `OtherSideError`."""

        assert self._wire is not None
        packed = hiredis.pack_command(("EVALSHA", self._shas[script], len(keys), *keys, *arguments))
        if self._wait is None or not script.writes:
            self._wire.send((packed,), 1, partial(self._replied, told, False))
        else:
            self._wire.send((packed, hiredis.pack_command(self._wait)), 2, partial(self._replied, told, True))

    def _replied(self, told: Replied, is_copied: bool, replies: list[Any], error: Exception | None) -> None:
        if error is None and not is_copied and not isinstance(replies[0], Exception):
            told(replies[0], None)  # as nearly always
            return
        failed = error or next((reply for reply in replies if isinstance(reply, exceptions.RedisError)), None)
        if failed is None:
            lacking = self._lacking(replies[1]) if is_copied else None
            told(replies[0] if lacking is None else None, lacking)
        elif isinstance(failed, TimeoutError):
            told(None, Unreachable(f"Redis at {redacted(self.url)} does not answer: {HANGS}"))
        else:
            told(None, self._translated(failed))

    def ask_at_once(self, commands: Sequence[tuple[Any, ...]], told: Callable[[list[Any]], None]) -> None:
        """Send commands, and have their replies told, errors among them; none if they do not come.

        None at once, where that takes more: the server is not open, or is another one.
        """
        if self._wire is None or not self._is_open or self._places is not None or self._is_other_run():
            told([])
            return
        packed = [hiredis.pack_command(command) for command in commands]
        self._wire.send(packed, len(packed), lambda replies, error: told(replies if error is None else []))

    def break_off(self) -> None:
        """Close the connection: what waits for a reply hears that there is none."""
        if self._wire is not None:
            self._wire.close(TimeoutError())

    async def is_in(self, run: str) -> bool:
        """Return whether the server is in a run, as `found_run` had it; connects first. Raises as `call`."""
        await self.call("PING")
        return self.found_run == run

    async def run_id(self, timeout_s: float = REPLY_TIMEOUT_S) -> str:
        """Return the server's current run, see `run_in`; ``timeout_s``: for each answer. Raises as `call`."""
        return (await self.run_id_and((), timeout_s=timeout_s))[0]

    async def run_id_and(
        self, commands: Sequence[tuple[Any, ...]], *, timeout_s: float = REPLY_TIMEOUT_S
    ) -> tuple[str, list[Any]]:
        """As `run_id`, and return the replies to some commands, in the same round trip."""
        if self._places is not None and self._places.check is not None:
            await self.call(*self._places.check, timeout_s=timeout_s)
        said, *answers = await self.pipeline((self._info, *commands), timeout_s=timeout_s)
        info = parse_info(said)
        try:
            self._require_master(info)
        except Unreachable:
            await self.close()
            raise
        return self.run_in(info), answers

    def run_in(self, info: Mapping[str, str]) -> str:
        """Return what identifies the run of a server. A new run may have begun with less data than there was.

        A fixed server begins a run when it starts. Where servers take over from each other, one process may become the
        master twice. There, the replication history identifies the run; a start changes it, too.
        """
        return info.get("run_id" if self._places is None else "master_replid", "")

    async def close(self, *, for_good: bool = False) -> None:
        """Close the socket, also one that is being opened; a later call opens a new one, unless it is ``for_good``."""
        self._closed += 1
        self._is_over = self._is_over or for_good
        self._deadline.close()
        await self._drop()

    async def _drop(self) -> None:
        if self._wire is not None:
            self._wire.is_open = False
        await self._connection.disconnect(nowait=True)

    async def _open(self) -> None:
        self.opened += 1
        self._was_taken = False
        closed = self._closed
        if self._is_over:
            raise exceptions.ConnectionError("the connection was closed here")
        await self._drop()
        if self._places is None:
            await self._connection.connect()
        else:
            self._connection = connection_to(await self._places.look())
            try:
                await self._connection.connect()
            except BaseException:
                self._places.doubt()
                raise
        if closed != self._closed:
            await self._drop()
            raise exceptions.ConnectionError("the connection was closed here while it was opened")
        self._wire = Wire(self._connection)
        self._has_run.clear()
        self._was_taken = True
        await self._meet()

    async def _is_taken(self) -> bool:
        """Return whether the server accepts connections, although a handshake with it did not complete."""
        host, port = getattr(self._connection, "host", None), getattr(self._connection, "port", None)
        if host is None or port is None:
            return False
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(TAKEN_S_MAX):
                _, writer = await asyncio.open_connection(host, port)
            writer.close()
            return True
        return False

    async def _meet(self) -> None:
        """Require that the server is the expected one."""
        info = parse_info((await self._exchange((self._info,)))[0])
        _require_version(info)
        if self._on_disk and _version_in(info) < ON_DISK_VERSION_MIN:
            raise UnsupportedServer(
                f"Redis {info['redis_version']} cannot say what is on disk, which durability=disk needs: use Redis 7.2 "
                "or later, or Valkey"
            )
        self._require_master(info)
        self.found_run = self.run_in(info)
        self._is_in_cluster = info.get("redis_mode") == "cluster"
        if self._is_other_run():
            raise Unreachable(f"the server at {redacted(self.url)} has restarted, and no plan includes its new run yet")
        if self.opened > 1 and self.missing is not None and not self.run_wanted:
            await self._require_all(self.missing, self._compared_run)
        self._compared_run = self.found_run

    async def _require_all(self, missing: Missing, before: str) -> None:
        """Refuse to talk to a server that lost something, until a plan says how the network continues without it."""
        lost = await missing(self.found_run, before, self._exchange)
        if not lost:
            return
        if self.on_loss is not None:
            await self.on_loss(self.found_run, lost)
        raise Unreachable(
            f"the server at {redacted(self.url)} has lost events ({lost}), and no plan continues without them yet"
        )

    @property
    def _info(self) -> tuple[str, ...]:
        # Replication is a section of its own, and Redis 6.2 returns either one section or all.
        return ("INFO", "server") if self._places is None else ("INFO",)

    def _require_master(self, info: Mapping[str, str]) -> None:
        if self._places is not None and info.get("role") != "master":
            self._places.doubt()
            raise Unreachable(f"the former master of {redacted(self.url)} is a replica now")

    def _is_other_run(self) -> bool:
        return self.run_wanted not in ("", self.found_run)

    async def _exchange(self, commands: Sequence[tuple[Any, ...] | bytes]) -> list[Any]:
        # redis-py's own packing, in Python, takes longer than a server needs for a small command.
        packed = [each if isinstance(each, bytes) else hiredis.pack_command(each) for each in commands]
        assert self._wire is not None
        replies = await self._wire.ask(packed, len(packed))
        for reply in replies:
            if isinstance(reply, exceptions.RedisError):
                raise reply
        return replies

    def _translated(self, error: Exception, *, sent_bytes: int = 0) -> GamecastError:
        where = redacted(self.url)
        if isinstance(error, (exceptions.AuthenticationError, exceptions.AuthorizationError)):
            return AuthenticationFailed(f"Redis at {where} refused the user or the password: {error}")
        if isinstance(error, exceptions.NoPermissionError) or any(said in str(error) for said in _REFUSED_IN_SCRIPTS):
            return NotAllowed(f"Redis at {where} does not allow this user to do that: {error}")
        refused = _NO_ROOM.search(str(error)) if isinstance(error, exceptions.ResponseError) else None
        if refused is not None and refused[1] == "MISCONF":
            return CannotPersist(
                f"Redis at {where} cannot write to its disk (MISCONF): free some disk space there ({error})"
            )
        if isinstance(error, exceptions.OutOfMemoryError) or refused is not None:
            return OutOfMemory(f"Redis at {where} is full (OOM): raise its maxmemory, or keep fewer events ({error})")
        if isinstance(error, (exceptions.MovedError, exceptions.AskError)):
            return OtherSideError(f"Redis at {where} is part of a cluster: use redis+cluster:// ({error})")
        if isinstance(error, exceptions.ResponseError):
            if "WRONGPASS" in str(error) or "NOAUTH" in str(error):
                return AuthenticationFailed(f"Redis at {where} refused the user or the password: {error}")
            if "BUSY" in str(error):
                return NetworkError(f"Redis at {where} is busy with another script: {error}")
            return OtherSideError(f"Redis at {where} answered with an error: {error}")
        if isinstance(error, exceptions.BusyLoadingError):
            return Unreachable(f"Redis at {where} is still loading its data: wait until it has finished")
        if isinstance(error, exceptions.ConnectionError) and "max number of clients" in str(error):
            return Unreachable(f"Redis at {where} accepts no more connections: raise its maxclients ({error})")
        if isinstance(error, (exceptions.ConnectionError, exceptions.TimeoutError, OSError, TimeoutError)):
            said = str(error) or type(error).__name__
            if sent_bytes >= LARGE_BYTES:
                return Unreachable(
                    f"Redis at {where} did not take {sent_bytes / 1e6:,.0f} MB in one request ({said}): that takes too "
                    "long, or exceeds its proto-max-bulk-len (512 MiB by default) or client-query-buffer-limit"
                )
            return Unreachable(f"nothing answers at {where} ({said}): is a server running there?")
        if isinstance(error, exceptions.InvalidResponse) and _HTTP in str(error):
            return UnsupportedServer(
                f"no Redis answers at {where}: it answers HTTP, as a gateway does. Give the URL of the network's "
                "control Redis"
            )
        return NetworkError(f"talking to Redis at {where} failed: {error!r}")


def _bytes_of(commands: Sequence[tuple[Any, ...] | bytes]) -> int:
    words = chain.from_iterable((each,) if isinstance(each, bytes) else each for each in commands)
    return sum(len(word) for word in words if isinstance(word, (bytes, str)))


def parse_info(info: bytes) -> dict[str, str]:
    """Parse the answer of INFO: field → value."""
    lines = (line.partition(":") for line in info.decode(errors="replace").splitlines())
    return {name: value.strip() for name, colon, value in lines if colon}


def _require_version(info: Mapping[str, str]) -> None:
    version = info.get("redis_version")
    if version is None:
        raise UnsupportedServer("the server does not report a Redis version: is it Redis?")
    if _version_in(info) < REDIS_VERSION_MIN:
        raise UnsupportedServer(f"Redis {version} is too old: gamecast needs 6.2 or later")


def _version_in(info: Mapping[str, str]) -> tuple[int, ...]:
    return tuple(int(part) for part in info["redis_version"].split(".")[:2])


def _waiting(own: OwnOptions) -> tuple[Any, ...] | None:
    if own.durability == "disk":
        return "WAITAOF", 1, own.replicas, ON_DISK_MS_MAX
    return ("WAIT", own.replicas, COPIED_MS_MAX) if own.replicas else None
