"""The interface of a peer of the bench: publish batches, and call back on every delivery; and its servers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Protocol

from adapters.embedded.server import EmbeddedServer
from laboratory.bench.workload import Payload, World


@dataclass(frozen=True, slots=True)
class Site:
    """``servers``, ``relays``: process ids, by which their CPU is counted; relays stand between servers."""

    url: str
    servers: tuple[int, ...]
    relays: tuple[int, ...] = ()


Active = Callable[[], None]
Deliver = Callable[[Payload], None]
Publish = Callable[[Sequence[tuple[str, Payload]]], Awaitable[None]]


class Peer(Protocol):
    """One way to carry events over fresh servers; it is handed to other processes, so it must pickle.

    Written as a good user would: idiomatic, well tuned, each event decoded and handed to `deliver` by itself.
    """

    @property
    def name(self) -> str: ...

    def missing(self) -> str | None:
        """Return what a trial needs and is not installed, and how to install it; None if everything is installed."""

    def site(self, world: World) -> AbstractContextManager[Site]:
        """Fresh servers, for as long as the context lasts; entering and leaving it block for milliseconds."""

    def publisher(self, url: str, name: str) -> AbstractAsyncContextManager[Publish]:
        """Return a publisher; it yields a function that takes (region, payload) pairs, and returns when it can take
        more."""

    async def receive(self, url: str, name: str, regions: Sequence[str], deliver: Deliver, active: Active) -> None:
        """Delivers to one subscriber until cancelled; calls `active` once nothing published from then on is missed."""


class OnRedis:
    """Peers that take one private redis-server, which keeps nothing on disk; raises `EmbeddedServerError`."""

    __slots__ = ()

    def missing(self) -> str | None:
        return None

    @contextmanager
    def site(self, world: World) -> Iterator[Site]:
        with EmbeddedServer() as server:
            yield Site(server.url, (server.pid,))
