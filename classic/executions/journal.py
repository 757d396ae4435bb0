"""Keeps the record of a run of a protocol, from the inputs and answers of its processes."""

from __future__ import annotations

from classic.executions.record import Event, Kind, Record, Sent
from classic.protocols.process import (
    Addressed,
    Deliver,
    Effect,
    Enter,
    Gap,
    Guarantee,
    Halt,
    Install,
    Message,
    Process,
    Scheduled,
)
from classic.protocols.setup import Setup


class Journal:
    """Writes down publishing, deliveries, gaps, views, entries and ends; packets are none of its business."""

    def __init__(self, protocol: type[Process], setup: Setup, *, late: frozenset[str] = frozenset()) -> None:
        self._setup = setup
        self._late = late
        self._events: list[Event] = []
        self._messages: dict[str, Sent] = {}
        self._faulty: set[str] = set()
        self._wishes: dict[str, bool] = {}
        self._unmet: list[tuple[str, str]] = []
        # Where sends are scheduled, the call of the application is not yet the send.
        self._publish = Kind.PUBLISH if Guarantee.SYNCHRONOUS in protocol.guarantees else Kind.SEND

    def published(self, message: Message, *, at_ms: float | None = None) -> None:
        """The application of the message's sender publishes it."""
        to = frozenset(self._setup.groups.get(message.group, ()))
        self._messages[message.id] = Sent(message.sender, message.group, to)
        self._events.append(Event(message.sender, self._publish, message.id, at_ms))

    def carried_out(self, process: str, effect: Effect, *, at_ms: float | None = None) -> None:
        """A process has carried an effect out; those that no application sees are passed over."""
        match effect:
            case Deliver(message):
                self._events.append(Event(process, Kind.RECEIVE, message.id, at_ms))
            case Addressed(message, members):
                # FIFO order is among messages with the same members, so these are a group to its checker.
                group = f"{message.group}: {', '.join(members)}"
                self._messages[message.id] = Sent(message.sender, group, frozenset(members))
            case Scheduled(message):
                self._events.append(Event(process, Kind.SEND, message.id, at_ms))
            case Gap():
                self._events.append(Event(process, Kind.GAP, at_ms=at_ms))
            case Install(number, members):
                self._events.append(Event(process, Kind.VIEW, at_ms=at_ms, view=number, members=members))
            case Enter():
                self._events.append(Event(process, Kind.ENTER, at_ms=at_ms))
            case Halt(left=True):
                self._events.append(Event(process, Kind.LEAVE, at_ms=at_ms))
            case Halt():
                self.crashed(process, at_ms=at_ms)

    def asked(self, process: str, *, joins: bool) -> None:
        """The application of a process asks to join, or to leave."""
        self._wishes[process] = joins

    def unmet(self, process: str, what: str) -> None:
        """A process asked for something that it never got."""
        self._unmet.append((process, what))

    def crashed(self, process: str, *, at_ms: float | None = None) -> None:
        """A process does nothing any more."""
        self._faulty.add(process)
        self._events.append(Event(process, Kind.CRASH, at_ms=at_ms))

    def record(self) -> Record:
        """Return the record of the run so far."""
        return Record(
            tuple(self._events),
            dict(self._messages),
            frozenset(self._faulty),
            self._late,
            self._setup.processes,
            dict(self._wishes),
            tuple(self._unmet),
        )
