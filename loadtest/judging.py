"""Judge a run with the project's own order checkers, while it runs and at its end.

*At the end* everything is judged: one order for all subscribers that share regions, no cycles, each publisher's order,
nothing lost and nothing twice. Users join and leave, so this uses `sequencing.checkers.stays`. *While it runs*, each
check looks at a part:

- Order and repetition of the deliveries since the check before last. A part of a delivery order is in order if the
  whole is, so there is no false alarm. Inversions that span more than two checks are found at the end.
- Loss of events that were published more than ``late_s`` ago. An event that was not delivered by then counts as lost,
  and ends the run.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from loadtest.journal import NS, Ledger
from sequencing.checkers import DeliverySequence, Offence, Verdict, judge
from sequencing.checkers.stays import Placed, Stay, judge_stays

LATE_S = 15.0
"""Seconds that an event may be in flight before it counts as lost while the run goes on."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """The result of a run. ``uncertain``: events without a receipt that no subscriber delivered."""

    verdict: Verdict
    published: int
    uncertain: int
    gaps: int
    incomplete: tuple[str, ...]
    """Descriptions of missing logs. A run with missing logs is not fine."""
    looks: int
    """How often the run was judged while it ran."""

    @property
    def fine(self) -> bool:
        """Whether every promise was kept and no report is missing."""
        return self.verdict.fine and not self.incomplete

    def as_dict(self) -> dict[str, Any]:
        """Return the judgement for JSON."""
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
        """Return descriptions of the violations and of missing logs."""
        return [offence.describe() for offence in self.verdict.examples] + list(self.incomplete)


@dataclass(frozen=True, slots=True)
class Finding:
    """What the judgement says of one guarantee. ``kept``: None if it was not judged."""

    guarantee: str
    kept: bool | None
    counts: str


GUARANTEE_OF = {
    "inversion": "order kept",
    "cycle": "order kept",
    "publisher_order": "each publisher's order kept",
    "lost": "nothing lost",
    "duplicate": "nothing twice",
    "unexpected": "nothing unexpected",
}
"""Kind of a violation → the guarantee that it breaks, as reports name it."""
REPORTS = "every report arrived"


def findings(judgement: Judgement) -> list[Finding]:
    """Return a finding for each guarantee, and one for the completeness of the reports."""
    verdict = judgement.verdict
    orders = f"{verdict.inversions} inversions, {verdict.cycles} cycles"
    publishers = verdict.publisher_order_violations
    judged = [
        Finding("order kept", not (verdict.inversions or verdict.cycles), orders),
        Finding("each publisher's order kept", not publishers, f"{publishers} events out of order"),
        Finding("nothing lost", None if verdict.lost is None else not verdict.lost, f"{verdict.lost} deliveries lost"),
        Finding("nothing twice", not verdict.duplicated, f"{verdict.duplicated} deliveries repeated"),
        Finding(
            "nothing unexpected",
            None if verdict.unexpected is None else not verdict.unexpected,
            f"{verdict.unexpected} deliveries unexpected",
        ),
    ]
    missing = "; ".join(judgement.incomplete) or "none missing"
    return [*judged, Finding(REPORTS, not judgement.incomplete, missing)]


class Judge:
    """Judges the reports in a ledger; ``clock_margin_ms``: how much the clocks of the machines may differ."""

    def __init__(self, ledger: Ledger, *, late_s: float = LATE_S, clock_margin_ms: float = 0.0) -> None:
        self._ledger = ledger
        self._late_ns = round(late_s * NS)
        self._margin_ns = round(clock_margin_ms * 1e6)
        self._lengths: deque[tuple[int, Mapping[str, int]]] = deque()
        """Time of each check, and the length of each subscriber's log then, as far back as losses are judged."""
        self._young: list[Placed] = []
        """Published events that are not late yet."""
        self.looks = 0
        self.only_order = False
        """Whether reports are missing for good, so that losses cannot be judged."""

    def look(self, now_ns: int) -> list[Offence]:
        """Judge the new reports. Return violations, one of each kind."""
        self.looks += 1
        offences = list(self._order().examples)
        if self.only_order:
            return offences
        offences += [offence for offence in self._losses(now_ns).examples if offence.kind == "lost"]
        self._lengths.append((now_ns, {name: len(columns[0]) for name, columns in self._ledger.columns.items()}))
        while len(self._lengths) > 2 and self._lengths[1][0] < now_ns - 2 * self._late_ns - NS:
            self._lengths.popleft()
        return offences

    def conclude(self) -> Judgement:
        """Judge everything. Raises `InvalidInput` if an event has two regions or two senders."""
        ledger = self._ledger
        uncertain = ledger.settle_uncertain()
        sequences, publications = ledger.sequences(), ledger.publication_order()
        verdict = (
            judge(sequences, publication_order=publications)
            if self.only_order
            else judge_stays(sequences, self._stays(), ledger.placed.values(), publication_order=publications)
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
        """Judge the events that have become late since the last check."""
        young = self._young + self._ledger.take_fresh()
        due = {each.event: each for each in young if each.published_at_ns < now_ns - self._late_ns}
        self._young = [each for each in young if each.event not in due]
        if not due:
            return judge([])
        # An event published after a check was delivered after it. One second is added for differences between clocks.
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
