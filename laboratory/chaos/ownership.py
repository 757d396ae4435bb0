"""One owner at every position: the events that set who owns an entity, and those that its owners published.

They are judged in the order of each region, by the egress streams at the end. So nothing is asked of the clients but
which authorities they were given, and by which they published.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from laboratory.chaos.kept import Kept
from laboratory.chaos.notes import Notes, Owned
from sequencing.keyed import Position
from sequencing.names import OWNER


class Owner(NamedTuple):
    """Who owns an entity. ``is_offered``: it was handed to it, and not accepted yet."""

    token: Position
    name: str
    is_offered: bool


def owned_by_two(notes: Notes, kept: Iterable[Kept]) -> Iterator[str]:
    """Yield where an event of an owner is that was not the owner, and where an authority is that no event gave."""
    guarded = {event: by for life in notes.lives for event, by in life.guarded.items()}
    owners: dict[tuple[str, str], Owner] = {}
    given: dict[Owned, str] = {}
    for frame in sorted(kept, key=lambda each: (each.region, each.epoch, each.last)):
        keyed = {each.event: each for each in frame.keyed() if each.key.startswith(OWNER)}
        for event, number in frame.numbered():
            if (each := keyed.get(event)) is not None:
                entity = each.key.removeprefix(OWNER)
                place = frame.region, entity
                before = owners.get(place)
                if each.deletes:
                    owners.pop(place, None)
                    continue
                if (wrong := _wrong(each.said, frame, before)) is not None:
                    yield f"ownership: {event} of {frame.publisher} {wrong} {entity}, which is owned by {before}"
                is_offered = "to" in each.said
                owners[place] = Owner((frame.epoch, number), each.said["owner"], is_offered)
                if not is_offered:
                    given[Owned(*place, (frame.epoch, number))] = frame.publisher
            elif (by := guarded.get(event)) is not None:
                owner = owners.get((frame.region, by.entity))
                if by.region != frame.region or owner != Owner(by.token, frame.publisher, is_offered=False):
                    yield f"ownership: {event} was accepted by {by} in {frame.region}, which is owned by {owner}"
    times = Counter(owned for life in notes.lives for owned in life.owned)
    yield from (f"ownership: {owned} was given {count} times" for owned, count in times.items() if count > 1)
    for life in notes.lives:
        for owned in life.owned:
            if given.get(owned) != life.server:
                yield f"ownership: {life.session.name} was given {owned}, which is of {given.get(owned)}"


def _wrong(said: Mapping[str, Any], frame: Kept, before: Owner | None) -> str | None:
    """Return what an event does that its publisher may not do, if so."""
    if said.get("from") == frame.region:  # of the region that is left
        may = before is not None and before.name == frame.publisher and not before.is_offered
        return None if may else "hands over"
    if "accepts" in said:  # or takes it back
        return None if before is not None and before.is_offered else "accepts"
    return None


def handovers_of(kept: Iterable[Kept]) -> tuple[int, int]:
    """Return how many handovers and acceptances were accepted."""
    said = {each.event: each.said for frame in kept for each in frame.keyed() if each.key.startswith(OWNER)}
    payloads = [each for each in said.values() if each is not None]
    return sum("to" in each for each in payloads), sum("accepts" in each for each in payloads)
