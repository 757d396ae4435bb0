"""What must hold of a run, one function an invariant. None of them looks at a stamp or inside a machine.

The record of a run is what applications saw (`Session`), and what the egress streams hold at its end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gamecast.simulation.server import Session
from sequencing.checkers import DeliverySequence, judge


@dataclass(frozen=True, slots=True)
class Run:
    """A finished run. ``streams``: region → its events in order; ``settled``: whether it came to rest in time."""

    sessions: Sequence[Session]
    streams: Mapping[str, Sequence[str]]
    published_ms: Mapping[str, float]
    settled: str
    causal: bool
    rings_ordered: bool


def violations(run: Run) -> list[str]:
    """Return what is wrong with a run, the gravest first; empty when nothing is."""
    checks = (_order, _integrity, _agreement, _durability, _causality, _liveness)
    return [what for check in checks for what in check(run)]


def _order(run: Run) -> Iterator[str]:
    """Region order, overlap order, acyclicity of the union, and each publisher's own order."""
    sequences = [
        DeliverySequence(
            session.name,
            [delivered.event for delivered in session.deliveries if delivered.event],
            [delivered.region for delivered in session.deliveries if delivered.event],
            [delivered.sender for delivered in session.deliveries if delivered.event],
        )
        for session in run.sessions
    ]
    order: dict[str, list[str]] = {}
    for session in run.sessions:
        order.setdefault(session.name.split("#")[0], []).extend(event for event, _ in session.published)
    verdict = judge(sequences, publication_order=order)
    if verdict.inversions or verdict.duplicated or verdict.publisher_order_violations:
        yield f"order: {verdict.first.describe() if verdict.first else verdict}"
    elif verdict.cycles and run.rings_ordered:
        yield f"acyclicity: {verdict.first.describe() if verdict.first else verdict}"


def _integrity(run: Run) -> Iterator[str]:
    """Nothing is invented, nothing is announced as missing that is not."""
    for session in run.sessions:
        for delivered in session.deliveries:
            if delivered.missing:
                yield f"integrity: {session.name} was told of {delivered.missing} missing events of {delivered.region}"
            elif delivered.event not in run.published_ms:
                yield f"integrity: {session.name} delivered {delivered.event}, which nobody published"


def _agreement(run: Run) -> Iterator[str]:
    """What is delivered of a region while it is joined is an unbroken part of it, up to its end if never left."""
    for session in run.sessions:
        for (region, since, until), joined_ms in zip(session.joined, session.joined_ms, strict=True):
            stream = run.streams.get(region, ())
            place = {event: index for index, event in enumerate(stream)}
            mine = [each.event for each in session.deliveries[since:until] if each.region == region and each.event]
            places = [place.get(event, -1) for event in mine]
            if places and places != list(range(places[0], places[0] + len(places))):
                yield f"agreement: {session.name} delivered {mine} of {region}, whose events are {list(stream)}"
            elif until is None and not session.ended:
                end = places[-1] + 1 if places else 0
                promised = [event for event in stream[end:] if places or run.published_ms[event] > joined_ms]
                if places:
                    promised += [event for event in stream[: places[0]] if run.published_ms[event] > joined_ms]
                if promised:
                    yield f"validity: {session.name} joined {region} and never delivered {promised}"


def _durability(run: Run) -> Iterator[str]:
    """An event with a receipt is there."""
    everything = {event for stream in run.streams.values() for event in stream}
    for session in run.sessions:
        for event in session.receipts:
            if event not in everything:
                yield f"durability: {event} has a receipt and is gone"


def _causality(run: Run) -> Iterator[str]:
    """Who delivers an event has delivered, of what it delivers at all, whatever its publisher knew of."""
    if not run.causal:
        return
    past = {event: before for session in run.sessions for event, before in session.past.items()}
    for session in run.sessions:
        place = {each.event: index for index, each in enumerate(session.deliveries) if each.event}
        for event, index in place.items():
            for cause in past[event]:
                if place.get(cause, -1) > index:
                    yield f"causality: {session.name} delivered {event} before {cause}, which its publisher knew of"


def _liveness(run: Run) -> Iterator[str]:
    """When the faults are over, everything comes to rest."""
    if run.settled:
        yield f"liveness: not at rest in time: {run.settled}"
