"""One connection to one Redis server, owned by one task.

The pooled client of redis-py lets several tasks share connections, and a command that is cancelled in flight leaves
its reply for the next one to read. Here a connection has one owner, which sends a command and reads its reply before
the next; whatever interrupts that (an error, a timeout, a cancellation) drops the connection.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha1
from pathlib import Path
from typing import Any

import hiredis
import redis.asyncio
from redis import exceptions

from sequencing.errors import (
    AuthenticationFailed,
    GamecastError,
    NetworkError,
    OtherSideError,
    OutOfMemory,
    UnknownScheme,
    Unreachable,
    UnsupportedServer,
)

REDIS_VERSION_MIN = (6, 2)
"""XTRIM MINID and GETDEL's generation: what the scripts use."""

CONNECT_TIMEOUT_S = 5.0
REPLY_TIMEOUT_S = 10.0
"""No command here takes longer, connecting included; blocking reads block for less."""

READ_BYTES = 1 << 20
"""What is asked of the socket at once: replies of many frames are large."""


@dataclass(frozen=True, slots=True)
class Script:
    """A server-side script, known by its hash."""

    text: bytes

    @classmethod
    def beside(cls, module_file: str, name: str) -> Script:
        """Read the script ``name`` from the folder of a module."""
        return cls(Path(module_file).with_name(name).read_bytes())

    @property
    def sha(self) -> str:
        """The name by which EVALSHA knows it."""
        return sha1(self.text, usedforsecurity=False).hexdigest()


class RedisConnection:
    """A connection that opens on first use. Errors are gamecast's: `Unreachable`, `AuthenticationFailed`, …"""

    def __init__(self, url: str) -> None:
        """``url``: redis://, rediss:// or unix://. Raises `UnknownScheme`; does not connect yet."""
        self.url = url
        try:
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
            self._connection: Any = pool.make_connection()  # type: ignore[no-untyped-call]
        except (ValueError, TypeError) as error:
            raise UnknownScheme(f"{redacted(url)!r} is not a Redis URL: {error}") from error
        self._shas: dict[Script, str] = {}
        self._checked = False

    async def call(self, *command: Any, timeout_s: float = REPLY_TIMEOUT_S) -> Any:
        """Send one command and return its reply, undecoded. Raises `NetworkError` or `OtherSideError`."""
        try:
            # redis-py's own timeout gives up waiting and leaves the reply for the next command to read.
            async with asyncio.timeout(timeout_s):
                if not self._connection.is_connected:
                    await self._open()
                return await self._exchange(command)
        except exceptions.ResponseError as error:
            raise self._translated(error) from error
        except BaseException as error:
            await self._connection.disconnect(nowait=True)
            if isinstance(error, Exception) and not isinstance(error, GamecastError):
                raise self._translated(error) from error
            raise

    async def run(self, script: Script, keys: Sequence[str], *arguments: Any) -> Any:
        """Run a script, loading it where the server does not have it (a restart empties its cache)."""
        sha = self._shas.setdefault(script, script.sha)
        try:
            return await self.call("EVALSHA", sha, len(keys), *keys, *arguments)
        except OtherSideError as error:
            if not isinstance(error.__cause__, exceptions.NoScriptError):
                raise
        return await self.call("EVAL", script.text, len(keys), *keys, *arguments)

    async def close(self) -> None:
        """Close the socket; a later call opens a new one."""
        await self._connection.disconnect(nowait=True)

    async def _open(self) -> None:
        await self._connection.connect()
        if not self._checked:
            _require_version(await self._exchange(("INFO", "server")))
            self._checked = True

    async def _exchange(self, command: tuple[Any, ...]) -> Any:
        # redis-py's own packing, in Python, takes longer than the server's answer to a small command.
        await self._connection.send_packed_command([hiredis.pack_command(command)], check_health=False)
        return await self._connection.read_response(disable_decoding=True, timeout=math.inf)

    def _translated(self, error: Exception) -> GamecastError:
        where = redacted(self.url)
        if isinstance(error, (exceptions.AuthenticationError, exceptions.AuthorizationError)):
            return AuthenticationFailed(f"Redis at {where} refused the user or the password: {error}")
        if isinstance(error, exceptions.NoPermissionError):
            return AuthenticationFailed(f"Redis at {where} does not let this user do that: {error}")
        if isinstance(error, exceptions.OutOfMemoryError):
            return OutOfMemory(f"Redis at {where} is full (OOM): raise its maxmemory, or keep fewer events ({error})")
        if isinstance(error, exceptions.ResponseError):
            if "WRONGPASS" in str(error) or "NOAUTH" in str(error):
                return AuthenticationFailed(f"Redis at {where} refused the user or the password: {error}")
            if "BUSY" in str(error):
                return NetworkError(f"Redis at {where} is busy with another script: {error}")
            return OtherSideError(f"Redis at {where} answered with an error: {error}")
        if isinstance(error, (exceptions.ConnectionError, exceptions.TimeoutError, OSError, TimeoutError)):
            return Unreachable(
                f"nothing answers at {where} ({str(error) or type(error).__name__}): is a server running there?"
            )
        return NetworkError(f"talking to Redis at {where} failed: {error!r}")


def redacted(url: str) -> str:
    """Return the URL without its passwords, for messages and logs."""
    scheme, separator, rest = url.partition("://")
    credentials, at, place = rest.rpartition("@")
    place = re.sub(r"(password=)[^&]*", r"\1***", place)
    if not at:
        return f"{scheme}{separator}{place}"
    user, colon, _ = credentials.partition(":")
    return f"{scheme}{separator}{user}{':***' if colon else ''}@{place}"


def parse_info(info: bytes) -> dict[str, str]:
    """Read what INFO answers: field → value."""
    lines = (line.partition(":") for line in info.decode(errors="replace").splitlines())
    return {name: value.strip() for name, colon, value in lines if colon}


def _require_version(info: bytes) -> None:
    version = parse_info(info).get("redis_version")
    if version is None:
        raise UnsupportedServer("the server does not tell its Redis version: is it Redis?")
    if tuple(int(part) for part in version.split(".")[:2]) < REDIS_VERSION_MIN:
        raise UnsupportedServer(f"Redis {version} is too old: gamecast needs 6.2 or later")
