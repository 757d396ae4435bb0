"""The invariants of a run, one function for each. None of them uses a stamp or the inside of a machine.

The record of a run is what applications saw (`Diary`), the events that ingresses accepted, and the contents of egress
streams at its end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from laboratory.simulation.network import KeyedFrame
from laboratory.simulation.server import Delivered, Diary, regions_of
from sequencing.checkers import DeliverySequence, judge
from sequencing.conditions import can_follow_all
from sequencing.expected import orders_all
from sequencing.plan import Plan
from sequencing.ready import Missing
from sequencing.record import Record
from sequencing.store import number_of


class Drawn(NamedTuple):
    """An event that an ingress accepted, and its number."""

    epoch: int
    number: int
    event: str


@dataclass(frozen=True, slots=True)
class Run:
    """A finished run.

    ``drawn``: region → the events that its ingresses accepted, in order; ``kept``: the events, (region, event) each,
    that are in the egress streams at the end; ``may_lose``: the epochs, (region, epoch) each, whose path visits a node
    that has forgotten something → whether the amount may be unknown, because it is the first or the last of the path;
    ``unrest``: why the run did not come to rest in time, if so.
    """

    sessions: Sequence[Diary]
    drawn: Mapping[str, Sequence[Drawn]]
    kept: AbstractSet[tuple[str, str]]
    published_ms: Mapping[str, float]
    unrest: str
    causal: bool
    rings_ordered: bool
    may_lose: Mapping[tuple[str, int], bool] = field(default_factory=dict)
    keyed: Sequence[KeyedFrame] = ()
    """The accepted frames with keys or conditions."""
    copied: AbstractSet[tuple[str, int]] = frozenset()
    """The epochs, (region, epoch) each, of which nothing with a receipt is lost, although its node has forgotten
    something."""
    given_up: AbstractSet[tuple[str, int]] = frozenset()
    """The epochs, (region, epoch) each, whose path visits a node that was given up. Who goes on without the node misses
    what is there, and does not hear what it accepts later from those who have not heard."""


def epochs_at(nodes: AbstractSet[str], plans: Iterable[Plan]) -> set[tuple[str, int]]:
    """Return the epochs, (region, epoch) each, whose path in one of some plans visits one of some nodes."""
    return {
        (region, plan.epoch_of(region))
        for plan in plans
        for region, path in plan.paths.items()
        if not nodes.isdisjoint(path)
    }


def violations(run: Run) -> list[str]:
    """Return the violations of a run, the gravest first; empty if there are none."""
    checks = (_order, _integrity, _joint, _conditions, _states, _agreement, _durability, _causality, _liveness)
    return [what for check in checks for what in check(run)]


def unordered(records: Iterable[Record]) -> list[str]:
    """Return the first subscriber that an announced plan counts for regions that it does not order; empty if none.

    Not where only double overlaps are ordered.
    """
    for record in records:
        plan = record.plan
        if plan.sole or not orders_all(plan.ordering, record.expected):
            continue
        for name, regions in record.members.items():
            if not can_follow_all(plan, regions):
                return [
                    f"plan: {plan.epoch}-{plan.version} counts {name} for {sorted(regions)}, and does not order them"
                ]
    return []


def misnumbered(records: Iterable[Record]) -> list[str]:
    """Return the first plan that was announced with no greater number than the one before it; empty if none."""
    for before, after in pairwise(number_of(record.plan) for record in records):
        if after <= before:
            return [f"plan: {after[0]}-{after[1]} was announced after {before[0]}-{before[1]}"]
    return []


def sequence(name: str, deliveries: Sequence[Delivered]) -> DeliverySequence:
    """Return deliveries as one subscriber's, for the judge of orders."""
    events = [each for each in deliveries if each.event and not each.is_again]
    return DeliverySequence(
        name,
        [each.event for each in events],
        ["+".join(regions_of(each.event)) or each.region for each in events],
        [each.sender for each in events],
    )


def is_in(each: Drawn, gap: Missing) -> bool:
    """Return whether an event of a region is one that a gap there announces."""
    return each.epoch == gap.epoch and gap.first <= each.number <= (gap.last or each.number)


def _order(run: Run) -> Iterator[str]:
    """Region order, overlap order, acyclicity of the union, and each publisher's own order."""
    sequences = [sequence(session.name, session.deliveries) for session in run.sessions]
    order: dict[str, list[str]] = {}
    for session in run.sessions:
        order.setdefault(session.name.split("#")[0], []).extend(event for event, _ in session.published)
    verdict = judge(sequences, publication_order=order)
    if verdict.inversions or verdict.duplicated or verdict.publisher_order_violations:
        yield f"order: {verdict.first.describe() if verdict.first else verdict}"
    elif verdict.cycles and run.rings_ordered:
        yield f"acyclicity: {verdict.first.describe() if verdict.first else verdict}"
    rank = {event: place for events in order.values() for place, event in enumerate(events)}
    for session in run.sessions:
        last: dict[tuple[str, str], int] = {}
        for each in session.deliveries:
            if (place := rank.get(each.event, -1)) >= 0:
                if place <= last.get((each.region, each.sender), -1):
                    yield f"order: {session.name} got {each.event} in {each.region} after a later one of its publisher"
                    return
                last[each.region, each.sender] = place


def _joint(run: Run) -> Iterator[str]:
    """An event of several regions is accepted in all of them or in none, and handed out once to each that has any."""
    accepted = {(region, each.event) for region, drawn in run.drawn.items() for each in drawn}
    for region, event in accepted:
        if lacking := [other for other in regions_of(event) if (other, event) not in accepted]:
            yield f"joint: {event} was accepted in {region}, and not in {lacking}"
    for session in run.sessions:
        had: set[str] = set()
        for each in session.deliveries:
            if each.is_again and each.event not in had:
                yield f"joint: {session.name} was not given {each.event}, and passed over its copy in {each.region}"
            had.add(each.event)


def _integrity(run: Run) -> Iterator[str]:
    """Nothing is invented, accepted twice, or announced as missing where nothing can be."""
    for region, drawn in run.drawn.items():
        if len({each.event for each in drawn}) != len(drawn):
            yield f"integrity: an event of {region} was accepted twice: {[each.event for each in drawn]}"
    for session in run.sessions:
        for delivered in session.deliveries:
            gap = delivered.missing
            if gap is not None and (gap.region, gap.epoch) not in run.may_lose:
                yield f"integrity: {session.name} got {gap}, where nothing can be missing"
            elif gap is not None and not gap.last and not run.may_lose[gap.region, gap.epoch]:
                yield f"integrity: {session.name} got {gap}, where it is known how much is missing"
            elif gap is None and delivered.event not in run.published_ms:
                yield f"integrity: {session.name} delivered {delivered.event}, which was never published"


def _conditions(run: Run) -> Iterator[str]:
    """Each accepted event's conditions held at its place in its region, and what was refused was never accepted."""
    accepted = {each.event for drawn in run.drawn.values() for each in drawn}
    for session in run.sessions:
        if wrong := session.refused & accepted:
            yield f"conditions: {session.name} was told that {sorted(wrong)} were refused, and they were accepted"
    last: dict[tuple[str, str], Named] = {}
    for frame in sorted(run.keyed, key=lambda each: (each.region, each.epoch, each.first)):
        for key, position, _ in frame.extras.conditions:
            named = last.get((frame.region, key))
            if not _holds(named, position, frame.epoch):
                yield f"conditions: {frame} was accepted, and {key} was last named by {named}"
        for place, key, deletes, *_ in frame.extras.names:
            last[frame.region, key] = Named((frame.epoch, frame.first + place), deletes)


class Named(NamedTuple):
    """The last event that named a key, and whether it deleted it."""

    position: tuple[int, int]
    deletes: bool


def _holds(named: Named | None, position: tuple[int, int] | None, epoch: int) -> bool:
    if position is None:
        return named is None or named.deletes
    if position[1] == 0:  # nothing has set it since heads were lost with that epoch
        return position[0] <= epoch and (named is None or named.deletes or named.position[0] < position[0])
    return named is not None and not named.deletes and named.position == position


def _states(run: Run) -> Iterator[str]:
    """A state is what all events of its region up to its position make, and the next event of the region follows it."""
    for session in run.sessions:
        for place, region, position, heads, is_incomplete in session.states:
            expected: dict[str, tuple[int, int]] = {}
            for frame in sorted(run.keyed, key=lambda each: (each.epoch, each.first)):
                for named in frame.extras.names if frame.region == region else ():
                    if (at := (frame.epoch, frame.first + named.place)) <= position:
                        expected.pop(named.key, None)
                        if not named.deletes:
                            expected[named.key] = at
            if not is_incomplete and heads != expected:
                yield f"state: {session.name} was given {heads} of {region} at {position}, and it was {expected}"
            yield from _out_of_place(run, session, place, region, position)
            until = min((at for left, at in session.left if left == region and at >= place), default=None)
            after = (each for each in session.deliveries[place:until] if each.region == region)
            following = [each for each in run.drawn.get(region, ()) if (each.epoch, each.number) > position]
            first = next(after, None)
            if first is not None and first.event and first.event != following[0].event:
                yield f"state: {session.name} got {first.event} after the state of {region} at {position}"


def _out_of_place(run: Run, session: Diary, place: int, region: str, position: tuple[int, int]) -> Iterator[str]:
    """What comes before something that is in a state, for somebody, comes before the state, too; and of its region,
    nothing comes before it."""
    asked = max((at for asked, at in session.asked if asked == region and at <= place), default=place)
    early = [each.event for each in session.deliveries[asked:place] if each.region == region and each.event]
    if early:
        yield f"state: {session.name} got {early} of {region} before the state that it asked for"
    if any(lossy == region for lossy, _ in run.may_lose):
        return  # a gap in the place of what is in the state shows no order
    included = [each.event for each in run.drawn.get(region, ()) if (each.epoch, each.number) <= position]
    there = {name for name, since, until in session.joined if since <= place and (until is None or until >= place)}
    later = {
        each.event
        for each in session.deliveries[place:]
        if each.event
        and not each.is_again
        and each.region in there
        and region not in (regions_of(each.event) or each.region)
    }
    for other in run.sessions:
        handed = [each.event for each in other.deliveries if each.event and not each.is_again]
        if included and other is not session and included[-1] in handed:
            before = later.intersection(handed[: handed.index(included[-1])])
            if before:
                yield (
                    f"state: {session.name} got the state of {region} with {included[-1]}, and then {sorted(before)}, "
                    f"which {other.name} got before that"
                )


def _agreement(run: Run) -> Iterator[str]:
    """All items delivered of a region during a stay, events and gaps, are an unbroken part of the accepted events.

    It goes up to the end if the region was never left. Events in a gap are in no egress stream any more.
    """
    for session in run.sessions:
        for (region, since, until), joined_ms in zip(session.joined, session.joined_ms, strict=True):
            drawn = run.drawn.get(region, ())
            place = {each.event: index for index, each in enumerate(drawn)}
            begin = end = -1
            for item in session.deliveries[since:until]:
                if item.region != region:
                    continue
                covered = [place.get(item.event, -1)]
                if item.is_again and covered[0] < end:
                    continue  # the copy in this region was in a gap, and another one came
                if (gap := item.missing) is not None:
                    covered = [index for index, each in enumerate(drawn) if is_in(each, gap)]
                    # Of an event of several regions, the copy in this one may be lost, and another one is kept.
                    covered = [index for index in covered if index >= end or not regions_of(drawn[index].event)]
                    there = [event for index in covered if (region, event := drawn[index].event) in run.kept]
                    if there and (region, gap.epoch) not in run.given_up:
                        yield f"agreement: {session.name} was told that it misses {there}, which are there"
                if covered and end < 0:
                    begin = end = covered[0]
                if covered != list(range(end, end + len(covered))):
                    what = item.missing or item.event
                    yield f"agreement: {session.name} was handed {what} at {end} of {region}: {list(drawn)}"
                    return
                end += len(covered)
            if until is None and not session.ended:
                handed = begin >= 0
                promised = [
                    each.event
                    for index, each in enumerate(drawn)
                    if (handed and index >= end)
                    or (
                        (index < begin or not handed)
                        and _after(run, each, joined_ms)
                        and (region, each.epoch) not in run.given_up
                    )
                ]
                if promised:
                    yield f"validity: {session.name} joined {region} and never got {promised}"


def _after(run: Run, each: Drawn, joined_ms: float) -> bool:
    return run.published_ms[each.event] > joined_ms


def _durability(run: Run) -> Iterator[str]:
    """An event with a receipt has the number on it, and exists, unless a node has forgotten it."""
    drawn = {(region, each.event): each for region, events in run.drawn.items() for each in events}
    for session in run.sessions:
        for event, receipts in session.receipts.items():
            if receipts.keys() != set(regions_of(event) or receipts):
                yield f"durability: {event} has the receipts {receipts}"
            for region, receipt in receipts.items():
                each = drawn[region, event]
                if receipt != (each.epoch, each.number):
                    yield f"durability: {event} has the receipt {receipt}, and is {each}"
                epoch = region, each.epoch
                if (region, event) not in run.kept and (epoch not in run.may_lose or epoch in run.copied):
                    yield f"durability: {event} has a receipt and is gone"


def _causality(run: Run) -> Iterator[str]:
    """A subscriber of an event has delivered before it, of its regions, all events that the event's publisher knew.

    But a publisher goes on without an event whose fate is unknown.
    """
    if not run.causal:
        return
    unknown = {event for session in run.sessions for event in session.uncertain}
    past = {event: before - unknown for session in run.sessions for event, before in session.past.items()}
    for session in run.sessions:
        place = {each.event: index for index, each in enumerate(session.deliveries) if each.event}
        for event, index in place.items():
            for cause in past[event]:
                if place.get(cause, -1) > index:
                    yield f"causality: {session.name} delivered {event} before {cause}, which its publisher knew of"


def _liveness(run: Run) -> Iterator[str]:
    """When the faults are over, everything comes to rest."""
    if run.unrest:
        yield f"liveness: not at rest in time: {run.unrest}"
