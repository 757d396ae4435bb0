"""A private network: embedded redis-servers, and relays between them. ``embedded://?nodes=3``."""

from __future__ import annotations

import asyncio
import secrets
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from adapters.background import keep_running
from adapters.embedded.replicated import ReplicatedServers
from adapters.embedded.server import EmbeddedServers
from adapters.leadership import RESUME_S
from adapters.memory import parse_node_count
from adapters.redis.network import RedisNetwork
from adapters.redis.relays import RedisRelays
from adapters.redis.users import ALL, FINDER, PASSWORD_BYTES, ROLES, create_users, found_by, new_users, save_users
from adapters.urls import redacted, stored_for_all
from sequencing.errors import UsageError
from sequencing.extras import require
from sequencing.plan import Ordering


class EmbeddedNetwork(RedisNetwork):
    """A `RedisNetwork` that starts its servers when it opens and ends them when it closes.

    The first server is the control Redis and node ``n1``; the others are ``n2`` and so on. `url` is the control Redis:
    others can join by it while this connection is open.
    """

    def __init__(
        self,
        url: str,
        *,
        ordering: Ordering,
        retention_events: int,
        resume_s: float = RESUME_S,
        secure: bool = False,
        replicas: int = 0,
    ) -> None:
        """``url``: ``embedded://`` or ``embedded://?nodes=N``. Starts nothing yet.

        ``secure``: the servers have the users of `adapters.redis.users`, and admit no other user. ``replicas``: each
        has so many replicas, for which receipts wait, and sentinels.
        """
        parts = urlsplit(url)
        if parts.netloc or parts.path.strip("/"):
            raise UsageError(
                f"an embedded network has no name or address: embedded:// or embedded://?nodes=3, not {redacted(url)!r}"
            )
        self.users = new_users(ALL if replicas else ROLES) if secure else {}
        """Role → user."""
        password = secrets.token_urlsafe(PASSWORD_BYTES) if secure else None
        self._node_count = parse_node_count(parts.query)
        self.replicated = ReplicatedServers(self._node_count, replicas, password=password) if replicas else None
        """The servers, if they have replicas."""
        self._servers = self.replicated or EmbeddedServers(self._node_count, password=password)
        self._keeping: asyncio.Task[None] | None = None
        self._begin_at = partial(
            super().__init__, ordering=ordering, retention_events=retention_events, resume_s=resume_s
        )
        self._relays: RedisRelays | None = None
        self._started = False

    async def open(self) -> None:
        """Start the servers, register them, and start the relays.

        Raises `ExtraMissing` for several nodes without a planner: at first, no other process could lead.
        """
        if self._node_count > 1:
            require("planner", "a network of several nodes of one's own")
        await self._servers.start_async()
        if self.users:
            try:
                await create_users(self._servers.urls, self.users)
                await save_users(self._servers.urls)
            except BaseException:
                await self._servers.stop_async()
                raise
        if self.replicated is not None:
            self._keeping = keep_running(self.replicated.keep, name="gamecast keep servers")
        self._begin_at(self.url_of("manager"))
        self._is_private = True
        self._started = True
        await super().open()
        for number, url in enumerate(self._servers.urls, start=1):
            known = stored_for_all(url, self.url)
            may_lose = number > 1 and self.replicated is None
            await self.register_node(f"n{number}", known if number > 1 else "", may_lose=may_lose)
        if len(self._servers.urls) > 1:
            self._relays = RedisRelays(self.url_of("relay"))
            self._relays.start()

    @property
    def directory(self) -> Path:
        """The directory for files that no other user may read; it exists as long as the network."""
        return self._servers.servers[0].directory

    @property
    def ended(self) -> frozenset[str]:
        """The nodes whose private redis-server has ended by itself; with replicas, servers come back."""
        if self.replicated is not None:
            return frozenset()
        return frozenset(f"n{place}" for place, each in enumerate(self._servers.servers, start=1) if each.has_ended)

    def url_of(self, role: str) -> str:
        """Return the control URL of a role; without users, the URL for all."""
        url = self._servers.urls[0]
        return found_by(self.users[role].url(url), self.users.get(FINDER)) if self.users else url

    async def close(self) -> None:
        """Stop the relays, then the servers."""
        self._closing = True  # nothing is to be begun meanwhile
        try:
            if self._relays is not None:
                await self._relays.stop()
            if self._started:
                await super().close()
        finally:
            if self._keeping is not None:
                self._keeping.cancel()
                await asyncio.wait((self._keeping,))
            await self._servers.stop_async()
