"""One checker for each guarantee that a protocol can declare; none of them looks inside a protocol.

The regular flavour of a guarantee binds the correct processes. The uniform one binds all processes, including those
that crash later: their deliveries before the crash must not contradict it.

Source: Kshemkalyani 2008, §6.10 (validity, agreement, integrity and the orders, both flavours), §6.6 Definition 6.14
(total order); Herlihy 2000, §6.3 (gaps); Gupta 2019, "Virtual Synchrony".
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import combinations, pairwise

from classic.executions.crowns import find_crown
from classic.executions.record import Event, Kind, Record
from classic.executions.stays import Stay, owed, stays
from classic.protocols.process import Guarantee


@dataclass(frozen=True, slots=True)
class Violation:
    """How a guarantee is broken: by which messages, at which processes."""

    guarantee: Guarantee
    messages: tuple[str, ...]
    processes: tuple[str, ...]
    text: str


Found = Iterator[tuple[tuple[str, ...], tuple[str, ...], str]]


def violations(record: Record, guarantees: Iterable[Guarantee]) -> Iterator[Violation]:
    """Yield what breaks any of some guarantees."""
    for guarantee in sorted(guarantees):
        for messages, processes, text in CHECKERS[guarantee](record):
            yield Violation(guarantee, messages, processes, text)


def _bound(record: Record, uniform: bool) -> tuple[str, ...]:
    """The processes that a guarantee binds."""
    return record.names if uniform else record.correct


def _validity(record: Record) -> Found:
    yield from _memberships(record)
    delivered = {process: set(messages) for process, messages in record.deliveries().items()}
    staying = _owed_in_the_end(record)
    for message, sent in record.messages.items():
        if sent.sender in staying:
            for process, messages in staying.items():
                if message in messages and message not in delivered[process]:
                    yield (message,), (process,), f"{process} never delivers {message} of {sent.sender}"


def _memberships(record: Record) -> Found:
    """Correct processes get what they ask for, if there is another member that stays."""
    for process, what in record.unmet:
        yield (), (process,), f"{process} asks to {what} and never does"
    staying = _owed_in_the_end(record)
    for process, joins in record.wishes.items():
        if process in record.correct and joins != (process in staying) and staying.keys() - {process}:
            yield (), (process,), f"{process} asks to {'join' if joins else 'leave'} and never does"


def _owed_in_the_end(record: Record) -> dict[str, frozenset[str]]:
    """The correct processes that stay, and the messages that they must deliver."""
    correct = record.correct
    return {s.process: messages for s, messages in owed(record).items() if s.end is None and s.process in correct}


def _agreement(record: Record, *, uniform: bool) -> Found:
    deliveries = record.deliveries()
    delivered = {process: set(messages) for process, messages in deliveries.items()}
    first: dict[str, str] = {}
    for process in _bound(record, uniform):
        for message in deliveries[process]:
            first.setdefault(message, process)
    staying = _owed_in_the_end(record)
    for message, one in first.items():
        for process, messages in staying.items():
            if message in messages and message not in delivered[process]:
                yield (message,), (one, process), f"{one} delivers {message}, and {process} never does"


def _integrity(record: Record, *, uniform: bool) -> Found:
    deliveries = record.deliveries()
    for process in _bound(record, uniform):
        for message, count in Counter(deliveries[process]).items():
            if message not in record.messages:
                yield (message,), (process,), f"{process} delivers {message}, which was never published"
            elif process not in record.messages[message].to | record.late:
                yield (message,), (process,), f"{process} delivers {message}, which is not for it"
            elif count > 1:
                yield (message,), (process,), f"{process} delivers {message} {count} times"
    entered = {stay.start for of_one in stays(record).values() for stay in of_one}
    outside = set(record.late)
    for place, event in enumerate(record.events):
        if place in entered:
            outside.discard(event.process)
        elif event.kind is Kind.LEAVE:
            outside.add(event.process)
        elif event.kind is Kind.RECEIVE and event.process in outside:
            yield (event.message,), (event.process,), f"{event.process} delivers {event.message} and is no member"


def _fifo(record: Record, *, uniform: bool) -> Found:
    bound = set(_bound(record, uniform))
    entered = {stay.start for of_one in stays(record).values() for stay in of_one if stay.start >= 0}
    joined: dict[str, int] = {}
    """Process → the place of its last entry: it may begin with any message of a stream."""
    streams: dict[tuple[str, str], list[str]] = defaultdict(list)
    earlier: dict[str, int] = {}
    reached: dict[tuple[str, str, str, int], int] = {}
    for place, event in enumerate(record.events):
        if place in entered:
            joined[event.process] = place
        if event.message not in record.messages:
            continue
        sent = record.messages[event.message]
        stream = streams[sent.sender, sent.group]
        if event.kind is Kind.SEND:
            earlier[event.message] = len(stream)
            stream.append(event.message)
        elif event.kind is Kind.RECEIVE and event.process in bound and event.message in earlier:
            key = (event.process, sent.sender, sent.group, joined.get(event.process, -1))
            reached.setdefault(key, 0 if key[-1] < 0 else earlier[event.message])
            if earlier[event.message] > reached[key]:
                missed = stream[reached[key]]
                yield (
                    (missed, event.message),
                    (event.process,),
                    f"{event.process} delivers {event.message} without {missed}, which {sent.sender} sent before it",
                )
            reached[key] = max(reached[key], earlier[event.message] + 1)


def _causal(record: Record, *, uniform: bool) -> Found:
    """Sets of messages are the bits of a number: a process's past, the messages that it must deliver, and its
    deliveries."""
    bound = set(_bound(record, uniform))
    bit = {message: 1 << i for i, message in enumerate(record.messages)}
    owing = {stay: sum(bit[message] for message in messages) for stay, messages in owed(record).items()}
    begins: dict[int, Stay] = {stay.start: stay for stay in owing if stay.start >= 0}
    now = {stay.process: bits for stay, bits in owing.items() if stay.start < 0}
    """Process → what it must deliver in its present stay."""
    past: dict[str, int] = defaultdict(int)
    delivered: dict[str, int] = defaultdict(int)
    past_of: dict[str, int] = {}
    for place, event in enumerate(record.events):
        if place in begins:
            now[event.process] = owing[begins[place]]
        if event.message not in bit:
            continue
        if event.kind is Kind.SEND:
            past_of[event.message] = past[event.process]
            past[event.process] |= bit[event.message]
        elif event.kind is Kind.RECEIVE and event.message in past_of:
            missing = past_of[event.message] & now.get(event.process, 0) & ~delivered[event.process]
            if missing and event.process in bound:
                missed = next(message for message in bit if bit[message] & missing)
                yield (
                    (missed, event.message),
                    (event.process,),
                    f"{event.process} delivers {event.message} without {missed}, which was sent causally before it",
                )
            delivered[event.process] |= bit[event.message]
            past[event.process] |= past_of[event.message] | bit[event.message]


def _total(record: Record, *, uniform: bool) -> Found:
    deliveries = record.deliveries()
    orders = {process: list(dict.fromkeys(deliveries[process])) for process in _bound(record, uniform)}
    for one, other in combinations(orders, 2):
        place = {message: i for i, message in enumerate(orders[other])}
        common = [message for message in orders[one] if message in place]
        for before, after in pairwise(common):
            if place[before] > place[after]:
                yield (
                    (before, after),
                    (one, other),
                    f"{one} delivers {before} before {after}, {other} {after} before {before}",
                )


def _acyclic(record: Record) -> Found:
    following: dict[str, dict[str, str]] = defaultdict(dict)
    for process, messages in record.deliveries().items():
        for before, after in pairwise(messages):
            following[before].setdefault(after, process)
    cycle = _cycle(following)
    if cycle:
        processes = tuple(following[m][n] for m, n in pairwise((*cycle, cycle[0])))
        steps = ", ".join(f"{p}: {m} → {n}" for p, (m, n) in zip(processes, pairwise((*cycle, cycle[0])), strict=True))
        yield tuple(cycle), processes, f"the delivery orders are a cycle: {steps}"


def _cycle(following: dict[str, dict[str, str]]) -> list[str]:
    """Return the messages of a cycle, if there is one: what remains when all that nothing precedes is taken away."""
    preceding = Counter(after for successors in following.values() for after in successors)
    free = [message for message in following if not preceding[message]]
    for message in free:
        for after in following.get(message, ()):
            preceding[after] -= 1
            if not preceding[after]:
                free.append(after)
    knot = {message for message, count in preceding.items() if count}
    if not knot:
        return []
    # Backwards every message of the knot has a predecessor in it; forwards it may lead out.
    before = {after: message for message, successors in following.items() for after in successors if message in knot}
    line = [next(iter(knot))]
    while line[-1] not in line[:-1]:
        line.append(before[line[-1]])
    return line[line.index(line[-1]) + 1 :][::-1]


def _gaps(record: Record) -> Found:
    """Between neighbours in one order that another process has something between, a gap was announced."""
    orders, correct = record.deliveries(), record.correct
    places = {other: {message: place for place, message in enumerate(orders[other])} for other in correct}
    for process in correct:
        last, told = "", False
        for event in record.events:
            if event.process != process or event.kind not in (Kind.RECEIVE, Kind.GAP):
                continue
            if event.kind is Kind.GAP:
                told = True
                continue
            for other in correct:
                between = _between(orders[other], places[other], last, event.message)
                if between and not told:
                    what = f"{process} delivers {event.message} right after {last or 'nothing'}, without a gap"
                    yield (between, event.message), (process, other), f"{what}, but {other} has {between} between them"
            last, told = event.message, False


def _between(order: list[str], place: dict[str, int], before: str, after: str) -> str:
    """Return a message between two of an order, the first of which may be nothing; empty if there is none."""
    if after not in place or (before and before not in place):
        return ""
    start = place[before] + 1 if before else 0
    return order[start] if start < place[after] else ""


def _synchronous(record: Record) -> Found:
    crown = find_crown(record)
    if crown:
        yield tuple(crown), (), f"a crown of size {len(crown)}: {', '.join(crown)}"


def _views(record: Record) -> Found:
    known: dict[int, Event] = {}
    for process in record.correct:
        expected = 0
        for event in record.events:
            if event.process != process or event.kind is not Kind.VIEW:
                continue
            first = known.setdefault(event.view, event)
            if first.members != event.members:
                text = (
                    f"view {event.view} is {_set(first.members)} at {first.process}, {_set(event.members)} at {process}"
                )
                yield (), (first.process, process), text
            if expected and event.view != expected:
                yield (), (process,), f"{process} installs view {event.view} where view {expected} was due"
            if process not in event.members:
                yield (), (process,), f"{process} installs view {event.view} without being a member"
            expected = event.view + 1


def _view_synchrony(record: Record) -> Found:
    delivered: dict[int, dict[str, set[str]]] = defaultdict(dict)
    members: dict[int, tuple[str, ...]] = {}
    current: dict[str, int] = {}
    finished: dict[int, list[str]] = defaultdict(list)
    correct = record.correct
    for event in record.events:
        if event.process not in correct:
            continue
        if event.kind is Kind.VIEW:
            if event.process in current:
                finished[current[event.process]].append(event.process)
            current[event.process] = event.view
            members[event.view] = event.members
            delivered[event.view][event.process] = set()
        elif event.kind is Kind.RECEIVE and event.process in current:
            view = current[event.process]
            delivered[view][event.process].add(event.message)
            sender = record.messages[event.message].sender
            if sender not in members[view]:
                text = f"{event.process} delivers {event.message} in view {view}, of which {sender} is no member"
                yield (event.message,), (event.process,), text
    for view, processes in finished.items():
        for one, other in pairwise(processes):
            differing = delivered[view][one] ^ delivered[view][other]
            if differing:
                text = f"{one} and {other} do not deliver the same in view {view}: {', '.join(sorted(differing))}"
                yield tuple(sorted(differing)), (one, other), text


def _set(members: Iterable[str]) -> str:
    return "{" + ", ".join(members) + "}"


CHECKERS: dict[Guarantee, Callable[[Record], Found]] = {
    Guarantee.VALIDITY: _validity,
    Guarantee.AGREEMENT: partial(_agreement, uniform=False),
    Guarantee.INTEGRITY: partial(_integrity, uniform=False),
    Guarantee.FIFO: partial(_fifo, uniform=False),
    Guarantee.CAUSAL: partial(_causal, uniform=False),
    Guarantee.TOTAL: partial(_total, uniform=False),
    Guarantee.ACYCLIC: _acyclic,
    Guarantee.UNIFORM_AGREEMENT: partial(_agreement, uniform=True),
    Guarantee.UNIFORM_INTEGRITY: partial(_integrity, uniform=True),
    Guarantee.UNIFORM_FIFO: partial(_fifo, uniform=True),
    Guarantee.UNIFORM_CAUSAL: partial(_causal, uniform=True),
    Guarantee.UNIFORM_TOTAL: partial(_total, uniform=True),
    Guarantee.GAPS: _gaps,
    Guarantee.SYNCHRONOUS: _synchronous,
    Guarantee.VIEWS: _views,
    Guarantee.VIEW_SYNCHRONY: _view_synchrony,
}
