"""Many connections of one process over few sockets: for gateways, bots, and servers with many subscribers."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from dataclasses import asdict
from types import TracebackType
from typing import Any, Self, Unpack
from urllib.parse import urlsplit

from adapters.network import Network
from adapters.redis.network import RedisNetwork
from adapters.redis.view import RedisView
from gamecast.client.client import Client
from gamecast.client.closing import CLOSE_S_MAX, close_until
from gamecast.client.configuration import (
    Configuration,
    ConnectionOptions,
    LimitOptions,
    NetworkOptions,
    WhenBehind,
    configured,
)
from gamecast.client.networks import access_to, network_of
from sequencing.errors import NotConnected, UsageError


def share(
    url: str | None = None,
    **options: Unpack[NetworkOptions],
) -> Shared:
    """Share sockets among connections of this process. Open the result with ``async with`` or ``await``.

    Each connection made with `Shared.connect` has its own name, regions and guarantees, as one of `gamecast.connect`
    has. The connections share sockets, and frames that several of them need are read once. Options are those of
    `gamecast.connect`; limits apply to each connection that sets no others. Raises `UsageError` and its kinds at once.
    """
    if unknown := sorted(options.keys() - NetworkOptions.__annotations__.keys()):
        raise UsageError(f"share() has no option {unknown[0]}: the connections that `Shared.connect` makes may have it")
    return Shared(configured(url, **options))


class Shared:
    """The sockets that connections of one event loop share."""

    def __init__(self, configuration: Configuration) -> None:
        """Use `share`."""
        self._configuration = configuration
        network = access_to(configuration)
        # Within a process there is nothing to share.
        self._network = network if isinstance(network, RedisNetwork) else None
        self._clients: set[Client] = set()
        """Those that are open. Held here: the application may have dropped one, and its tasks go on."""
        self._is_open = False
        self._was_opened = False
        """From when `open` is called, unless that fails."""
        self._closing: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """The control URL, which other connections use to join the same network."""
        self._require_open()
        return self._network.url if self._network is not None else self._configuration.url

    async def open(self) -> Self:
        """Connect to the network. Raises `NetworkError` or `OtherSideError` and its kinds, and leaves nothing open."""
        if self._was_opened:
            raise UsageError("what is shared opens once: call gamecast.share() again")
        self._was_opened = True
        try:
            if self._network is not None:
                try:
                    await self._network.open()
                    self._network.stand_by()
                except BaseException:
                    await self._network.close()
                    raise
        except BaseException:
            self._was_opened = False
            raise
        self._is_open = True
        return self

    def connect(self, **options: Unpack[ConnectionOptions]) -> Client:
        """Return a connection, which opens as one of `gamecast.connect` does; options as there."""
        if misplaced := sorted({"ordering", "routes"} & options.keys()):
            raise UsageError(f"{misplaced[0]} is an option of share(): all connections of a network have the same")
        return self._client(**options)

    def guest(self, name: str, *, when_behind: WhenBehind, **limits: Unpack[LimitOptions]) -> Client:
        """Return a connection for a client of a gateway."""
        return self._client(name=name, when_full="refuse", when_behind=when_behind, is_guest=True, **limits)

    def _client(self, **options: Any) -> Client:
        """``options``: as `configured` takes them; the shared limits apply where they set none."""
        self._require_open()
        mine = self._configuration
        options = {**asdict(mine.limits), **options}
        configuration = configured(mine.url, ordering=mine.ordering, routes=mine.routes, **options)

        def view() -> Network:
            self._require_open()
            return RedisView(self._network, is_alone=False) if self._network is not None else network_of(configuration)

        return Client(configuration, view, self._clients)

    async def close(self) -> None:
        """End now, with all connections that are still open.

        Takes 2 s at most if a server does not answer. Harmless when repeated; goes on to its end when the caller is
        cancelled.
        """
        if self._is_open:
            self._is_open = False
            self._closing = asyncio.create_task(self._close(), name="gamecast close of what is shared")
        if self._closing is not None:
            await asyncio.shield(self._closing)

    async def _close(self) -> None:
        began = asyncio.get_running_loop().time()
        while self._clients:  # some may have been opening
            await asyncio.gather(*(client.close() for client in tuple(self._clients)))
        if self._network is None:
            return
        if urlsplit(self._configuration.url).scheme == "embedded":
            await self._network.close()  # ends the embedded servers, too
        else:
            await close_until(began + CLOSE_S_MAX, self._network.close())

    def __await__(self) -> Generator[Any, None, Self]:
        """As `open`."""
        return self.open().__await__()

    async def __aenter__(self) -> Self:
        """Open, unless that was done before with ``await``."""
        return self if self._is_open else await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _require_open(self) -> None:
        if not self._is_open:
            raise NotConnected("what is shared is not open: use 'async with', or await shared.open()")
