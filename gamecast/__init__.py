"""Ordered publish-subscribe for game worlds.

>>> async with gamecast.connect("redis://127.0.0.1:6379", name="server-eu-1") as client:
...     await client.subscribe("forest", "river")
...     await client.publish("forest", {"type": "spell"})
...     async for event in client:
...         print(event.region, event.sender, event.payload)
"""

from importlib import import_module

from gamecast import interrupts

if interrupts.is_command():
    interrupts.end_at_once()  # what follows takes a while

from typing import TYPE_CHECKING, Any

from gamecast.errors import (
    AuthenticationFailed,
    BufferFull,
    CannotPersist,
    CannotWrite,
    EmbeddedServerError,
    ExtraMissing,
    GamecastError,
    InvalidInput,
    InvalidName,
    InvalidPayload,
    NetworkError,
    NetworkRestarted,
    NoLeader,
    NotAllowed,
    NotConnected,
    OtherSideError,
    OutOfMemory,
    PartlyPublished,
    PayloadTooLarge,
    PlanError,
    ProcessFailed,
    PublishUncertain,
    Refused,
    SessionExpired,
    Superseded,
    TooSlow,
    UnknownPosition,
    UnknownScheme,
    UnorderedHistory,
    Unreachable,
    UnsupportedServer,
    UsageError,
)
from gamecast.version import __version__ as __version__

if TYPE_CHECKING:
    from gamecast.classic.protocolclient import ProtocolClient
    from gamecast.client.client import Client, connect
    from gamecast.client.configuration import Limits, WhenBehind, WhenFull
    from gamecast.client.history import ReplayOrder
    from gamecast.client.watching import PublishFailure, Status
    from gamecast.event import Event, Gap, Receipt, Statistics
    from gamecast.recording.options import Recording, RecordingStatistics
    from gamecast.sharing import Shared, share
    from sequencing.plan import Ordering

__all__ = [
    "AuthenticationFailed",
    "BufferFull",
    "CannotPersist",
    "CannotWrite",
    "Client",
    "EmbeddedServerError",
    "Event",
    "ExtraMissing",
    "GamecastError",
    "Gap",
    "InvalidInput",
    "InvalidName",
    "InvalidPayload",
    "Limits",
    "NetworkError",
    "NetworkRestarted",
    "NoLeader",
    "NotAllowed",
    "NotConnected",
    "Ordering",
    "OtherSideError",
    "OutOfMemory",
    "PartlyPublished",
    "PayloadTooLarge",
    "PlanError",
    "ProcessFailed",
    "ProtocolClient",
    "PublishFailure",
    "PublishUncertain",
    "Receipt",
    "Recording",
    "RecordingStatistics",
    "Refused",
    "ReplayOrder",
    "SessionExpired",
    "Shared",
    "Statistics",
    "Status",
    "Superseded",
    "TooSlow",
    "UnknownPosition",
    "UnknownScheme",
    "UnorderedHistory",
    "Unreachable",
    "UnsupportedServer",
    "UsageError",
    "WhenBehind",
    "WhenFull",
    "connect",
    "share",
]

_FOR_EVERYBODY = {
    "Client": "client.client",
    "Event": "event",
    "Gap": "event",
    "Limits": "client.configuration",
    "Ordering": "client.configuration",
    "Receipt": "event",
    "ReplayOrder": "client.history",
    "Status": "client.watching",
    "Statistics": "event",
    "PublishFailure": "client.watching",
    "WhenBehind": "client.configuration",
    "WhenFull": "client.configuration",
    "connect": "client.client",
}
"""Name → its module, below this folder. Imported at once: a server that loads what a connection takes when it opens one
has its event loop stand still meanwhile."""

_FOR_SOME = {
    "ProtocolClient": "classic.protocolclient",
    "Recording": "recording.options",
    "RecordingStatistics": "recording.options",
    "Shared": "sharing",
    "share": "sharing",
}
"""Likewise, imported when they are asked for."""


def __getattr__(name: str) -> Any:
    module = _FOR_EVERYBODY.get(name) or _FOR_SOME.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"{__name__}.{module}"), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


if not interrupts.is_command():  # which imports what its subcommand needs, and no more
    for _name in _FOR_EVERYBODY:
        __getattr__(_name)
