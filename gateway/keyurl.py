"""Keys that an identity provider publishes: a JWK set at a URL."""

from __future__ import annotations

import asyncio
import time

import aiohttp

from adapters.urls import redacted
from gateway.tokens import Keys
from sequencing.errors import UsageError

REFRESH_S = 300.0
"""How often the key set is requested."""
RETRY_S = 10.0
"""The minimum interval between requests, even if a token's key is not in the set."""
FIRST_RETRY_S = 2.0
"""The minimum interval between requests while there is no set at all."""
WAIT_S_MAX = 1.0
"""How long a request with an unknown key waits for the answer."""
ANSWER_S_MAX = 5.0
SET_BYTES_MAX = 1_000_000


class KeyUrl:
    """Keys that are requested again and again; if a request fails, the previous keys stay valid."""

    def __init__(self, url: str) -> None:
        """``url``: https://, or http:// on this machine. Sends no request yet: see `refresh`. Raises `UsageError`."""
        scheme, _, rest = url.partition("://")
        host = rest.partition("/")[0].rpartition("@")[2].rpartition(":")[0] or rest.partition("/")[0]
        if scheme != "https" and not (scheme == "http" and host in ("localhost", "127.0.0.1", "[::1]")):
            raise UsageError(
                f"the URL of keys must begin with https://, so that they cannot be forged, not {redacted(url)!r}"
            )
        self._url = url
        self._keys: Keys | None = None
        self._asked_at = float("-inf")
        self._asking: asyncio.Task[None] | None = None
        self.error: str | None = None

    @property
    def has_come(self) -> bool:
        """Whether keys have arrived, now or earlier."""
        return self._keys is not None

    def keys(self) -> Keys:
        """Return the current keys; raises `UsageError` while there are none."""
        if self._keys is None:
            raise UsageError(f"the keys of {redacted(self._url)} have not arrived yet: {self.error}")
        return self._keys

    async def refresh(self, *, older_than_s: float = REFRESH_S, wait_s: float | None = None) -> None:
        """Request the keys, if the last request is older than this; ``error`` reports a failure.

        ``wait_s``: how long to wait for the answer, which also counts if it arrives later; None waits until it arrives.
        """
        if self._asking is None:
            if time.monotonic() < self._asked_at + older_than_s:
                return
            self._asked_at = time.monotonic()
            self._asking = asyncio.create_task(self._ask(), name="gamecast gateway keys")
            self._asking.add_done_callback(self._asked)
        await asyncio.wait([self._asking], timeout=wait_s)

    async def look_for(self, *, older_than_s: float) -> None:
        """Request the keys because one is unknown; wait for a short time, and not at all while the provider is down."""
        await self.refresh(older_than_s=older_than_s, wait_s=0.0 if self.error is not None else WAIT_S_MAX)

    async def close(self) -> None:
        """Cancel the request in progress."""
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
                    raise UsageError(f"the server answered with status {response.status}")
                text = bytearray()
                async for chunk in response.content.iter_any():
                    text += chunk
                    if len(text) > SET_BYTES_MAX:
                        raise UsageError(f"the key set has more than {SET_BYTES_MAX:,} bytes")
                self._keys = Keys.public(bytes(text))
            self.error = None
        except (aiohttp.ClientError, TimeoutError, UsageError) as error:
            self.error = str(error) or type(error).__name__
