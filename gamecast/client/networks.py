"""The network for a URL."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

from adapters.network import Network
from adapters.redis.network import RedisNetwork
from adapters.redis.places import SCHEMES as REDIS_SCHEMES
from adapters.redis.view import RedisView
from adapters.urls import redacted
from gamecast.arguments import checked_url
from gamecast.client.configuration import Configuration
from sequencing.errors import UnknownScheme, UsageError
from sequencing.plan import Ordering

if TYPE_CHECKING:
    from adapters.memory import MemoryNetwork

__all__ = ["access_to", "network_of", "redacted", "require_reachable"]


class _MakeNetwork(Protocol):
    def __call__(
        self, url: str, *, ordering: Ordering, retention_events: int, resume_s: float
    ) -> RedisNetwork | MemoryNetwork: ...


def network_of(configuration: Configuration) -> Network:
    """Return the network at a URL for one connection, not open yet; raises `UnknownScheme` and `UsageError`."""
    network = access_to(configuration)
    return RedisView(network, is_alone=True) if isinstance(network, RedisNetwork) else network


def access_to(configuration: Configuration) -> RedisNetwork | MemoryNetwork:
    """Return a process's access to the network at a URL; see `network_of`."""
    scheme = urlsplit(configuration.url).scheme
    make_network = _maker(scheme)
    if make_network is None:
        raise UnknownScheme(
            f"{redacted(configuration.url)!r} has an unknown scheme: use redis://, rediss://, unix://, "
            "redis+sentinel://, redis+cluster://, memory://NAME or embedded://"
        )
    if configuration.routes:
        if scheme not in REDIS_SCHEMES:
            raise UsageError(f"routes lead to servers that are there already, and {scheme}:// has none")
        make_network = partial(RedisNetwork, routes=configuration.routes)
    return make_network(
        configuration.url,
        ordering=configuration.ordering,
        retention_events=configuration.limits.retention_events,
        resume_s=configuration.limits.resume_s,
    )


def _maker(scheme: str) -> _MakeNetwork | None:
    if scheme in REDIS_SCHEMES:
        return RedisNetwork
    # A game server in a network of many servers loads neither.
    if scheme == "memory":
        from adapters.memory import MemoryNetwork

        return MemoryNetwork
    if scheme == "embedded":
        from adapters.embedded.network import EmbeddedNetwork

        return EmbeddedNetwork
    return None


def require_reachable(url: str) -> str:
    """Return a URL that other processes can use to reach a network; raises `UsageError` for any other."""
    scheme = urlsplit(checked_url(url)).scheme
    if scheme in ("memory", "embedded"):
        whose = "this process" if scheme == "memory" else "the connection that opens it"
        raise UsageError(
            f"{redacted(url)!r} is a private network of {whose}: give the redis:// URL of a "
            "running network (`client.url` of an embedded one)"
        )
    return url
