"""Keys that an identity provider publishes: a JWK set at a URL."""

from __future__ import annotations

import asyncio
import time

import aiohttp

from adapters.gateway.tokens import Keys
from adapters.urls import redacted
from sequencing.errors import UsageError

REFRESH_S = 300.0
"""How often the set is asked for."""
RETRY_S = 10.0
"""No more often than this, also where a token's key is not in it."""
FIRST_RETRY_S = 2.0
"""No more often than this while there is no set at all."""
WAIT_S_MAX = 1.0
"""How long a request with an unknown key waits for the answer."""
ANSWER_S_MAX = 5.0
SET_BYTES_MAX = 1_000_000


class KeyUrl:
    """Keys that are asked for again and again; while they cannot be had, the ones before count on."""

    def __init__(self, url: str) -> None:
        """``url``: https://, or http:// of this machine. Does not ask yet: see `refresh`. Raises `UsageError`."""
        scheme, _, rest = url.partition("://")
        host = rest.partition("/")[0].rpartition("@")[2].rpartition(":")[0] or rest.partition("/")[0]
        if scheme != "https" and not (scheme == "http" and host in ("localhost", "127.0.0.1", "[::1]")):
            raise UsageError(f"keys come by https://, so that nobody gives others: not {redacted(url)!r}")
        self._url = url
        self._keys: Keys | None = None
        self._asked_at = float("-inf")
        self._asking: asyncio.Task[None] | None = None
        self.error: str | None = None

    @property
    def has_come(self) -> bool:
        """Whether there are keys, if only those of before."""
        return self._keys is not None

    def keys(self) -> Keys:
        """Return the keys of now; raises `UsageError` while there are none."""
        if self._keys is None:
            raise UsageError(f"the keys of {redacted(self._url)} have not come yet: {self.error}")
        return self._keys

    async def refresh(self, *, older_than_s: float = REFRESH_S, wait_s: float | None = None) -> None:
        """Ask for the keys, if that was not done for so long; what goes wrong is told by ``error``.

        ``wait_s``: how long to wait for the answer, which counts also when it comes later; by default until it comes.
        """
        if self._asking is None:
            if time.monotonic() < self._asked_at + older_than_s:
                return
            self._asked_at = time.monotonic()
            self._asking = asyncio.create_task(self._ask(), name="gamecast gateway keys")
            self._asking.add_done_callback(self._asked)
        await asyncio.wait([self._asking], timeout=wait_s)

    async def look_for(self, *, older_than_s: float) -> None:
        """Ask for the keys because one is unknown; wait for a short time, and not at all while the provider is down."""
        await self.refresh(older_than_s=older_than_s, wait_s=0.0 if self.error is not None else WAIT_S_MAX)

    async def close(self) -> None:
        """Break off what is being asked."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.wait([self._asking])

    def _asked(self, task: asyncio.Task[None]) -> None:
        self._asking = None
        if not task.cancelled():
            task.result()

    async def _ask(self) -> None:
        try:
            async with (
                aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(ANSWER_S_MAX)) as client,
                client.get(self._url, allow_redirects=False) as response,
            ):
                if response.status != 200:
                    raise UsageError(f"it answered {response.status}")
                text = bytearray()
                async for chunk in response.content.iter_any():
                    text += chunk
                    if len(text) > SET_BYTES_MAX:
                        raise UsageError(f"it has more than {SET_BYTES_MAX:,} bytes")
                self._keys = Keys.public(bytes(text))
            self.error = None
        except (aiohttp.ClientError, TimeoutError, UsageError) as error:
            self.error = str(error) or type(error).__name__
