"""The judgement of a run: the judges of the simulation say whether a promise was broken, the rest here how often."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from gamecast import errors
from laboratory.chaos.conditions import conflicts_of, histories, not_linearizable
from laboratory.chaos.notes import Kept, Life, Notes
from laboratory.simulation.judging import Drawn, Run, violations
from sequencing.checkers import DeliverySequence, judge
from sequencing.ready import Missing


@dataclass(frozen=True, slots=True)
class Judgement:
    """How often each promise was broken; ``violations``: in words, the gravest first.

    ``lost``: events that a session had to deliver and did not, and that no gap announced, of those with a receipt, in
    an egress stream, or delivered by any session. ``uncertain``: events whose publisher was told that their fate is
    unknown.
    """

    published: int
    delivered: int
    receipts: int
    lost: int
    duplicated: int
    inversions: int
    cycles: int
    publisher_order_violations: int
    gaps: int
    uncertain: int
    uncertain_published: int
    """How many of those were published after all."""
    keyed: int
    """Attempts to set a key, of those that were accepted or refused."""
    conflicts: int
    violations: tuple[str, ...]

    @property
    def fine(self) -> bool:
        """Whether every promise was kept."""
        broken = self.lost, self.duplicated, self.inversions, self.cycles, self.publisher_order_violations
        return not any(broken) and not self.violations


def judge_run(notes: Notes, kept: Iterable[Kept], unrest: str = "", *, lossy: range = range(0)) -> Judgement:
    """Judge the notes of servers.

    ``kept``: the events in the egress streams at the end; ``unrest``: why the network did not come to rest in time, if
    so; ``lossy``: the epochs in which events may be lost, if a gap announces it.
    Raises `InvalidInput` for an event with two regions or senders.
    """
    there: set[tuple[str, str]] = set()
    drawn: dict[str, set[Drawn]] = {}
    for frame in kept:
        there.update((frame.region, event) for event in frame.events)
        of_region = drawn.setdefault(frame.region, set())
        of_region.update(Drawn(frame.epoch, number, event) for event, number in frame.numbered())
    for life in notes.lives:
        for event, region, epoch, number in life.seen:
            drawn.setdefault(region, set()).add(Drawn(epoch, number, event))
    in_order = {region: sorted(events) for region, events in drawn.items()}
    sessions = [life.session for life in notes.lives]
    may_lose = {(region, epoch): True for region in in_order for epoch in lossy}
    published_ms = {event: at / 1e6 for event, at in notes.published_ns.items()}
    found = violations(Run(sessions, in_order, there, published_ms, unrest, False, True, may_lose))
    order: dict[str, list[str]] = {}
    for life in notes.lives:
        order.setdefault(life.server, []).extend(event for event, _ in life.session.published)
    verdict = judge(map(_sequence, notes.lives), publication_order=order)
    uncertain = {event for session in sessions for event in session.uncertain}
    found += _unexpected(notes)
    places = {each.event: (each.epoch, each.number) for events in drawn.values() for each in events}
    told = histories(notes, places)
    if not lossy:  # else heads may be lost
        found += not_linearizable(told)
    return Judgement(
        published=len(notes.published_ns),
        delivered=verdict.deliveries,
        receipts=sum(len(session.receipts) for session in sessions),
        lost=sum(_losses(life, in_order, published_ms) for life in notes.lives),
        duplicated=verdict.duplicated,
        inversions=verdict.inversions,
        cycles=verdict.cycles,
        publisher_order_violations=verdict.publisher_order_violations,
        gaps=sum(delivered.missing is not None for session in sessions for delivered in session.deliveries),
        uncertain=len(uncertain),
        uncertain_published=len(uncertain & {each.event for events in drawn.values() for each in events}),
        keyed=sum(map(len, told.values())),
        conflicts=conflicts_of(told),
        violations=tuple(found),
    )


def _sequence(life: Life) -> DeliverySequence:
    events = [delivered for delivered in life.session.deliveries if delivered.event]
    return DeliverySequence(
        life.session.name,
        [delivered.event for delivered in events],
        [delivered.region for delivered in events],
        [delivered.sender for delivered in events],
    )


def _unexpected(notes: Notes) -> Iterator[str]:
    """Tell what the interface raised that is no error of gamecast's."""
    for trouble in (*notes.trouble, *(trouble for life in notes.lives for trouble in life.trouble)):
        if trouble["error"] not in errors.__all__:
            yield f"interface: {trouble['call']} raised {trouble['error']}: {trouble['says']}"


def _losses(life: Life, drawn: Mapping[str, list[Drawn]], published_ms: Mapping[str, float]) -> int:
    """Count the events that are missing and announced by no gap: between a stay's first and last events, after its
    join, and, for sessions that stayed, at the end."""
    lost = 0
    session = life.session
    for (region, since, until), joined_ms in zip(session.joined, session.joined_ms, strict=True):
        handed = [delivered for delivered in session.deliveries[since:until] if delivered.region == region]
        events = {delivered.event for delivered in handed}
        gaps = [delivered.missing for delivered in handed if delivered.missing is not None]
        stayed = until is None and not session.ended
        of_region = drawn.get(region, [])
        places = [place for place, each in enumerate(of_region) if each.event in events]
        first, last = (places[0], places[-1]) if places else (len(of_region), len(of_region) - 1)
        end = len(of_region) if stayed else last + 1
        lost += sum(
            each.event not in events and not any(_is_in(each, gap) for gap in gaps)
            for place, each in enumerate(of_region[:end])
            if place >= first or (published_ms[each.event] > joined_ms and (places or stayed))
        )
    return lost


def _is_in(each: Drawn, gap: Missing) -> bool:
    return each.epoch == gap.epoch and gap.first <= each.number <= (gap.last or each.number)
