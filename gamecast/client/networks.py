"""Which network is behind a URL."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from urllib.parse import urlsplit

from adapters.embedded.network import EmbeddedNetwork
from adapters.memory import MemoryNetwork
from adapters.network import Network
from adapters.redis.connection import redacted
from adapters.redis.network import RedisNetwork
from gamecast.client.configuration import Configuration
from sequencing.errors import UnknownScheme, UsageError

_NETWORKS: dict[str, type[RedisNetwork | MemoryNetwork]] = {
    "redis": RedisNetwork,
    "rediss": RedisNetwork,
    "unix": RedisNetwork,
    "redis+sentinel": RedisNetwork,
    "rediss+sentinel": RedisNetwork,
    "redis+cluster": RedisNetwork,
    "rediss+cluster": RedisNetwork,
    "memory": MemoryNetwork,
    "embedded": EmbeddedNetwork,
}


def network_of(configuration: Configuration) -> Network:
    """Return the network at a URL, not open yet; raises `UnknownScheme` and `UsageError`."""
    scheme = urlsplit(configuration.url).scheme
    if scheme not in _NETWORKS:
        raise UnknownScheme(
            f"{redacted(configuration.url)!r} has an unknown scheme: use redis://, rediss://, unix://, "
            "redis+sentinel://, redis+cluster://, memory://NAME or embedded://"
        )
    make_network: Callable[..., Network] = _NETWORKS[scheme]
    if configuration.routes:
        if make_network is not RedisNetwork:
            raise UsageError(f"routes lead to servers that are there already, and {scheme}:// has none")
        make_network = partial(RedisNetwork, routes=configuration.routes)
    return make_network(
        configuration.url,
        ordering=configuration.ordering,
        retention_events=configuration.limits.retention_events,
    )


def require_reachable(url: str) -> str:
    """Return a URL by which networks of other processes are reached; raises `UsageError` for other kinds."""
    scheme = urlsplit(url).scheme
    if scheme in ("memory", "embedded"):
        whose = "this process" if scheme == "memory" else "the connection that opens it"
        raise UsageError(
            f"{redacted(url)!r} is a private network of {whose}, where nobody else is: give the redis:// URL of a "
            "running network (`cast.url` of an embedded one)"
        )
    return url
