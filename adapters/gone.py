"""Who is gone: disconnected subscribers, whose regions are kept for a while, because they may come back."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from sequencing.record import Interest, Members, Record


class Gone:
    """The disconnected names of a network, as its leader knows them."""

    def __init__(self, resume_s: float) -> None:
        """``resume_s``: how long a disconnected subscriber keeps its place."""
        self._resume_s = resume_s
        self._all: dict[str, tuple[float, frozenset[str]]] = {}
        """Name → when it was first seen disconnected, and its regions."""

    def note(self, record: Record, interests: Mapping[str, Interest], names: Iterable[str]) -> None:
        """Note which of some names are disconnected. One that is back may not have asked for all its regions yet."""
        now = time.monotonic()
        for name in names:
            interest, heard = interests.get(name), record.heard.get(name)
            if name in self._all:
                since, had = self._all[name]
            elif interest is None or (heard is not None and heard.incarnation != interest.incarnation):
                since, had = now, record.members.get(name, frozenset())
            else:
                continue
            left = had.difference(interest.since if interest is not None else ())
            if left and name in record.members:
                self._all[name] = since, left
            else:
                self._all.pop(name, None)

    def away(self, record: Record) -> Members:
        """Return the regions that are kept for them."""
        horizon = time.monotonic() - self._resume_s
        self._all = {name: kept for name, kept in self._all.items() if name in record.members}
        return {name: regions for name, (since, regions) in self._all.items() if since > horizon}

    def for_good(self, record: Record, interests: Mapping[str, Interest]) -> set[str]:
        """Return those who have been gone for longer than they may be."""
        horizon = time.monotonic() - self._resume_s
        return {
            name
            for name, (since, _) in self._all.items()
            if since <= horizon and name in record.members and name not in interests
        }
