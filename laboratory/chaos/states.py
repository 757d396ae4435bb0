"""States, for the judges of the simulation: what the events of a region make of its keys, and which states they judge.

A state is what all events of its region up to its position make, and all that comes later follows it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from laboratory.chaos.kept import Kept
from laboratory.chaos.notes import Life, Notes
from laboratory.simulation.network import KeyedFrame
from laboratory.simulation.server import State
from sequencing.keyed import Extras, Named, Position
from sequencing.names import PRESENT


def keyed_frames(kept: Iterable[Kept]) -> list[KeyedFrame]:
    """Return the frames that say something of the game's keys: who is present is in no `State.values`."""
    found: list[KeyedFrame] = []
    for frame in sorted(kept, key=lambda each: (each.epoch, each.last)):
        first = frame.last - len(frame.events) + 1
        keyed = [each for each in frame.keyed() if not each.key.startswith(PRESENT)]
        if keyed:
            names = tuple(Named(each.position[1] - first, each.key, each.deletes) for each in keyed)
            found.append(KeyedFrame(frame.region, frame.epoch, first, Extras(names)))
    return found


def overtaken_states(notes: Notes, places: Mapping[tuple[str, str], Position]) -> Iterator[tuple[Life, State]]:
    """Yield states that something follows which they have already: the judge of the simulation takes none of them.

    ``places``: (region, event) → where it is.
    """
    for life in notes.lives:
        for state in life.session.states:
            until = min(
                (at for left, at in life.session.left if left == state.region and at >= state.place), default=None
            )
            after = (each for each in life.session.deliveries[state.place : until] if each.region == state.region)
            first = next((each for each in after if each.event), None)
            if first is not None and places[state.region, first.event] <= state.position:
                yield life, state
