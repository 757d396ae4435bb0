"""The judgement of a run, while it runs and at its end, by the project's own order checkers.

*At the end* everything is judged: one order for all who share regions, no cycles, every publisher's own order, nothing
lost and nothing twice (`sequencing.checkers.stays`, as users come and go). *While it runs*, the same checkers look at a
part:

- order and repetition of what was delivered since the look before last. A part of a delivery order is in order if the
  whole is, so there is no false alarm; what is out of order by more than two looks is found at the end;
- loss of what was published some time ago, ``late_s``: what has not come by then counts as lost, and ends the run.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from loadtest.journal import Ledger
from sequencing.checkers import DeliverySequence, Offence, Verdict, judge
from sequencing.checkers.stays import Placed, Stay, judge_stays

LATE_S = 15.0
"""The longest that an event may be under way before the running run calls it lost."""
NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Judgement:
    """What came of a run. ``uncertain``: events of which neither publisher nor subscribers tell that they exist."""

    verdict: Verdict
    published: int
    uncertain: int
    gaps: int
    incomplete: tuple[str, ...]
    """What is not known, so that nothing can be called fine: logs that did not come."""
    looks: int
    """How often it was judged while it ran."""

    @property
    def fine(self) -> bool:
        """Whether every promise was kept, as far as everything is known."""
        return self.verdict.fine and not self.incomplete

    def as_dict(self) -> dict[str, Any]:
        """Return what JSON can carry."""
        return {
            "fine": self.fine,
            "published": self.published,
            "uncertain": self.uncertain,
            "gaps": self.gaps,
            "incomplete": list(self.incomplete),
            "looks": self.looks,
            **self.verdict.as_dict(),
        }

    def violations(self) -> list[str]:
        """Return what was broken, in words; empty if nothing was."""
        return [offence.describe() for offence in self.verdict.examples] + list(self.incomplete)


class Judge:
    """Judges what is in a ledger; ``clock_margin_ms``: how far the clocks of the machines may be apart."""

    def __init__(self, ledger: Ledger, *, late_s: float = LATE_S, clock_margin_ms: float = 0.0) -> None:
        self._ledger = ledger
        self._late_ns = round(late_s * NS)
        self._margin_ns = round(clock_margin_ms * 1e6)
        self._lengths: deque[tuple[int, Mapping[str, int]]] = deque()
        """When was looked, and how long each subscriber's log was then; back to before what is judged for loss."""
        self._young: list[Placed] = []
        """What was published and is not late yet."""
        self.looks = 0

    def look(self, now_ns: int) -> list[Offence]:
        """Judge what is new; return violations, of each kind one."""
        self.looks += 1
        found = list(self._order().examples)
        found += [offence for offence in self._losses(now_ns).examples if offence.kind == "lost"]
        self._lengths.append((now_ns, {name: len(columns[0]) for name, columns in self._ledger.columns.items()}))
        while len(self._lengths) > 2 and self._lengths[1][0] < now_ns - 2 * self._late_ns - NS:
            self._lengths.popleft()
        return found

    def conclude(self) -> Judgement:
        """Judge everything. Raises `InvalidInput` where an event came with two regions, or from two senders."""
        ledger = self._ledger
        uncertain = ledger.settle_uncertain()
        verdict = judge_stays(
            ledger.sequences(),
            self._stays(),
            ledger.placed.values(),
            publication_order=ledger.publication_order(),
        )
        return Judgement(
            verdict=verdict,
            published=len(ledger.placed),
            uncertain=uncertain,
            gaps=len(ledger.gaps),
            incomplete=tuple(ledger.missing),
            looks=self.looks,
        )

    def _order(self) -> Verdict:
        before = self._lengths[-2][1] if len(self._lengths) > 1 else {}
        return judge(
            DeliverySequence(name, *(column[before.get(name, 0) :] for column in columns[:3]))
            for name, columns in self._ledger.columns.items()
        )

    def _losses(self, now_ns: int) -> Verdict:
        """Judge what has become late since the last look."""
        young = self._young + self._ledger.take_fresh()
        due = {each.event: each for each in young if each.published_at_ns < now_ns - self._late_ns}
        self._young = [each for each in young if each.event not in due]
        if not due:
            return judge([])
        # What was published after a look was delivered after it; a second for clocks that are not one.
        since_ns = min(each.published_at_ns for each in due.values()) - NS
        earlier = [lengths for at_ns, lengths in self._lengths if at_ns < since_ns]
        begin = earlier[-1] if earlier else {}
        sequences: list[DeliverySequence] = []
        places: dict[str, list[int]] = {}
        for name, columns in self._ledger.columns.items():
            first = begin.get(name, 0)
            places[name] = own = [at for at in range(first, len(columns[0])) if columns[0][at] in due]
            sequences.append(DeliverySequence(name, *([column[at] for at in own] for column in columns[:3])))
        stays = []
        for stay in self._stays():
            own = places.get(stay.subscriber, [])
            end = None if stay.end is None else bisect_left(own, stay.end)
            stays.append(replace(stay, start=bisect_left(own, stay.start), end=end))
        return judge_stays(sequences, stays, due.values())

    def _stays(self) -> Iterable[Stay]:
        for stay in self._ledger.stays.values():
            if stay.joined_at_ns is None or not self._margin_ns:
                yield stay
            else:
                yield replace(stay, joined_at_ns=stay.joined_at_ns + self._margin_ns)
