"""The settings of a gateway: its addresses, its access rules, and the limits of everything."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from adapters.urls import redacted
from gamecast.client.configuration import LimitOptions, WhenBehind
from sequencing.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayLimits:
    """Limits of everything that a client can make the gateway store or do."""

    connections_max: int = 4_000
    """Open sockets of any kind."""
    connections_per_address_max: int = 1_000
    """The same from one address; trusted proxies may use all."""
    tls_handshake_timeout_s: float = 5.0
    """Until a connection has negotiated TLS."""
    tls_handshakes_max: int = 256
    """TLS handshakes in progress at a time, after the client's first byte; others wait. Each needs 300 kB."""
    tls_handshakes_per_address_max: int = 16
    """The same of one address; trusted proxies may use all."""
    sessions_max: int = 2_000
    """WebSocket sessions and event streams together."""
    sessions_per_token_max: int = 64
    """The same of one subject; a token may set a lower limit."""
    regions_per_session_max: int = 256
    message_bytes_max: int = 262_144
    """The size of a WebSocket message from a client, of an HTTP body, and of a message with events to a client."""
    messages_per_array_max: int = 256
    """Messages in one array, and events in one HTTP batch."""
    payload_bytes_max: int = 65_536
    """The encoded size of one event's payload; a token may set a lower limit."""
    events_per_s: float = 1_000.0
    """Published events of one subject; a token may set another limit."""
    burst_events: int = 2_000
    bytes_per_s: float = 2_000_000.0
    """Of the WebSocket messages of one subject; beyond it, its messages are read more slowly."""
    burst_bytes: int = 8_000_000
    frames_per_s: float = 2_000.0
    """WebSocket frames of one connection; beyond it, the connection is closed."""
    burst_frames: int = 8_000
    requests_per_s: float = 100.0
    """Subscribes, history pages and refused messages of one subject."""
    burst_requests: int = 400
    updates_per_s: float = 3_000.0
    """Updates that one subject sends."""
    burst_updates: int = 6_000
    history_events_per_s: float = 5_000.0
    """Events of history that one subject reads, by pages or by subscribing with ``since``."""
    burst_history_events: int = 50_000
    new_regions_per_s: float = 10.0
    """New regions of one subject."""
    burst_new_regions: int = 256
    unanswered_max: int = 1_024
    """Publishes of one session without a receipt; at this limit, nothing more is read from its socket."""
    unanswered_bytes_max: int = 1_048_576
    """Payload bytes of such publishes; one larger event is published alone."""
    inbox_events_max: int = 10_000
    """Undelivered events of a slow session; beyond it the session is waited for, skipped or closed."""
    inbox_bytes_max: int = 8_388_608
    """The same in bytes."""
    updates_max: int = 4_096
    """Keys of which a session's newest update waits: to be sent to others, and to its client."""
    updates_bytes_max: int = 1_048_576
    """The same in bytes; what is new beyond it is dropped."""
    outbox_events_max: int = 1_024
    """Events in one message."""
    hello_timeout_s: float = 10.0
    """Until a session has sent its hello."""
    request_timeout_s: float = 15.0
    """Until the headers of a request have arrived, and until its body has; also the lifetime of an idle connection."""
    heartbeat_s: float = 20.0
    """Between pings to a WebSocket; it is closed if it does not answer within half of this."""
    idle_timeout_s: float = 600.0
    """A session without a subscription and without a message is closed after this time."""
    session_s: float = 86_400.0
    """The maximum age of a session, from its hello or its last new token.

    Then it is closed with 1001 and may reconnect.
    """
    token_leeway_s: float = 5.0
    """How long a token is still accepted after it expired, for clocks that differ; 0: not at all."""
    keep_s: float = 15.0
    """How long the session of a disconnected client stays parked. A client that comes back later gets a replay."""
    kept_sessions_max: int = 1_000
    resent_events_max: int = 256
    """Events of a session that can be sent again to a client that resumes and did not receive them."""
    resent_bytes_max: int = 2_097_152
    """The same in bytes."""
    send_timeout_s: float = 30.0
    """How long a socket may accept no byte of the waiting data."""
    drain_s: float = 1.0
    """At shutdown: how long clients have to go to another gateway."""
    publishers_max: int = 512
    """Names under which HTTP publishes are connected at a time."""
    publisher_idle_s: float = 60.0
    idempotency_s: float = 600.0
    """How long the answers to HTTP publishes with an idempotency key are kept."""
    idempotency_events_max: int = 100_000
    """Events of one subject whose answers are kept at a time."""
    history_events_max: int = 1_000
    """Events of one page."""
    stream_regions_max: int = 32
    """Regions of one event stream: each event id has the positions of all of them."""
    hook_timeout_s: float = 1.0
    """The time limit for a hook's answer; before the call, it may wait as long for its turn."""
    hook_calls_max: int = 256
    """Calls of one hook in progress at a time; others wait for their turn."""
    hook_failures_max: int = 5
    """How many failures of a hook in a row open its circuit breaker: it is not called for `hook_pause_s`."""
    hook_pause_s: float = 5.0
    """How long a hook is not called before one call tests it."""

    @property
    def connection(self) -> LimitOptions:
        """The bounds of what a connection of a client has to take, and to send."""
        return LimitOptions(
            inbox_events_max=self.inbox_events_max,
            inbox_bytes_max=self.inbox_bytes_max,
            held_bytes_max=self.inbox_bytes_max,
            updates_max=self.updates_max,
            updates_bytes_max=self.updates_bytes_max,
        )

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if not (getattr(self, name) > 0 or (name == "token_leeway_s" and getattr(self, name) == 0)):
                raise UsageError(f"{name} must be positive, not {getattr(self, name)!r}")


IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
IPNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network
MAPPED = ipaddress.IPv6Network("::ffff:0:0/96")
"""IPv4-mapped addresses, as IPv6 sockets show them."""


HookName = Literal["connect", "subscribe", "publish"]
WhenDown = Literal["deny", "allow"]
HOOK_SECRET_BYTES_MIN = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class HookSettings:
    """How the gateway asks the game's backend before clients connect, subscribe or publish."""

    urls: Mapping[HookName, str]
    """The URL of each hook that the backend has; a hook without a URL is not called."""
    secret: bytes
    """Signs each call, so that the backend can verify that it comes from the gateway."""
    when_down: WhenDown = "deny"
    """What happens to clients' requests while the backend does not answer."""

    def __post_init__(self) -> None:
        for name, url in self.urls.items():
            _check_hook_url(name, url)
        if len(self.secret) < HOOK_SECRET_BYTES_MIN:
            raise UsageError(
                f"the hook secret has {len(self.secret)} bytes, fewer than {HOOK_SECRET_BYTES_MIN}: make one "
                "with `openssl rand -hex 32`"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings:
    """One gateway."""

    host: str = "127.0.0.1"
    port: int = 0
    origins: tuple[str, ...] = ()
    """Origins of web pages that may use the gateway from a browser, besides its own; ``*`` allows any."""
    when_behind: WhenBehind = "wait"
    admin: tuple[str, int] | None = None
    """Host and port for metrics and the dashboard, open to all who can reach them.

    None: access depends on the token.
    """
    admin_names: tuple[str, ...] = ()
    """Host names that operators may use for that address, in lower case, besides localhost and IP addresses."""
    trusted_proxies: tuple[IPNetwork, ...] = ()
    """Proxies whose X-Forwarded-For is trusted."""
    limits: GatewayLimits = field(default_factory=GatewayLimits)
    hooks: HookSettings | None = None
    """The game's backend; None: only tokens and limits decide."""

    def __post_init__(self) -> None:
        if self.admin is not None and self.port and self.admin[1] == self.port:
            raise UsageError(f"the address for operators needs a port of its own, not {self.port}")


def read_hook_secret(file: Path) -> bytes:
    """Read the secret that signs hook calls, without surrounding white space; raises `UsageError`."""
    try:
        return file.read_bytes().strip()
    except OSError as error:
        raise UsageError(f"cannot read the hook secret: {error}") from error


def _check_hook_url(name: str, url: str) -> None:
    try:
        parts = urlsplit(url)
        is_good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0 and not parts.fragment
    except ValueError:
        is_good = False
    if not is_good:
        raise UsageError(f"the {name} hook needs a URL like https://game.example/hooks/{name}, not {redacted(url)!r}")


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a host."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def unmapped(address: IPAddress) -> IPAddress:
    """Return the IPv4 address of an IPv4-mapped IPv6 address (``::ffff:10.0.0.1``), or any other address unchanged."""
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return address if mapped is None else mapped


def parse_address(given: str) -> tuple[str, int]:
    """Read HOST:PORT; raises `UsageError`."""
    host, colon, port = given.rpartition(":")
    if not (colon and host and port.isascii() and port.isdecimal() and int(port) < 65_536):
        raise UsageError(f"an address must be HOST:PORT, not {given!r}")
    return host.removeprefix("[").removesuffix("]"), int(port)


def parse_networks(given: Iterable[str]) -> tuple[IPNetwork, ...]:
    """Parse addresses and networks (10.0.0.0/8); raises `UsageError`."""
    try:
        return tuple(_unmapped_network(ipaddress.ip_network(text)) for text in given)
    except ValueError as error:
        raise UsageError(f"a proxy must be an address or a network: {error}") from error


def _unmapped_network(network: IPNetwork) -> IPNetwork:
    if isinstance(network, ipaddress.IPv6Network) and network.subnet_of(MAPPED):
        first = unmapped(network.network_address)
        return ipaddress.ip_network((first, network.prefixlen - MAPPED.prefixlen))
    return network


def parse_limits(given: Iterable[str]) -> GatewayLimits:
    """Return the limits with changes, each written ``name=value``; raises `UsageError`."""
    types = {each.name: each.type for each in fields(GatewayLimits)}
    changed: dict[str, float] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or name not in types:
            raise UsageError(f"a limit must be NAME=VALUE, not {text!r}; names are {', '.join(types)}")
        try:
            changed[name] = int(value) if types[name] == "int" else float(value)
        except ValueError as error:
            raise UsageError(f"{name} must be a number, not {value!r}") from error
    return GatewayLimits(**changed)  # type: ignore[arg-type]
