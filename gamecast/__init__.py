"""Ordered publish-subscribe for game worlds.

>>> async with gamecast.connect("redis://127.0.0.1:6379", name="server-eu-1") as cast:
...     await cast.subscribe("forest", "river")
...     await cast.publish("forest", {"type": "spell"})
...     async for event in cast:
...         print(event.region, event.sender, event.payload)
"""

from gamecast import interrupts

if interrupts.is_command():
    interrupts.end_at_once()  # what follows takes a while

from typing import TYPE_CHECKING, Any

from gamecast.classic.protocolcast import ProtocolCast
from gamecast.client.cast import Cast, connect
from gamecast.errors import (
    AuthenticationFailed,
    BufferFull,
    CannotPersist,
    CannotWrite,
    EmbeddedServerError,
    GamecastError,
    InvalidInput,
    InvalidName,
    InvalidPayload,
    NetworkError,
    NotConnected,
    OtherSideError,
    OutOfMemory,
    PartlyPublished,
    PayloadTooLarge,
    PlanError,
    ProcessFailed,
    PublishUncertain,
    Refused,
    Superseded,
    TooSlow,
    UnknownScheme,
    Unreachable,
    UnsupportedServer,
    UsageError,
)
from gamecast.event import Event, Gap, Receipt, Statistics
from gamecast.recording.options import Recording, RecordingStatistics
from gamecast.sharing import Shared, share
from gamecast.version import installed_version

if TYPE_CHECKING:
    __version__: str

__all__ = [
    "AuthenticationFailed",
    "BufferFull",
    "CannotPersist",
    "CannotWrite",
    "Cast",
    "EmbeddedServerError",
    "Event",
    "GamecastError",
    "Gap",
    "InvalidInput",
    "InvalidName",
    "InvalidPayload",
    "NetworkError",
    "NotConnected",
    "OtherSideError",
    "OutOfMemory",
    "PartlyPublished",
    "PayloadTooLarge",
    "PlanError",
    "ProcessFailed",
    "ProtocolCast",
    "PublishUncertain",
    "Receipt",
    "Recording",
    "RecordingStatistics",
    "Refused",
    "Shared",
    "Statistics",
    "Superseded",
    "TooSlow",
    "UnknownScheme",
    "Unreachable",
    "UnsupportedServer",
    "UsageError",
    "connect",
    "share",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return installed_version()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
