"""Sessions that begin with history: they go on exactly where the last one was, or have all that is kept, in one order.

The judges of the simulation know live events only: all of a session has one order there, and a region comes by itself.
History comes late, against the other regions of its session. So those judges are given what was live, and here is
judged what each region with history brought, and the order of what came with it, session after session.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from laboratory.chaos.notes import Life, Notes
from laboratory.simulation.judging import Drawn, is_in, sequence
from laboratory.simulation.server import Delivered, Diary, State, regions_of
from sequencing.checkers import DeliverySequence
from sequencing.keyed import Position


def live(session: Diary, life: Life) -> Diary:
    """Return what was live of a session, for judges that know nothing of history. ``session``: that of ``life``."""
    if not life.replayed and not life.since:
        return session
    at, places = 0, list[int]()
    for place in range(len(session.deliveries) + 1):
        places.append(at)
        at += place not in life.replayed
    mine = _with_history(life)
    stays = [
        ((region, places[since], until if until is None else places[until]), joined_ms)
        for place, ((region, since, until), joined_ms) in enumerate(zip(session.joined, session.joined_ms, strict=True))
        if place not in mine
    ]
    touched = {session.joined[place][0] for place in mine}
    return replace(
        session,
        deliveries=[each for place, each in enumerate(session.deliveries) if place not in life.replayed],
        joined=[stay for stay, _ in stays],
        joined_ms=[joined_ms for _, joined_ms in stays],
        states=[State(places[each.place], *each[1:]) for each in session.states if each.region not in touched],
        asked=[(region, places[place]) for region, place in session.asked],
        left=[(region, places[place]) for region, place in session.left],
    )


def _with_history(life: Life) -> dict[int, Position | None]:
    """Return the stays that history had a part in, places in `Diary.joined`, and after which position each begins, if
    that is known: those with ``since``, and those of other regions of its events."""
    found: dict[int, Position | None] = {each.stay: each.position for each in life.since.values()}
    touched: dict[str, int] = {}
    for place in life.replayed:
        for region in regions_of(life.session.deliveries[place].event):
            touched[region] = max(place, touched.get(region, 0))
    for stay, (region, _, until) in enumerate(life.session.joined):
        if stay not in found and region in touched and (until is None or until > min(life.replayed)):
            found[stay] = None
    return found


def broken_stays(
    notes: Notes,
    drawn: Mapping[str, Sequence[Drawn]],
    kept: AbstractSet[tuple[str, str]],
    published_ms: Mapping[str, float],
) -> Iterator[str]:
    """Yield where a region with history has a hole, or something again, or begins elsewhere than it should.

    ``drawn``: region → what was accepted, in order; ``kept``: (region, event), of what is in the streams at the end. A
    gap stands for what it announces, which must not be there; whether there may be gaps at all is judged elsewhere.
    """
    for life in notes.lives:
        for stay, begin in _with_history(life).items():
            yield from _broken(life, stay, begin, drawn, kept, published_ms)
        for stay in life.refused_stays:
            yield from _given_although_refused(life, stay)
        yield from _given_twice(life)


def _broken(
    life: Life,
    stay: int,
    begin: Position | None,
    drawn: Mapping[str, Sequence[Drawn]],
    kept: AbstractSet[tuple[str, str]],
    published_ms: Mapping[str, float],
) -> Iterator[str]:
    session = life.session
    region, since, until = session.joined[stay]
    order = drawn.get(region, ())
    place_of = {each.event: place for place, each in enumerate(order)}
    had = {each.event for each in session.deliveries[:since] if each.event}
    place = next((n for n, each in enumerate(order) if begin is not None and (each.epoch, each.number) > begin), None)
    if begin is not None and place is None:
        place = len(order)
    who = f"{_kind(life, begin)}: {session.name} in {region} after {begin}"
    for item in session.deliveries[since:until]:
        if item.event:
            had.add(item.event)
        if item.region != region:
            continue
        if item.event and item.event not in published_ms:
            yield f"integrity: {session.name} got {item.event}, which was never published"
            return
        gap = item.missing
        covered = [place_of[item.event]] if gap is None else [n for n, each in enumerate(order) if is_in(each, gap)]
        if not covered:
            continue
        if place is None:
            place = covered[0]
        while place < covered[0] and (event := order[place].event) in had and regions_of(event):
            place += 1  # another region has brought it
        if item.missing is not None and (
            there := [order[n].event for n in covered if (region, order[n].event) in kept]
        ):
            yield f"{who} was told by {item.missing} that it misses {there}, which are there"
        if covered[0] != place:
            due = order[place : place + 1]
            yield f"{who} got {item.missing or order[covered[0]]}, and due was {due}"
            return
        place = covered[-1] + 1
    if until is None and not session.ended:
        joined_ms = session.joined_ms[stay]
        missing = [
            each.event
            for n, each in enumerate(order)
            if (n >= place if place is not None else published_ms[each.event] > joined_ms)
            and not (each.event in had and regions_of(each.event))
        ]
        if missing:
            yield f"{who} never got {missing[:5]}, {len(missing)} in all"


def _kind(life: Life, begin: Position | None) -> str:
    if begin is None:
        return "live"
    return "replay" if life.of is None else "resume"


def _given_although_refused(life: Life, stay: int) -> Iterator[str]:
    """Yield what came of a region while it was asked for with history, which was refused: nothing is subscribed to."""
    region, since, until = life.session.joined[stay]
    if given := [each for each in life.session.deliveries[since:until] if each.region == region]:
        yield f"resume: {life.session.name} got {given[0].event or given[0].missing} of {region}, and was refused"


def _given_twice(life: Life) -> Iterator[str]:
    """Yield what one connection was given as history and live: once is once for a connection, also over history."""
    had: set[str] = set()
    for each in life.session.deliveries if life.since else ():
        if each.event and not each.is_again:
            if each.event in had:
                yield f"replay: {life.session.name} got {each.event} twice"
                return
            had.add(each.event)


def refused_positions(notes: Notes) -> Iterator[str]:
    """Yield sessions that were told that the positions of the one before were never given."""
    for life in notes.lives:
        if life.refused == "UnknownPosition":
            yield f"resume: {life.session.name} was refused the positions of session {life.refused_of}"


def orders(notes: Notes) -> Iterator[DeliverySequence]:
    """Yield all that has to be in one order: what is live in a session, what comes with one call of history and after
    it, and that behind what the session before it had of these regions, and so on."""
    lives = {life.session.name: life for life in notes.lives}
    for life in notes.lives:
        yield sequence(life.session.name, _live_part(life))
        if life.since:
            yield from _through(life, lives)


def _through(life: Life, lives: Mapping[str, Life]) -> Iterator[DeliverySequence]:
    name, back = life.session.name, 0
    regions: AbstractSet[str] = life.since.keys()
    parts = [_history_part(life)]
    while (before := lives.get(f"{life.server}#{life.of}")) is not None and regions:
        # History that did not come to its end is behind what was live beside it.
        is_whole = before.since.keys() <= before.caught_up
        and_live = regions if is_whole else regions - before.since.keys()
        if and_live:
            yield _chain(f"{name} behind {before.session.name}", [_live_part(before), *parts], and_live)
        regions, life = regions & before.since.keys(), before
        parts.insert(0, _history_part(life))
        back += 1
    if regions:
        yield _chain(f"{name} and {back} before it", parts, regions)


def _chain(name: str, parts: Sequence[Sequence[Delivered]], regions: AbstractSet[str]) -> DeliverySequence:
    return sequence(name, [each for part in parts for each in part if each.region in regions])


def _live_part(life: Life) -> list[Delivered]:
    return [each for place, each in enumerate(life.session.deliveries) if place not in life.replayed]


def _history_part(life: Life) -> list[Delivered]:
    """What comes with history, and live after it, in these stays."""
    session, found = life.session, list[Delivered]()
    stays = {region: session.joined[since.stay] for region, since in life.since.items()}
    for place, each in enumerate(session.deliveries):
        _, since, until = stays.get(each.region, ("", 0, 0))
        if since <= place and (until is None or place < until):
            found.append(each)
    return found
