"""The classes of executions: RSC ⊂ causally ordered ⊂ FIFO ⊂ A.

Causal order has three characterisations, all here as they are defined; that they are one class is exercise 6.1, which
the property tests hold against drawn executions. With (s, r) and (s', r') for sends with their receives:

- CO: if s happens before s' and both are received by one process, r comes before r'.
- MO: if s happens before s', r' does not happen before r.
- EI (empty interval): nothing happens after s and before r.

EI is decided in linear time. An event that happens before r and is not in the past of s is in the past of the event
that precedes r at its process, so it is enough to check whether s happens before that one.

Source: Kshemkalyani 2008, §6.1, Definitions 6.1–6.6, §6.2.2.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from classic.executions.crowns import find_crown, non_separated_extension
from classic.executions.happened_before import HappenedBefore
from classic.executions.record import Event, Record

PAIRS_MESSAGES_MAX = 1500
"""Above this many messages the two characterisations by pairs, which take quadratic time, are left out."""


@dataclass(frozen=True, slots=True)
class Overtaken:
    """A message and one that overtakes it, and where."""

    message: str
    by: str
    process: str


@dataclass(frozen=True, slots=True)
class Classes:
    """Which classes an execution is in, and examples of why it is in no smaller one.

    ``co`` and ``mo`` are None where the execution is too large for them; ``ei`` says the same. ``crown`` is empty, and
    ``extension`` a schedule with each message's events together, where the execution is RSC.
    """

    fifo: Overtaken | None
    causal: Overtaken | None
    co: bool | None
    mo: bool | None
    ei: bool
    crown: tuple[str, ...]
    extension: tuple[Event, ...]

    @property
    def smallest(self) -> str:
        """The name of the smallest class."""
        if not self.crown:
            return "RSC"
        if self.ei:
            return "CO"
        return "A" if self.fifo else "FIFO"


def classify(record: Record) -> Classes:
    """Say which classes an execution is in. That it is an A-execution is certain: a `Record` cannot hold another."""
    before = HappenedBefore(record)
    small = len(before.messages) <= PAIRS_MESSAGES_MAX
    ei = next(empty_interval_violations(before), None)
    return Classes(
        fifo=next(fifo_violations(before), None),
        causal=ei,
        co=next(co_violations(before), None) is None if small else None,
        mo=next(mo_violations(before), None) is None if small else None,
        ei=ei is None,
        crown=tuple(find_crown(record)),
        extension=tuple(non_separated_extension(record)),
    )


def fifo_violations(before: HappenedBefore) -> Iterator[Overtaken]:
    """Yield messages that are overtaken by a later one between the same two processes (Definition 6.2)."""
    last: dict[tuple[str, str], int] = {}
    for line in before.line.values():
        for receive in line:
            event = before.events[receive]
            send = before.send[event.message]
            if receive == send:
                continue
            link = (before.events[send].process, event.process)
            if last.get(link, -1) > send:
                yield Overtaken(event.message, before.events[last[link]].message, event.process)
            last[link] = max(send, last.get(link, -1))


def co_violations(before: HappenedBefore) -> Iterator[Overtaken]:
    """Yield what breaks Definition 6.3."""
    for send, receive, later_send, later_receive in _pairs_of_pairs(before):
        if before.events[receive].process == before.events[later_receive].process and later_receive < receive:
            yield _overtaken(before, send, later_send, receive)


def mo_violations(before: HappenedBefore) -> Iterator[Overtaken]:
    """Yield what breaks Definition 6.5."""
    for send, receive, later_send, later_receive in _pairs_of_pairs(before):
        if before.holds(later_receive, receive):
            yield _overtaken(before, send, later_send, receive)


def empty_interval_violations(before: HappenedBefore) -> Iterator[Overtaken]:
    """Yield what breaks Definition 6.6: messages that a chain of others overtakes."""
    for line in before.line.values():
        for previous, receive in pairwise(line):
            send = before.send[before.events[receive].message]
            if send != receive and before.holds(send, previous):
                yield _overtaken(before, send, previous, receive)


def _pairs_of_pairs(before: HappenedBefore) -> Iterator[tuple[int, int, int, int]]:
    pairs = list(before.pairs())
    for send, receive in pairs:
        for later_send, later_receive in pairs:
            if before.holds(send, later_send):
                yield send, receive, later_send, later_receive


def _overtaken(before: HappenedBefore, send: int, by: int, receive: int) -> Overtaken:
    return Overtaken(before.events[send].message, before.events[by].message, before.events[receive].process)
