"""The limits of a connection, and the default of its URL."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, get_args

from adapters.leadership import RESUME_S
from gamecast.arguments import check_numbers, checked_routes, checked_url
from sequencing.depth import PAYLOAD_DEPTH_MAX
from sequencing.errors import UsageError
from sequencing.names import check_connection_name, check_own_name
from sequencing.plan import Ordering

if TYPE_CHECKING:
    from gamecast.recording.options import Recording

DEFAULT_URL = "embedded://"

PAYLOAD_BYTES_MOST = 500_000_000
"""Redis accepts values of 512 MiB at most."""
PAYLOAD_DEPTH_MOST = 200
"""orjson writes 254 at most, and programs that read a payload wrap it in something of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Every buffer has a bound. All can be given to `gamecast.connect` by name."""

    buffer_events_max: int = 50_000
    """Published events that wait for their ingress; beyond it ``publish`` waits or refuses (``when_full``)."""
    buffer_bytes_max: int = 64 * 1024 * 1024
    """The same in bytes of payload."""
    overflow_factor: int = 20
    """The factor by which a limit may be exceeded where waiting is impossible: the two above by ``publish_async``
    before it refuses in any case, those of the inbox while ``subscribe`` waits."""
    payload_bytes_max: int = 1_000_000
    """The encoded size of one event; `PAYLOAD_BYTES_MOST` at most."""
    payload_depth_max: int = PAYLOAD_DEPTH_MAX
    """How deep the lists and objects of one event may be nested; `PAYLOAD_DEPTH_MOST` at most."""
    inbox_events_max: int = 50_000
    """Delivered events that the application has not taken; beyond it reading pauses."""
    inbox_bytes_max: int = 64 * 1024 * 1024
    """The same in bytes."""
    updates_max: int = 65_536
    """Keys of which the newest update waits to be sent, and of which one waits to be taken; beyond it what is new is
    dropped, and counted."""
    updates_bytes_max: int = 64 * 1024 * 1024
    """The same in bytes of payload: sent, and about what they take when they were received."""
    held_frames_max: int = 20_000
    """Received frames of one region that wait for others; beyond it reading that region pauses."""
    held_bytes_max: int = 64 * 1024 * 1024
    """About the same in bytes: so many frames as large as those that came last."""
    subscribe_timeout_s: float = 30.0
    """How long ``subscribe`` waits until its regions are joined; after a timeout they stay requested."""
    publish_timeout_s: float = 20.0
    """How long an unreachable ingress is retried before publishes fail."""
    retention_events: int = 1_000_000
    """How many events of each region its node keeps; applies to plans made from this connection."""
    resume_s: float = RESUME_S
    """Seconds that a disconnected subscriber keeps its place. If it reconnects in time, under its name and with its
    positions, it resumes in the same order, even after a transition. Applies to plans made from this connection."""

    def __post_init__(self) -> None:
        timeouts = "subscribe_timeout_s", "publish_timeout_s", "resume_s"
        check_numbers(self, [name for name in self.__slots__ if name not in timeouts], timeouts)
        if self.payload_depth_max > PAYLOAD_DEPTH_MOST:
            raise UsageError(f"payload_depth_max is {PAYLOAD_DEPTH_MOST} at most, not {self.payload_depth_max}")
        if self.payload_bytes_max > PAYLOAD_BYTES_MOST:
            raise UsageError(
                f"payload_bytes_max is {PAYLOAD_BYTES_MOST:,} at most, which Redis takes, not {self.payload_bytes_max}"
            )


WhenFull = Literal["wait", "refuse"]
WhenBehind = Literal["wait", "skip", "disconnect"]
"""What happens to a connection whose application leaves ``inbox_events_max`` events, or ``inbox_bytes_max``, untaken.

``wait``: reading pauses; the nodes keep new events, up to ``retention_events`` a region. ``skip``: untaken events are
dropped and replaced by a `Gap`. ``disconnect``: iteration ends with `TooSlow`, after the received events. In no case
does another client wait.
"""


class LimitOptions(TypedDict, total=False):
    """The keyword arguments of `gamecast.connect` for `Limits`."""

    buffer_events_max: int
    buffer_bytes_max: int
    overflow_factor: int
    payload_bytes_max: int
    payload_depth_max: int
    inbox_events_max: int
    inbox_bytes_max: int
    updates_max: int
    updates_bytes_max: int
    held_frames_max: int
    held_bytes_max: int
    subscribe_timeout_s: float
    publish_timeout_s: float
    retention_events: int
    resume_s: float


class NetworkOptions(LimitOptions, total=False):
    """The keyword arguments of `gamecast.share`: the network, and the limits of its connections."""

    ordering: Ordering
    routes: Mapping[str, str] | None


class ConnectionOptions(LimitOptions, total=False):
    """The keyword arguments of `gamecast.Shared.connect`: one connection's own options."""

    name: str | None
    when_full: WhenFull
    when_behind: WhenBehind
    record: str | Path | Recording | None


class ConnectOptions(NetworkOptions, ConnectionOptions, total=False):
    """The keyword arguments of `gamecast.connect` and `gamecast.blocking.connect`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """The checked arguments of `gamecast.connect`."""

    url: str
    name: str
    ordering: Ordering
    when_full: WhenFull
    when_behind: WhenBehind
    limits: Limits
    routes: Mapping[str, str] = field(default_factory=dict)
    record: Recording | None = None
    is_guest: bool = False
    """Whether it is for a gateway's client. These clients come and go under their names, and decide by the events
    published before what they repeat. So their joins end what an earlier connection has in flight; see
    `Subscriber.subscribe`."""


def configured(
    url: str | None,
    *,
    name: str | None = None,
    ordering: Ordering = "acyclic",
    when_full: WhenFull = "wait",
    when_behind: WhenBehind = "wait",
    routes: Mapping[str, str] | None = None,
    record: str | Path | Recording | None = None,
    is_guest: bool = False,
    **limits: Any,
) -> Configuration:
    """Check and complete the arguments of `gamecast.connect`; raises `UsageError` and its kinds."""
    if when_full not in get_args(WhenFull):
        raise UsageError(f"when_full is 'wait' or 'refuse', not {when_full!r}")
    if when_behind not in get_args(WhenBehind):
        raise UsageError(f"when_behind is {', '.join(map(repr, get_args(WhenBehind)))}, not {when_behind!r}")
    if ordering not in get_args(Ordering):
        raise UsageError(f"ordering is {', '.join(map(repr, get_args(Ordering)))}, not {ordering!r}")
    if strange := sorted(limits.keys() - set(Limits.__slots__)):
        raise UsageError(f"connect() has no option {strange[0]}; limits are {', '.join(Limits.__slots__)}")
    checked = Limits(**limits)
    return Configuration(
        url=checked_url(default_url() if url is None else url),
        name=generated_name() if name is None else (check_connection_name if is_guest else check_own_name)(name),
        ordering=ordering,
        when_full=when_full,
        when_behind=when_behind,
        limits=checked,
        routes=checked_routes(routes),
        record=_recording(record) if record is not None else None,
        is_guest=is_guest,
    )


def _recording(record: str | Path | Recording) -> Recording:
    from gamecast.recording.options import as_recording  # most connections record nothing

    return as_recording(record)


def default_url() -> str:
    """Return ``GAMECAST_URL``, else a private embedded network."""
    return os.environ.get("GAMECAST_URL") or DEFAULT_URL


def generated_name() -> str:
    """Return a name that no other connection has."""
    return f"{socket.gethostname()}-{os.getpid()}-{os.urandom(4).hex()}"
