"""Δ-timeliness: whether deliveries happen within a bound, by a common clock or by each process's own.

Real-time: no process delivers a message later than Δ after it was sent. Local: the sender writes the time of its own
clock on the message, and no receiver delivers it when its own clock is more than Δ beyond that; how much this says
depends on how close the clocks are. Regular binds the correct processes, uniform all.

Source: Kshemkalyani 2008, §6.10.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from classic.executions.record import Event, Kind, Record


@dataclass(frozen=True, slots=True)
class Latency:
    """How long a message took to a process."""

    message: str
    process: str
    ms: float


def latencies(record: Record, *, local: bool = False) -> Iterator[Latency]:
    """Yield the latencies of all deliveries; those with missing times are left out."""
    sent: dict[str, float] = {}
    for event in record.events:
        time = _time(event, local=local)
        if time is None:
            continue
        if event.kind is Kind.SEND:
            sent[event.message] = time
        elif event.kind is Kind.RECEIVE and event.message in sent:
            yield Latency(event.message, event.process, time - sent[event.message])


def late(record: Record, delta_ms: float, *, local: bool = False, uniform: bool = False) -> Iterator[Latency]:
    """Yield the deliveries that break Δ-timeliness."""
    bound = record.names if uniform else record.correct
    for latency in latencies(record, local=local):
        if latency.ms > delta_ms and latency.process in bound:
            yield latency


def _time(event: Event, *, local: bool) -> float | None:
    return event.local_ms if local else event.at_ms
