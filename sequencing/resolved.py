"""The fate of published events, as a publisher reports it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic

from sequencing.errors import (
    Conflict,
    GamecastError,
    PublishUncertain,
    Refused,
    Superseded,
    TooManyKeys,
    superseded_message,
)
from sequencing.frames import PublishedFrame
from sequencing.keyed import Full
from sequencing.node import Answer, Verdict
from sequencing.outbox import OpenFrame, Token


@dataclass(frozen=True, slots=True)
class Resolved(Generic[Token]):
    """The fate of the events of one frame: numbered ``first_sequence`` … in ``epoch``, or failed with ``error``."""

    region: str
    tokens: Sequence[Token]
    epoch: int = 0
    first_sequence: int = 0
    error: GamecastError | None = None
    also: Sequence[tuple[str, int]] = ()
    """The further regions of events of several, and their first number there if they were accepted."""
    sent_at_ns: Sequence[int] = field(default=(), compare=False, repr=False)
    """Of each event, as it was added."""
    payloads: Sequence[bytes] = field(default=(), compare=False, repr=False)
    """Of each event, as it was added."""
    binary: bool = field(default=False, compare=False, repr=False)
    """Whether the payloads of failed events are bytes, and not JSON."""

    @property
    def where(self) -> str | tuple[str, ...]:
        """The region of the events, or all of them, as they were published."""
        return (self.region, *(region for region, _ in self.also)) if self.also else self.region


def failed(region: str, frame: OpenFrame[Token], error: GamecastError) -> Resolved[Token]:
    """Return the fate of events that failed."""
    return Resolved(
        region,
        frame.tokens,
        error=error,
        also=tuple((other, 0) for other in frame.regions[1:]),
        sent_at_ns=frame.sent_at_ns,
        payloads=frame.payloads,
        binary=frame.binary,
    )


def refusal(frame: PublishedFrame, answer: Answer) -> GamecastError:
    """Return the error of events that an ingress refused."""
    if answer.verdict is Verdict.FORGOTTEN:
        return PublishUncertain(
            f"an answer about events of {frame.publisher!r} was lost, and this connection was silent for so long that "
            f"the ingress of {_named(frame)} has forgotten whether it accepted them"
        )
    if answer.verdict is Verdict.CONFLICT:
        return _conflict(frame, *answer.numbers)
    if answer.verdict is Verdict.FULL:
        return TooManyKeys(_beyond(frame, *answer.numbers))
    if answer.verdict is Verdict.FENCED:
        return Superseded(superseded_message(frame.publisher))
    return Refused(
        f"the ingress of {_named(frame)} refused events {frame.first}…{frame.first + frame.count - 1} of "
        f"{frame.publisher!r}: {answer.encode().decode()} (sent in epoch {frame.epoch})"
    )


def _beyond(frame: PublishedFrame, limit: int, what: int = Full.REGION) -> str:
    """Return why a frame's keys are too many; nodes of before say the limit only."""
    where = _named(frame)
    if what == Full.REGION:
        return f"{where} would have more than {limit:,} keys: delete some, by publishing None with their keys"
    mine = "of all clients of gateways" if what in (Full.SHARES_KEYS, Full.SHARES_BYTES) else f"of {frame.publisher!r}"
    much = "keys" if what in (Full.SHARE_KEYS, Full.SHARES_KEYS) else "bytes of values with keys"
    return f"{where} would have more than {limit:,} {much} {mine}: delete some, by publishing None with their keys"


def _named(frame: PublishedFrame) -> str:
    regions = [repr(part.region) for part in frame.parts]
    return f"region {regions[0]}" if len(regions) == 1 else f"one of the regions {', '.join(regions)}"


def _conflict(frame: PublishedFrame, place: int, epoch: int, sequence: int) -> Conflict:
    key, expected, part = frame.extras.conditions[place]
    region = frame.parts[part].region
    current = f"{epoch}-{sequence}" if epoch else None
    wanted = "was not to be set" if expected is None else f"was to be set at {expected[0]}-{expected[1]}"
    is_now = "not set" if current is None else f"set at {current}"
    if epoch and not sequence:
        is_now = f"unknown, for the node lost what it knew of keys when epoch {epoch} began"
    error = Conflict(f"key {key!r} of region {region!r} is {is_now}, and {wanted}: nothing was published")
    error.region, error.key, error.position = region, key, current
    return error
