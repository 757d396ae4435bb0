"""Stays: from when to when a process is a member, and which messages it must therefore deliver.

A founder's first stay begins with the execution, and it must deliver everything. A stay that begins later owes the
messages

- that a process delivers after one which the joiner delivers in the stay,
- whose sending the entry happened before, and
- that the joiner itself published while it was outside.

No more can be asked of every protocol: where in the order a joiner enters is the protocol's choice.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import dropwhile

from classic.executions.record import Kind, Record


@dataclass(frozen=True, slots=True)
class Stay:
    """A process is a member from one event to another, by their places among all events.

    ``start``: -1 for a founder. ``end``: None if it stays to the end of the execution.
    """

    process: str
    start: int
    end: int | None = None


def stays(record: Record) -> dict[str, list[Stay]]:
    """Return each process's stays, in their order."""
    found: dict[str, list[Stay]] = {name: [] for name in record.names}
    present = {name: -1 for name in record.names if name not in record.late}
    for place, event in enumerate(record.events):
        process = event.process
        if event.kind in (Kind.ENTER, Kind.VIEW):
            present.setdefault(process, place)
        elif event.kind in (Kind.LEAVE, Kind.CRASH) and process in present:
            found[process].append(Stay(process, present.pop(process), place))
    for process, start in present.items():
        found[process].append(Stay(process, start))
    return found


def owed(record: Record) -> dict[Stay, frozenset[str]]:
    """Return the messages that each process must deliver in each of its stays, unless it leaves before."""
    orders = record.deliveries()
    all_stays = [stay for of_one in stays(record).values() for stay in of_one]
    after_entry = _sent_after(record, all_stays)
    owing: dict[Stay, frozenset[str]] = {}
    for stay in all_stays:
        if stay.start < 0:
            messages = {m for m, sent in record.messages.items() if stay.process in sent.to}
        else:
            end = len(record.events) if stay.end is None else stay.end
            events = record.events[stay.start : end]
            mine = {e.message for e in events if e.process == stay.process and e.kind is Kind.RECEIVE}
            messages = set(after_entry[stay])
            for name in record.correct:
                messages.update(dropwhile(lambda m, mine=mine: m not in mine, orders[name]))  # type: ignore[misc]
        owing[stay] = frozenset(messages)
    return owing


def _sent_after(record: Record, all_stays: list[Stay]) -> dict[Stay, set[str]]:
    """The messages that are sent causally after each entry, and the joiner's own that waited for it."""
    entries = {stay.start: stay for stay in all_stays if stay.start >= 0}
    ends = {stay.end for stay in all_stays if stay.end is not None}
    found: dict[Stay, set[str]] = defaultdict(set)
    known: dict[str, frozenset[Stay]] = defaultdict(frozenset)
    known_at: dict[str, frozenset[Stay]] = {}
    waiting: dict[str, set[str]] = {name: set() for name in record.late}
    for place, event in enumerate(record.events):
        process = event.process
        if place in entries:
            known[process] |= {entries[place]}
            found[entries[place]] |= waiting.pop(process, set())
        elif place in ends:
            waiting[process] = set()
        elif event.kind is Kind.SEND:
            known_at[event.message] = known[process]
            for stay in known[process]:
                found[stay].add(event.message)
            waiting.get(process, set()).add(event.message)
        elif event.kind is Kind.RECEIVE:
            known[process] |= known_at.get(event.message, frozenset())
    return found
