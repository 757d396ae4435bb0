"""The site of a trial: a peer's servers, and their addresses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from adapters.embedded.server import EmbeddedServer
from laboratory.bench.workload import World


@dataclass(frozen=True, slots=True)
class Site:
    """``servers``, ``relays``: process ids, by which their CPU is counted; relays stand between servers."""

    url: str
    servers: tuple[int, ...]
    relays: tuple[int, ...] = ()


class OnRedis:
    """Peers that take one private redis-server, which keeps nothing on disk; raises `EmbeddedServerError`."""

    __slots__ = ()

    def missing(self) -> str | None:
        return None

    @contextmanager
    def site(self, world: World) -> Iterator[Site]:
        with EmbeddedServer() as server:
            yield Site(server.url, (server.pid,))
