"""The fate of published events, as a publisher reports it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic

from sequencing.errors import GamecastError, PublishUncertain, Refused, Superseded, superseded_message
from sequencing.frames import PublishedFrame
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
    sent_at_ns: Sequence[int] = field(default=(), compare=False, repr=False)
    """Of each event, as it was added."""
    payloads: Sequence[bytes] = field(default=(), compare=False, repr=False)
    """Of each event, as it was added."""
    binary: bool = field(default=False, compare=False, repr=False)
    """Whether the payloads of failed events are bytes, and not JSON."""


def failed(region: str, frame: OpenFrame[Token], error: GamecastError) -> Resolved[Token]:
    """Return the fate of events that failed."""
    return Resolved(
        region,
        frame.tokens,
        error=error,
        sent_at_ns=frame.sent_at_ns,
        payloads=frame.payloads,
        binary=frame.binary,
    )


def refusal(frame: PublishedFrame, answer: Answer) -> GamecastError:
    """Return the error of events that an ingress refused."""
    if answer.verdict is Verdict.FORGOTTEN:
        return PublishUncertain(
            f"an answer about events of {frame.publisher!r} was lost, and this connection was silent for so long that "
            f"the ingress of {frame.region!r} has forgotten whether it accepted them"
        )
    if answer.verdict is Verdict.FENCED:
        return Superseded(superseded_message(frame.publisher))
    return Refused(
        f"the ingress of region {frame.region!r} refused events {frame.first}…{frame.first + frame.count - 1} of "
        f"{frame.publisher!r}: {answer.encode().decode()} (sent in epoch {frame.epoch})"
    )
