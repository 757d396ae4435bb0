"""Ordered publish-subscribe for game worlds.

>>> async with gamecast.connect("redis://127.0.0.1:6379", name="server-eu-1") as cast:
...     await cast.subscribe("forest", "river")
...     await cast.publish("forest", {"type": "spell"})
...     async for event in cast:
...         print(event.region, event.sender, event.payload)
"""

from importlib.metadata import PackageNotFoundError, version

from gamecast.client import Cast, connect
from gamecast.errors import (
    AuthenticationFailed,
    BufferFull,
    CannotPersist,
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
from gamecast.protocolcast import ProtocolCast
from gamecast.recording.options import Recording, RecordingStatistics
from gamecast.sharing import Shared, share

try:
    __version__ = version("gamecast")
except PackageNotFoundError:
    __version__ = "0+uninstalled"

__all__ = [
    "AuthenticationFailed",
    "BufferFull",
    "CannotPersist",
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
