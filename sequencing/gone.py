"""Who is gone: disconnected subscribers, whose regions are kept for a while, because they may come back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from sequencing.record import Interest, Members, Record


class _Absence(NamedTuple):
    """A name that is gone, or back without some of its regions: since when, which these are, and its incarnation, if
    it is back."""

    since_s: float
    regions: frozenset[str]
    here: int | None


class Gone:
    """The disconnected names of a network, as its leader knows them."""

    def __init__(self, resume_s: float, now_s: Callable[[], float]) -> None:
        """``resume_s``: how long a disconnected subscriber keeps its place; ``now_s``: a monotonic clock."""
        self._resume_s, self._now_s = resume_s, now_s
        self._all: dict[str, _Absence] = {}

    def note(self, record: Record, interests: Mapping[str, Interest], names: Iterable[str]) -> None:
        """Note which of some names are disconnected. One that is back may not have asked for all its regions yet."""
        now = self._now_s()
        for name in names:
            interest, heard = interests.get(name), record.heard.get(name)
            here = interest.incarnation if interest is not None else None
            is_new = interest is None or (heard is not None and heard.incarnation != interest.incarnation)
            known = self._all.get(name)
            if known is not None and not (is_new and known.here is not None and known.here != here):
                since_s, had = known.since_s, known.regions
            elif is_new:
                since_s, had = now, record.members.get(name, frozenset())
            else:
                continue
            left = had.difference(interest.since if interest is not None else ())
            if left and name in record.members:
                self._all[name] = _Absence(since_s, left, here)
            else:
                self._all.pop(name, None)

    def away(self, record: Record) -> Members:
        """Return the regions that are kept for them."""
        horizon = self._now_s() - self._resume_s
        self._all = {name: kept for name, kept in self._all.items() if name in record.members}
        return {name: each.regions for name, each in self._all.items() if each.since_s > horizon}

    def for_good(self, record: Record, interests: Mapping[str, Interest]) -> set[str]:
        """Return those who have been gone for longer than they may be."""
        horizon = self._now_s() - self._resume_s
        return {
            name
            for name, each in self._all.items()
            if each.since_s <= horizon and name in record.members and name not in interests
        }
