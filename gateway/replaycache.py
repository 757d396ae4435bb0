"""What gateways keep for a while: single-use tokens that were used, and the answers to publishes."""

from __future__ import annotations

from typing import Any, Protocol

from adapters.redis.connection import RedisConnection
from gateway.revocations import RevocationStore


class ReplayCache(RevocationStore, Protocol):
    """Texts by name, each with an expiry time."""

    async def claim(self, name: str, text: bytes, keep_s: float) -> bytes | None:
        """Store a text and return None, or return the text that is stored already. One of several callers wins."""

    async def put(self, name: str, text: bytes, keep_s: float) -> None:
        """Store a text, and replace any other one."""

    async def drop(self, name: str) -> None:
        """Remove a text."""

    async def close(self) -> None:
        """Release all resources."""


class RedisReplayCache:
    """A cache for all gateways of a network, in its control Redis, which expires texts by itself."""

    PREFIX = "gamecast:{gateway}:"
    REVOKED = f"{PREFIX}revoked"

    def __init__(self, url: str) -> None:
        """Does not connect yet."""
        self._connections: list[RedisConnection] = []
        self._url = url

    async def claim(self, name: str, text: bytes, keep_s: float) -> bytes | None:
        """See `ReplayCache`."""
        # Redis 6.2 cannot do both at once; the stored text may expire in between.
        for _ in range(3):
            if await self._call("SET", self._key(name), text, "NX", "PX", _ms(keep_s)) is not None:
                return None
            answer: bytes | None = await self._call("GET", self._key(name))
            if answer is not None:
                return answer
        return b""

    async def put(self, name: str, text: bytes, keep_s: float) -> None:
        """See `ReplayCache`."""
        await self._call("SET", self._key(name), text, "PX", _ms(keep_s))

    async def drop(self, name: str) -> None:
        """See `ReplayCache`."""
        await self._call("DEL", self._key(name))

    async def revocations(self) -> dict[str, bytes]:
        """See `RevocationStore`."""
        flat = await self._call("HGETALL", self.REVOKED)
        return {field.decode(errors="replace"): text for field, text in zip(flat[::2], flat[1::2], strict=True)}

    async def add_revocation(self, field: str, text: bytes) -> None:
        """See `RevocationStore`."""
        await self._call("HSET", self.REVOKED, field, text)

    async def drop_revocations(self, fields: list[str]) -> None:
        """See `RevocationStore`."""
        await self._call("HDEL", self.REVOKED, *fields)

    async def close(self) -> None:
        """See `ReplayCache`."""
        while self._connections:
            await self._connections.pop().close()

    async def _call(self, *command: object) -> Any:
        connection = self._connections.pop() if self._connections else RedisConnection(self._url, "gateway")
        try:
            answer = await connection.call(*command)
        finally:
            self._connections.append(connection)
        return answer

    def _key(self, name: str) -> str:
        return self.PREFIX + name


def _ms(keep_s: float) -> int:
    return max(1, round(keep_s * 1000))
