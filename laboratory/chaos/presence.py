"""Who is in a region: one roster at each position, nothing of a stay after its leave, and at the end all who are there.

The order of a region, by its egress stream at the end, says who arrived and left where. Each server that asked for
presence must have been given just that, from the state on that it began with.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from laboratory.chaos.kept import Kept
from laboratory.chaos.notes import PRESENCE, Life, Notes, Roster, Seen
from sequencing.keyed import Position
from sequencing.names import PRESENT


class Came(NamedTuple):
    """An arrival, or a leave, in the order of a region."""

    position: Position
    name: str
    is_here: bool


def broken_presence(
    notes: Notes, kept: Sequence[Kept], places: Mapping[tuple[str, str], Position], *, at_rest: bool
) -> Iterator[str]:
    """Yield what is wrong with presence. ``places``: (region, event) → where it is; ``at_rest``: whether the network
    came to rest, so that all had what there is."""
    order: dict[str, list[Came]] = {}
    for frame in kept:
        for each in frame.keyed():
            if each.key.startswith(PRESENT):
                came = Came(each.position, each.key.removeprefix(PRESENT), not each.deletes)
                order.setdefault(frame.region, []).append(came)
    for of_region in order.values():
        of_region.sort()
    for life in notes.lives:
        for roster in life.rosters:
            yield from _watched(life, roster, order.get(roster.region, []), places, at_rest=at_rest)
    yield from after_leaves(kept)
    if at_rest:
        yield from strangers(notes)


def _watched(
    life: Life, roster: Roster, order: Sequence[Came], places: Mapping[tuple[str, str], Position], *, at_rest: bool
) -> Iterator[str]:
    name, region = life.session.name, roster.region
    there: set[str] = set()
    for came in order:
        if came.position <= roster.position:
            (there.add if came.is_here else there.discard)(came.name)
    if there != roster.names and not roster.is_incomplete:
        yield (
            f"presence: {name} was told that {sorted(roster.names)} are in {region} at {roster.position}, and it was "
            f"{sorted(there)}"
        )
    left = min((at for of, at in life.session.left if of == region and at >= roster.place), default=None)
    seen = [each for each in life.arrivals if each.region == region and _is_within(each, roster.place, left)]
    there, expected = set(roster.names), list[Came]()
    for came in order:
        if came.position > roster.position and (came.is_here or came.name in there):
            expected.append(came)
            (there.add if came.is_here else there.discard)(came.name)
    if not at_rest or left is not None or life.session.ended:
        expected = expected[: len(seen)]
    got = [Came(*each[2:]) for each in seen]
    if got != expected:
        place = next((n for n, (one, other) in enumerate(zip(got, expected, strict=False)) if one != other), None)
        place = min(len(got), len(expected)) if place is None else place
        told, was = got[place:][:3], expected[place:][:3]
        yield f"presence: {name} was told {told} of {region} after {place} others, and it was {was}"
    last = roster.position
    for each in life.session.deliveries[roster.place : left]:
        if each.event and each.region.removesuffix(PRESENCE) == region:
            at = places[region, each.event]
            if at <= last:
                yield f"presence: {name} got {each.event} of {region} at {at} after what is at {last}"
            last = at


def _is_within(each: Seen, since: int, until: int | None) -> bool:
    return each.place >= since and (until is None or each.place < until)


def after_leaves(kept: Iterable[Kept]) -> Iterator[str]:
    """Yield events of a connection after a leave that others published for it."""
    left: dict[tuple[str, str], int] = {}
    for frame, is_of_others in _leaves(kept):
        whose = frame.region, frame.publisher
        if frame.events and frame.incarnation < left.get(whose, 0):
            yield f"presence: {frame.events[0]} of {frame.publisher} is in {frame.region} after its leave"
        if is_of_others:
            left[whose] = frame.incarnation


def leaves_of_others(kept: Iterable[Kept]) -> int:
    """Return how many leaves others published for a connection."""
    return sum(is_of_others for _, is_of_others in _leaves(kept))


def _leaves(kept: Iterable[Kept]) -> Iterator[tuple[Kept, bool]]:
    """Yield all frames in order, and whether they have such a leave: it has an incarnation of its own."""
    arrived: dict[tuple[str, str], int] = {}
    for frame in sorted(kept, key=lambda each: (each.region, each.epoch, each.last)):
        whose, is_of_others = (frame.region, frame.publisher), False
        for each in frame.keyed():
            if each.key == PRESENT + frame.publisher:
                if not each.deletes:
                    arrived[whose] = frame.incarnation
                elif frame.incarnation > arrived.get(whose, frame.incarnation):
                    is_of_others = True
        yield frame, is_of_others


def strangers(notes: Notes) -> Iterator[str]:
    """Yield who saw others at the end, when all was at rest, than were there."""
    last = {life.server: life for life in notes.lives if life.last_look is not None}
    looks = {server: life.last_look for server, life in last.items() if life.last_look is not None}
    for server, (_, saw) in looks.items():
        for region, names in saw.items():
            there = {other for other, (here, _) in looks.items() if region in here}
            if names != there:
                yield f"presence: {server} saw {sorted(names)} in {region} at the end, where {sorted(there)} were"
