"""Check states against the events that made them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from adapters.places import Position
from gamecast.event import Gap, Item, JointEvent, Presence, State
from gamecast.positions import parse_position
from sequencing.errors import UsageError


class Fold:
    """The keys of regions as the events of one connection make them, which has had the regions from the beginning.

    >>> fold = Fold()
    >>> fold.add(await watcher.fetch(1_000))
    >>> fold.check(state)  # of another connection
    """

    def __init__(self) -> None:
        self._changes: dict[str, list[tuple[Position, str, str, Any]]] = {}
        """Region → position, the same as a text, key and payload, in order."""

    def add(self, items: Iterable[Item]) -> None:
        """Add what the connection was given, in order. Raises `UsageError` for a gap: what follows is unknown."""
        for item in items:
            if isinstance(item, State):
                raise UsageError(f"a state is no event: add what a connection was given from the beginning, not {item}")
            if isinstance(item, Gap):
                raise UsageError(f"what a gap had is not known: {item}")
            if isinstance(item, Presence) or item.key is None:
                continue
            parts = item.parts if isinstance(item, JointEvent) else ((item.region, item.sequence),)
            for region, sequence in parts:
                change = (item.epoch, sequence), f"{item.epoch}-{sequence}", item.key, item.payload
                self._changes.setdefault(region, []).append(change)

    def values(self, region: str, upto: str) -> dict[str, tuple[Any, str]]:
        """Return key → payload and position, as of a position of the region."""
        last, values = parse_position(upto), dict[str, tuple[Any, str]]()
        if last is None:
            raise UsageError(f"not a position: {upto!r}")
        for position, text, key, payload in self._changes.get(region, ()):
            if position > last:
                break
            if payload is None:
                values.pop(key, None)
            else:
                values[key] = payload, text
        return values

    def check(self, state: State) -> None:
        """Raise `AssertionError` unless a state has what the events up to its position make.

        All of these must have been added. A region that is `State.incomplete` may have fewer keys.
        """
        for region, upto in state.positions.items():
            expected = self.values(region, upto)
            actual = {key: (event.payload, event.position) for key, event in state.values[region].items()}
            if region in state.incomplete:
                expected = {key: value for key, value in expected.items() if key in actual}
            for key in sorted(expected.keys() | actual.keys()):
                if expected.get(key) != actual.get(key):
                    raise AssertionError(
                        f"the state of {region!r} at {upto} has {actual.get(key)} for the key {key!r}, and the events "
                        f"up to there make it {expected.get(key)}"
                    )
