"""Why the gateway refuses what a client asked for, and with what codes it closes."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from sequencing.errors import (
    BufferFull,
    Conflict,
    GamecastError,
    InvalidInput,
    InvalidName,
    NotConnected,
    NotTogether,
    PayloadTooLarge,
    Superseded,
    TooManyKeys,
    UsageError,
)
from sequencing.names import RegionPatterns


class Code(StrEnum):
    """Why a request was refused."""

    MALFORMED = "malformed"
    TOO_LARGE = "too-large"
    INVALID_REGION = "invalid-region"
    INVALID_PAYLOAD = "invalid-payload"
    UNAUTHORIZED = "unauthorized"
    FORBIDDEN = "forbidden"
    RATE = "rate"
    LIMIT = "limit"
    ORDER = "order"
    BUSY = "busy"
    UNREACHABLE = "unreachable"
    UNCERTAIN = "uncertain"
    SUPERSEDED = "superseded"
    TOO_SLOW = "too-slow"
    EXPIRED = "expired"
    ORIGIN = "origin"
    CONFLICT = "conflict"
    INVALID_KEY = "invalid-key"
    KEY_CONFLICT = "key-conflict"
    TOO_MANY_KEYS = "too-many-keys"
    NOT_TOGETHER = "not-together"
    NOT_FOUND = "not-found"
    INTERNAL = "internal"
    DENIED = "denied"
    BACKEND_DOWN = "backend-down"


class Close:
    """The codes with which the gateway closes a WebSocket."""

    GOING_AWAY = 1001
    UNSUPPORTED = 1003
    TOO_LARGE = 1009
    INTERNAL = 1011
    TRY_LATER = 1013
    MALFORMED = 4000
    UNAUTHORIZED = 4001
    HELLO_TIMEOUT = 4002
    DENIED = 4003
    TOO_SLOW = 4008
    SUPERSEDED = 4009
    EXPIRED = 4010
    IDLE = 4012
    LIMIT = 4013
    RATE = 4014


class Refusal(Exception):
    """The gateway does not do what a client asked for."""

    def __init__(
        self,
        code: Code,
        message: str,
        *,
        status: int = 400,
        retriable: bool = False,
        definite: bool = True,
        retry_after_s: float | None = None,
        more: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        """``more``: what else the client receives."""
        super().__init__(message)
        self.more = more
        self.code, self.message, self.status = code, message, status
        self.retriable, self.definite, self.retry_after_s = retriable, definite, retry_after_s

    def document(self) -> dict[str, Any]:
        """Return the document that the client receives."""
        told = {
            "code": str(self.code),
            "message": self.message,
            "retriable": self.retriable,
            "definite": self.definite,
        }
        if self.retry_after_s is not None:
            told["retry_after_ms"] = round(self.retry_after_s * 1000)
        return {**told, **self.more}

    @classmethod
    def of(cls, error: GamecastError, readable: RegionPatterns | None = None) -> Refusal:
        """Return the refusal that a client receives for an error of the library.

        ``readable``: the regions that it may read, None for all: of others it hears nothing.
        """
        code, status = Code.UNREACHABLE, 503
        if isinstance(error, InvalidName):
            code, status = Code.INVALID_REGION, 400
        elif isinstance(error, PayloadTooLarge):
            code, status = Code.TOO_LARGE, 413
        elif isinstance(error, InvalidInput):
            code, status = Code.MALFORMED, 400
        elif isinstance(error, BufferFull):
            code, status = Code.BUSY, 503
        elif isinstance(error, NotTogether):
            code, status = Code.NOT_TOGETHER, 409
        elif isinstance(error, UsageError) and not isinstance(error, NotConnected):
            code, status = Code.MALFORMED, 400
        elif isinstance(error, Superseded):
            code, status = Code.SUPERSEDED, 409
        elif isinstance(error, Conflict):
            more = {"region": error.region, "key": error.key}
            if readable is not None and error.region not in readable:
                return cls(Code.KEY_CONFLICT, "the condition does not hold", status=409, more=more)
            return cls(Code.KEY_CONFLICT, str(error), status=409, more=more | {"position": error.position})
        elif isinstance(error, TooManyKeys):
            code, status = Code.TOO_MANY_KEYS, 409
        elif not error.definite:
            code, status = Code.UNCERTAIN, 504
        # The library's own texts may name servers, which clients must not see.
        said = str(error) if code in _TELLING else _WORDS[code]
        return cls(code, said, status=status, retriable=error.retriable, definite=error.definite)


_TELLING = {Code.INVALID_REGION, Code.TOO_LARGE, Code.MALFORMED, Code.TOO_MANY_KEYS, Code.NOT_TOGETHER}
_WORDS = {
    Code.UNREACHABLE: "the network behind the gateway does not answer now",
    Code.BUSY: "too many publishes are in flight: publish more slowly",
    Code.SUPERSEDED: "another session took over this name",
    Code.UNCERTAIN: "the network did not answer: the event may or may not have been published",
}


MEANINGS: Mapping[Code, str] = {
    Code.MALFORMED: "Not as described; or not a position of this network: subscribe without it.",
    Code.INVALID_REGION: "The region's name is not allowed.",
    Code.INVALID_PAYLOAD: "The payload cannot be published.",
    Code.INVALID_KEY: "The key is not allowed.",
    Code.TOO_LARGE: "The event or the request is larger than the limit.",
    Code.UNAUTHORIZED: "The token is not valid. Get a new one.",
    Code.EXPIRED: "The token has expired. Get a new one.",
    Code.FORBIDDEN: "The token does not permit it; if it is a region that it does not permit, that is in region.",
    Code.ORIGIN: "The page's origin is not permitted.",
    Code.DENIED: "The game's backend denied it.",
    Code.BACKEND_DOWN: "The game's backend did not answer a hook. Retry.",
    Code.RATE: "Too fast: see retry_after_ms.",
    Code.LIMIT: "Too many, or too long, for a limit of the gateway.",
    Code.BUSY: "Too many publishes are in flight. Retry.",
    Code.UNREACHABLE: "The network behind the gateway does not answer. Retry.",
    Code.UNCERTAIN: "The event may or may not have been published.",
    Code.ORDER: "A retry came too late: another event was published before it.",
    Code.KEY_CONFLICT: "The condition does not hold: see region, key and position, if the token may read the region.",
    Code.TOO_MANY_KEYS: "The region has as many keys as it may have, or as many of this player.",
    Code.NOT_TOGETHER: "In this network's order, no event can be in these regions at once. Nothing was published.",
    Code.CONFLICT: "The idempotency key was used with another request, or its request is still in progress.",
    Code.SUPERSEDED: "A newer session has the name.",
    Code.TOO_SLOW: "The client read events too slowly.",
    Code.NOT_FOUND: "There is no such address.",
    Code.INTERNAL: "A failure of the gateway; the message names the incident in its log.",
}
"""Error code → what it means, and what to do."""

CLOSES: Mapping[int, str] = {
    Close.GOING_AWAY: "The gateway ends; or the session, by its maximum age or an operator. Resume at once, at another "
    "gateway if possible.",
    Close.UNSUPPORTED: "A binary message. Correct the client.",
    Close.TOO_LARGE: "Too large a message. Correct the client.",
    Close.INTERNAL: "A failure of the gateway; the reason names the incident in its log. Resume; the session is not "
    "kept.",
    Close.TRY_LATER: "Network or backend unavailable, or the network lost its data; the reason says which. Resume "
    "later; after data loss, subscribe without since.",
    Close.MALFORMED: "A malformed message. Correct the client.",
    Close.UNAUTHORIZED: "The token is not, or no longer, valid. Get a new token.",
    Close.HELLO_TIMEOUT: "No hello in time.",
    Close.DENIED: "The backend denied the session; the reason is its own. Stop.",
    Close.TOO_SLOW: "The client read events too slowly. Resume.",
    Close.SUPERSEDED: "Another session has the name. Stop.",
    Close.EXPIRED: "The token expired. Get a new token.",
    Close.IDLE: "Idle. Resume when needed.",
    Close.LIMIT: "Too many sessions. Wait.",
    Close.RATE: "Too many refused messages, by rate or otherwise. Wait, then send more slowly.",
}
"""Code of a WebSocket close → what it means, and what to do."""
