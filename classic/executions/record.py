"""The record of an execution: the events at some processes, from which every judgement is made.

An execution is the events of each process in their order, and which receive belongs to which send. Time is not part of
it: one event happened before another if there is a way from it to the other along processes and messages. A multicast
is one send and several receives.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from sequencing.errors import InvalidInput


class Kind(StrEnum):
    """The kind of an event."""

    PUBLISH = "publish"
    """The application asked for a message to be sent; recorded where the send takes place later."""
    SEND = "send"
    RECEIVE = "receive"
    """The application was given the message (delivery)."""
    GAP = "gap"
    """The application was told that messages may be missing here."""
    VIEW = "view"
    """A view was installed."""
    CRASH = "crash"
    ENTER = "enter"
    """The process became a member, where no view says so."""
    LEAVE = "leave"
    """The process is a member no longer, by its own wish."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event at a process; times where they are known: real time, and the process' own clock."""

    process: str
    kind: Kind
    message: str = ""
    at_ms: float | None = None
    local_ms: float | None = None
    view: int = 0
    members: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Sent:
    """The facts of a message: its sender, its group, and the members of the group."""

    sender: str
    group: str
    to: frozenset[str]


@dataclass(frozen=True, slots=True)
class Record:
    """The events of all processes, each after all that happened before it, and the messages.

    ``faulty``: processes that crashed or were removed. ``late``: processes that are no members at first.
    ``wishes``: for the processes that asked to join or to leave, whether they wanted to be members in the end.
    ``unmet``: processes, and what else they asked for and never got.
    """

    events: Sequence[Event]
    messages: Mapping[str, Sent]
    faulty: frozenset[str] = frozenset()
    late: frozenset[str] = frozenset()
    processes: tuple[str, ...] = field(default=())
    wishes: Mapping[str, bool] = field(default_factory=dict)
    unmet: Sequence[tuple[str, str]] = ()

    @classmethod
    def of(cls, lines: Mapping[str, Sequence[Event]], messages: Mapping[str, Sent]) -> Record:
        """Put the events of several processes into one order that respects happened-before.

        Raises `InvalidInput` where there is none: the events then are no execution, as one would precede itself.
        """
        faulty = frozenset(e.process for line in lines.values() for e in line if e.kind is Kind.CRASH)
        return cls(tuple(_interleave(lines, messages)), messages, faulty, processes=tuple(lines))

    @property
    def names(self) -> tuple[str, ...]:
        """The processes, those of the set-up first."""
        return tuple(dict.fromkeys((*self.processes, *(event.process for event in self.events))))

    @property
    def correct(self) -> tuple[str, ...]:
        """The processes that neither crashed nor were removed."""
        return tuple(name for name in self.names if name not in self.faulty)

    def deliveries(self) -> dict[str, list[str]]:
        """Return each process's deliveries, in its order."""
        found: dict[str, list[str]] = {name: [] for name in self.names}
        for event in self.events:
            if event.kind is Kind.RECEIVE:
                found[event.process].append(event.message)
        return found

    def between_processes(self) -> Iterator[Event]:
        """The sends and receives of messages that went from one process to another and arrived there.

        A process that is given its own message has not communicated, and what never arrived is not a message of the
        execution as the classes of Kshemkalyani 2008, §6.1 are defined.
        """
        arrived = {
            event.message
            for event in self.events
            if event.kind is Kind.RECEIVE and event.message in self.messages
            if self.messages[event.message].sender != event.process
        }
        for event in self.events:
            if event.message in arrived:
                sender = self.messages[event.message].sender
                if event.kind is Kind.SEND or (event.kind is Kind.RECEIVE and event.process != sender):
                    yield event


def _interleave(lines: Mapping[str, Sequence[Event]], messages: Mapping[str, Sent]) -> Iterator[Event]:
    sent: set[str] = set()
    at = dict.fromkeys(lines, 0)
    waiting: dict[str, list[str]] = {}
    ready = list(lines)
    for process in ready:
        line = lines[process]
        while at[process] < len(line):
            event = line[at[process]]
            if event.kind is Kind.RECEIVE and event.message in messages and event.message not in sent:
                waiting.setdefault(event.message, []).append(process)
                break
            at[process] += 1
            yield event
            if event.kind is Kind.SEND:
                sent.add(event.message)
                ready.extend(waiting.pop(event.message, ()))
    stuck = [f"{process} receives {message}" for message, held in waiting.items() for process in held]
    if stuck:
        raise InvalidInput(
            f"no execution: {_few(stuck)} before it can have been sent, as these events wait for each other"
        )


def _few(texts: Iterable[str]) -> str:
    found = list(texts)
    return "; ".join(found[:3]) + (" …" if len(found) > 3 else "")
