"""Ordered publish-subscribe for game worlds.

>>> async with gamecast.connect("redis://127.0.0.1:6379", name="server-eu-1") as client:
...     await client.subscribe("forest", "river")
...     await client.publish("forest", {"type": "spell"})
...     async for event in client:
...         print(event.region, event.sender, event.payload)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from gamecast.version import __version__ as __version__

if TYPE_CHECKING:
    from gamecast.client.authority import Authority
    from gamecast.client.client import Client
    from gamecast.client.configuration import Limits, WhenBehind, WhenFull
    from gamecast.client.connecting import connect
    from gamecast.client.history import ReplayOrder
    from gamecast.client.watching import PublishFailure, Status
    from gamecast.errors import (
        AuthenticationFailed,
        BufferFull,
        CannotPersist,
        CannotWrite,
        Conflict,
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
        NotTogether,
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
        TooManyKeys,
        TooSlow,
        UnknownPosition,
        UnknownScheme,
        UnorderedHistory,
        Unreachable,
        UnsupportedServer,
        UsageError,
    )
    from gamecast.event import Event, Gap, Item, JointEvent, JointReceipt, Presence, Receipt, State, Statistics, Update
    from gamecast.recording.options import Recording, RecordingStatistics
    from gamecast.sharing import Shared, share
    from sequencing.plan import Ordering

__all__ = [
    "AuthenticationFailed",
    "Authority",
    "BufferFull",
    "CannotPersist",
    "CannotWrite",
    "Client",
    "Conflict",
    "EmbeddedServerError",
    "Event",
    "ExtraMissing",
    "GamecastError",
    "Gap",
    "InvalidInput",
    "InvalidName",
    "InvalidPayload",
    "Item",
    "JointEvent",
    "JointReceipt",
    "Limits",
    "NetworkError",
    "NetworkRestarted",
    "NoLeader",
    "NotAllowed",
    "NotConnected",
    "NotTogether",
    "Ordering",
    "OtherSideError",
    "OutOfMemory",
    "PartlyPublished",
    "PayloadTooLarge",
    "PlanError",
    "Presence",
    "ProcessFailed",
    "PublishFailure",
    "PublishUncertain",
    "Receipt",
    "Recording",
    "RecordingStatistics",
    "Refused",
    "ReplayOrder",
    "SessionExpired",
    "Shared",
    "State",
    "Statistics",
    "Status",
    "Superseded",
    "TooManyKeys",
    "TooSlow",
    "UnknownPosition",
    "UnknownScheme",
    "UnorderedHistory",
    "Unreachable",
    "UnsupportedServer",
    "Update",
    "UsageError",
    "WhenBehind",
    "WhenFull",
    "connect",
    "share",
]

_MODULES = {
    "Authority": "client.authority",
    "Client": "client.client",
    "Event": "event",
    "Gap": "event",
    "Item": "event",
    "JointEvent": "event",
    "JointReceipt": "event",
    "Limits": "client.configuration",
    "Ordering": "client.configuration",
    "Presence": "event",
    "PublishFailure": "client.watching",
    "Receipt": "event",
    "Recording": "recording.options",
    "RecordingStatistics": "recording.options",
    "ReplayOrder": "client.history",
    "Shared": "sharing",
    "State": "event",
    "Statistics": "event",
    "Status": "client.watching",
    "Update": "event",
    "WhenBehind": "client.configuration",
    "WhenFull": "client.configuration",
    "connect": "client.connecting",
    "share": "sharing",
}
"""Name → its module, below this folder, which is imported when the name is first used. All others are errors."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = _MODULES.get(name, "errors")
    value = globals()[name] = getattr(import_module(f"{__name__}.{module}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
