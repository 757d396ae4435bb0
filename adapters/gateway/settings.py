"""What a gateway is told: where it listens, whom it lets in, and the bound of everything."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from adapters.gateway.ports import WhenBehind
from adapters.urls import redacted
from sequencing.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayLimits:
    """Everything that a client can make the gateway keep or do has a bound."""

    connections_max: int = 4_000
    """Open sockets of any kind."""
    connections_per_address_max: int = 1_000
    """The same from one address; trusted proxies may have all."""
    tls_handshake_timeout_s: float = 5.0
    """Until a connection has negotiated TLS."""
    tls_handshakes_max: int = 256
    """Negotiations of TLS under way at a time, after the client's first byte; others wait. Each takes 300 kB."""
    tls_handshakes_per_address_max: int = 16
    """The same of one address; trusted proxies may have all."""
    sessions_max: int = 2_000
    """WebSocket sessions and event streams together."""
    sessions_per_token_max: int = 64
    """The same of one subject; a token may say less."""
    regions_per_session_max: int = 256
    message_bytes_max: int = 262_144
    """One WebSocket message of a client, or one HTTP body; and one message with several events to a client."""
    messages_per_array_max: int = 256
    """Messages that come as one array, and events of one HTTP batch."""
    payload_bytes_max: int = 65_536
    """One event's payload, encoded; a token may say less."""
    events_per_s: float = 1_000.0
    """Published events of one subject; a token may say another."""
    burst_events: int = 2_000
    requests_per_s: float = 100.0
    """Subscribes, history pages and refused messages of one subject."""
    burst_requests: int = 400
    history_events_per_s: float = 5_000.0
    """Events of the past that one subject reads, by pages or by subscribing with ``since``."""
    burst_history_events: int = 50_000
    new_regions_per_s: float = 10.0
    """Regions that there were not before, of one subject."""
    burst_new_regions: int = 256
    unanswered_max: int = 1_024
    """Publishes of one session without a receipt; beyond it nothing more is read from its socket."""
    unanswered_bytes_max: int = 1_048_576
    """Payload bytes of such publishes; one larger event goes alone."""
    inbox_events_max: int = 10_000
    """Events that a slow session leaves untaken, until it is waited for, skipped or closed."""
    outbox_events_max: int = 1_024
    """Events that go into one message."""
    hello_timeout_s: float = 10.0
    """Until a session has said who it is."""
    request_timeout_s: float = 15.0
    """Until a request's headers are there, and until its body is; also how long an idle connection is kept."""
    heartbeat_s: float = 20.0
    """Between pings to a WebSocket; one that does not answer half as long is closed."""
    idle_timeout_s: float = 600.0
    """A session without a subscription and without a message for so long is closed."""
    session_s: float = 86_400.0
    """A session that has lasted so long, since its hello or the last that brought a new token, is sent on (1001)."""
    keep_s: float = 15.0
    """How long the place of a client that dropped is kept for it: who comes back later is replayed what it missed."""
    kept_sessions_max: int = 1_000
    resent_events_max: int = 256
    """Events of a session that can be sent again to a client that comes back and has not had them."""
    send_timeout_s: float = 30.0
    """How long a socket may take no byte of what is written to it."""
    drain_s: float = 1.0
    """At the end: how long sessions are given to go elsewhere."""
    publishers_max: int = 512
    """Names under which HTTP publishes are connected at a time."""
    publisher_idle_s: float = 60.0
    idempotency_s: float = 600.0
    """For how long the answers of HTTP publishes with an idempotency key are remembered."""
    idempotency_events_max: int = 100_000
    """Events of one subject whose answers are remembered at a time."""
    history_events_max: int = 1_000
    """Events of one page."""
    stream_regions_max: int = 32
    """Regions of one event stream: all their positions are in each event id."""
    hook_timeout_s: float = 1.0
    """How long the game's backend has to answer a hook; before that, a call waits as long for its turn."""
    hook_calls_max: int = 256
    """Calls of one hook under way at a time; others wait for their turn."""
    hook_failures_max: int = 5
    """So many failures of a hook in a row open its circuit breaker: it is not called for `hook_pause_s`."""
    hook_pause_s: float = 5.0
    """How long a hook is not called before one call tries it again."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if not getattr(self, name) > 0:
                raise UsageError(f"{name} must be positive, not {getattr(self, name)!r}")


IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
IPNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network
MAPPED = ipaddress.IPv6Network("::ffff:0:0/96")
"""IPv4 addresses as sockets for IPv6 show them."""


HookName = Literal["connect", "subscribe", "publish"]
WhenDown = Literal["deny", "allow"]
HOOK_SECRET_BYTES_MIN = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class HookSettings:
    """Where the game's backend is asked before clients connect, subscribe or publish."""

    urls: Mapping[HookName, str]
    """The URL of each hook that the backend has; hooks without a URL are not called."""
    secret: bytes
    """Signs each call, so that the backend can tell that it comes from the gateway."""
    when_down: WhenDown = "deny"
    """What happens to clients' requests while the backend does not answer."""

    def __post_init__(self) -> None:
        for name, url in self.urls.items():
            _check_hook_url(name, url)
        if len(self.secret) < HOOK_SECRET_BYTES_MIN:
            raise UsageError(
                f"the secret of the hooks has {len(self.secret)} bytes, fewer than {HOOK_SECRET_BYTES_MIN}: make one "
                "with `openssl rand -hex 32`"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings:
    """One gateway."""

    host: str = "127.0.0.1"
    port: int = 0
    origins: tuple[str, ...] = ()
    """Origins of pages that may use the gateway from a browser, besides its own; ``*`` is any."""
    when_behind: WhenBehind = "wait"
    admin: tuple[str, int] | None = None
    """Host and port for metrics and the dashboard, which whoever reaches them may see; None: tokens tell who may."""
    admin_names: tuple[str, ...] = ()
    """Host names by which operators may call that address, in small letters, besides localhost and IP addresses."""
    trusted_proxies: tuple[IPNetwork, ...] = ()
    """Whose X-Forwarded-For is believed."""
    limits: GatewayLimits = field(default_factory=GatewayLimits)
    hooks: HookSettings | None = None
    """The game's backend; None: there is none, and tokens and limits alone decide."""

    def __post_init__(self) -> None:
        if self.admin is not None and self.port and self.admin[1] == self.port:
            raise UsageError(f"the address for operators needs a port of its own, not {self.port}")


def read_hook_secret(file: Path) -> bytes:
    """Read the secret that signs calls of hooks, without the white space at its ends; raises `UsageError`."""
    try:
        return file.read_bytes().strip()
    except OSError as error:
        raise UsageError(f"cannot read the secret of the hooks: {error}") from error


def _check_hook_url(name: str, url: str) -> None:
    try:
        parts = urlsplit(url)
        is_good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0 and not parts.fragment
    except ValueError:
        is_good = False
    if not is_good:
        raise UsageError(f"the {name} hook needs a URL like https://game.example/hooks/{name}, not {redacted(url)!r}")


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches a host."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def unmapped(address: IPAddress) -> IPAddress:
    """Return the IPv4 address that an IPv6 address stands for, if it does (``::ffff:10.0.0.1``), else the same."""
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return address if mapped is None else mapped


def parse_address(given: str) -> tuple[str, int]:
    """Read HOST:PORT; raises `UsageError`."""
    host, colon, port = given.rpartition(":")
    if not (colon and host and port.isascii() and port.isdecimal() and int(port) < 65_536):
        raise UsageError(f"an address is HOST:PORT, not {given!r}")
    return host.removeprefix("[").removesuffix("]"), int(port)


def parse_networks(given: Iterable[str]) -> tuple[IPNetwork, ...]:
    """Read addresses, or networks of them (10.0.0.0/8); raises `UsageError`."""
    try:
        return tuple(_unmapped_network(ipaddress.ip_network(text)) for text in given)
    except ValueError as error:
        raise UsageError(f"a proxy is an address or a network of them: {error}") from error


def _unmapped_network(network: IPNetwork) -> IPNetwork:
    if isinstance(network, ipaddress.IPv6Network) and network.subnet_of(MAPPED):
        first = unmapped(network.network_address)
        return ipaddress.ip_network((first, network.prefixlen - MAPPED.prefixlen))
    return network


def parse_limits(given: Iterable[str]) -> GatewayLimits:
    """Return the limits with some changed, ``name=value`` each; raises `UsageError`."""
    types = {each.name: each.type for each in fields(GatewayLimits)}
    changed: dict[str, float] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or name not in types:
            raise UsageError(f"a limit is NAME=VALUE, not {text!r}; names are {', '.join(types)}")
        try:
            changed[name] = int(value) if types[name] == "int" else float(value)
        except ValueError as error:
            raise UsageError(f"{name} is a number, not {value!r}") from error
    return GatewayLimits(**changed)  # type: ignore[arg-type]
