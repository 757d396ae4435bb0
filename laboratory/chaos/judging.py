"""The judgement of a run: the judges of the simulation say whether a promise was broken, the rest here how often."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from gamecast import errors
from laboratory.chaos.conditions import conflicts_of, histories, not_linearizable
from laboratory.chaos.items import is_own, own_name
from laboratory.chaos.joints import joint_events
from laboratory.chaos.kept import Kept
from laboratory.chaos.notes import Life, Notes
from laboratory.chaos.ownership import handovers_of, owned_by_two
from laboratory.chaos.presence import broken_presence, leaves_of_others
from laboratory.chaos.resumes import broken_stays, live, orders, refused_positions
from laboratory.chaos.states import keyed_frames, overtaken_states
from laboratory.chaos.updates import early_updates
from laboratory.simulation.judging import Drawn, Run, is_in, violations
from laboratory.simulation.server import regions_of
from sequencing.checkers import judge
from sequencing.keyed import Position
from sequencing.names import PRESENT

OF_WHAT_IS_LOST = "joint:"
"""Where nodes lose data, they may lose one copy of an event and keep another."""


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
    sometimes: Mapping[str, int]
    """What should have come about → how often it did."""
    violations: tuple[str, ...]

    @property
    def fine(self) -> bool:
        """Whether every promise was kept."""
        broken = self.lost, self.duplicated, self.inversions, self.cycles, self.publisher_order_violations
        return not any(broken) and not self.violations


def judge_run(
    notes: Notes,
    kept: Iterable[Kept],
    unrest: str = "",
    *,
    lossy: range = range(0),
    given_up: AbstractSet[tuple[str, int]] = frozenset(),
) -> Judgement:
    """Judge the notes of servers.

    ``kept``: the events in the egress streams at the end; ``unrest``: why the network did not come to rest in time, if
    so; ``lossy``: the epochs in which events may be lost, if a gap announces it; ``given_up``: see `Run`.
    Raises `InvalidInput` for an event with two regions or senders.
    """
    kept = list(kept)
    there, drawn, places = _accepted(notes, kept)
    in_order = {region: sorted(events) for region, events in drawn.items()}
    overtaken = [] if lossy else list(overtaken_states(notes, places))
    wrong = [state for _, state in overtaken]
    sessions = [
        live(
            replace(life.session, states=[] if lossy else [each for each in life.session.states if each not in wrong]),
            life,
        )
        for life in notes.lives
    ]
    may_lose = {(region, epoch): True for region in in_order for epoch in lossy}
    published_ms = _published_ms(notes, kept, drawn)
    found = [
        f"state: {life.session.name} got an event of {state.region} after the state at {state.position}, which has it"
        for life, state in overtaken
    ]
    keyed = keyed_frames(kept)
    run = Run(sessions, in_order, there, published_ms, unrest, False, True, may_lose, keyed, given_up=given_up)
    found += [what for what in violations(run) if not (lossy and what.startswith(OF_WHAT_IS_LOST))]
    order: dict[str, list[str]] = {}
    for life in notes.lives:
        order.setdefault(life.server, []).extend(event for event, _ in life.session.published)
    verdict = judge(orders(notes), publication_order=order)
    if not verdict.fine and not any(what.startswith(("order:", "acyclicity:")) for what in found):
        found += [f"order: over sessions, {offence.describe()}" for offence in verdict.examples]
    uncertain = {event for session in sessions for event in session.uncertain}
    # Who goes on without a node that was given up may be told that it misses what is there.
    given_up_events = {
        (region, each.event) for region, of in in_order.items() for each in of if (region, each.epoch) in given_up
    }
    found += broken_stays(notes, in_order, there - given_up_events, published_ms)
    found += _unexpected(notes)
    told = histories(notes, places)
    found += early_updates(notes, places)
    if not lossy:  # else heads may be lost
        found += refused_positions(notes)
        found += _invented(notes, there)
        found += not_linearizable(told)
        found += owned_by_two(notes, kept)
        found += broken_presence(notes, kept, places, at_rest=not unrest)
    return Judgement(
        published=len(notes.published_ns),
        delivered=sum(_count(life) for life in notes.lives),
        receipts=sum(len(session.receipts) for session in sessions),
        lost=sum(_losses(life, in_order, published_ms) for life in notes.lives),
        duplicated=verdict.duplicated,
        inversions=verdict.inversions,
        cycles=verdict.cycles,
        publisher_order_violations=verdict.publisher_order_violations,
        gaps=sum(delivered.missing is not None for session in sessions for delivered in session.deliveries),
        uncertain=len(uncertain),
        uncertain_published=len(uncertain & {event for _, event in places}),
        keyed=sum(map(len, told.values())),
        conflicts=conflicts_of(told),
        sometimes=_sometimes(notes, kept, drawn),
        violations=tuple(found),
    )


def _accepted(
    notes: Notes, kept: Iterable[Kept]
) -> tuple[set[tuple[str, str]], dict[str, set[Drawn]], dict[tuple[str, str], Position]]:
    """Return what is in the egress streams, region → what was accepted, and (region, event) → where it is.

    Arrivals and leaves have places only: not all who follow a region are given them.
    """
    there: set[tuple[str, str]] = set()
    drawn: dict[str, set[Drawn]] = {}
    places: dict[tuple[str, str], Position] = {}
    for frame in kept:
        of_presence = {each.event for each in frame.keyed() if each.key.startswith(PRESENT)}
        for event, number in frame.numbered():
            places[frame.region, event] = frame.epoch, number
            if event not in of_presence:
                there.add((frame.region, event))
                drawn.setdefault(frame.region, set()).add(Drawn(frame.epoch, number, event))
    for life in notes.lives:
        for event, region, epoch, number in life.seen:
            places.setdefault((region, event), (epoch, number))
            drawn.setdefault(region, set()).add(Drawn(epoch, number, event))
        for seen in life.arrivals:
            epoch, number = seen.position
            places.setdefault((seen.region, own_name([(seen.region, number)], epoch)), seen.position)
    return there, drawn, places


def _published_ms(notes: Notes, kept: Iterable[Kept], drawn: Mapping[str, Iterable[Drawn]]) -> dict[str, float]:
    """Return event → when it was published; what gamecast itself published counts as long ago."""
    events = {event for frame in kept for event in frame.events}
    events.update(each.event for of_region in drawn.values() for each in of_region)
    events.update(each.event for life in notes.lives for each in life.session.deliveries)
    own = filter(is_own, events)
    return dict.fromkeys(own, 0.0) | {event: at / 1e6 for event, at in notes.published_ns.items()}


def _invented(notes: Notes, there: AbstractSet[tuple[str, str]]) -> Iterator[str]:
    """Tell which events of gamecast itself were delivered, and are in no stream: no note says who published them."""
    for life in notes.lives:
        for event, region, *_ in life.seen:
            if is_own(event) and (region, event) not in there:
                yield f"integrity: {life.session.name} delivered {event} of {region}, which is in no stream"


def _sometimes(notes: Notes, kept: Sequence[Kept], drawn: Mapping[str, Iterable[Drawn]]) -> dict[str, int]:
    calls = sum((life.calls for life in notes.lives), Counter[str]())
    handovers, acceptances = handovers_of(kept)
    refused = [event for life in notes.lives for event in life.session.refused]
    guarded = {event for life in notes.lives for event in life.guarded}
    return {
        "joint_events": joint_events({region: [each.event for each in events] for region, events in drawn.items()}),
        "joint_conflicts": sum(
            tried.is_refused for life in notes.lives for (event, _), tried in life.attempts.items() if regions_of(event)
        ),
        "states": sum(len(life.session.states) for life in notes.lives),
        "claims": calls["claim done"],
        "handovers": handovers,
        "handovers_accepted": acceptances,
        "handovers_cut": _cut(calls, "hand"),
        "handovers_cancelled": calls["hand cancelled"],
        "other_calls_cut": sum(_cut(calls, call) for call in ("claim", "accept", "take_back", "release")),
        "owned_events": sum(event in guarded for life in notes.lives for event in life.session.receipts),
        "owned_events_refused": sum(event in guarded for event in refused),
        "presences": sum(len(life.arrivals) for life in notes.lives),
        "leaves_of_others": leaves_of_others(kept),
        "looks": sum(len(life.last_look[1]) for life in notes.lives if life.last_look is not None),
        "updates": sum(len(life.updates) for life in notes.lives),
        **_began_with_history(notes),
    }


def _began_with_history(notes: Notes) -> dict[str, int]:
    resumed = [life for life in notes.lives if life.since and life.of is not None]
    killed = {life.session.name for life in notes.lives if not life.closing}
    return {
        "resumes": len(resumed),
        "resumes_after_kill": sum(f"{life.server}#{life.of}" in killed for life in resumed),
        "refused_resumes": sum(life.refused_of is not None for life in notes.lives),
        "replays": sum(bool(life.since) and life.of is None for life in notes.lives),
        "refused_replays": sum(bool(life.refused) and life.refused_of is None for life in notes.lives),
        "replayed_events": sum(
            not life.session.deliveries[at].is_again for life in notes.lives for at in life.replayed
        ),
    }


def _cut(calls: Counter[str], call: str) -> int:
    """Return how many calls of ownership ended by a lost answer, or with their process."""
    return calls[f"{call} began"] - sum(calls[f"{call} {how}"] for how in ("done", "none", "refused", "cancelled"))


def _count(life: Life) -> int:
    return sum(bool(each.event) and not each.is_again for each in life.session.deliveries)


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
    by_others = {each.event for each in session.deliveries if life.since and regions_of(each.event)}
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
            each.event not in events and each.event not in by_others and not any(is_in(each, gap) for gap in gaps)
            for place, each in enumerate(of_region[:end])
            if place >= first or (published_ms.get(each.event, 0.0) > joined_ms and (places or stayed))
        )
    return lost
