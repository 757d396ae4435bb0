"""Lamport's happened-before between the sends and receives of a record, by vector clocks.

An event's vector counts, for each process, the events of it that happened before this one or are this one. One event
happened before another if, and only if, the other's vector counts it.

Source: Kshemkalyani 2008, Notation (the relation ≺ on events).
"""

from __future__ import annotations

from collections.abc import Iterator

from classic.executions.record import Event, Kind, Record


class HappenedBefore:
    """The events between processes, numbered in a linear order of them; `holds` compares two in constant time."""

    def __init__(self, record: Record) -> None:
        self.events: list[Event] = list(record.between_processes())
        self.send: dict[str, int] = {}
        self.receives: dict[str, list[int]] = {}
        self.line: dict[str, list[int]] = {}
        """Process → its events."""
        index = {process: i for i, process in enumerate(record.names)}
        clocks: dict[str, list[int]] = {process: [0] * len(index) for process in index}
        self._vectors: list[tuple[int, ...]] = []
        self._own: list[tuple[int, int]] = []
        for number, event in enumerate(self.events):
            clock = clocks[event.process]
            if event.kind is Kind.SEND:
                self.send[event.message] = number
                self.receives[event.message] = []
            else:
                self.receives[event.message].append(number)
                clock[:] = map(max, clock, self._vectors[self.send[event.message]])
            clock[index[event.process]] += 1
            self.line.setdefault(event.process, []).append(number)
            self._vectors.append(tuple(clock))
            self._own.append((index[event.process], clock[index[event.process]]))

    @property
    def messages(self) -> list[str]:
        """The messages, in the order of their sends."""
        return list(self.send)

    def pairs(self) -> Iterator[tuple[int, int]]:
        """Every send with each of its receives."""
        for message, send in self.send.items():
            for receive in self.receives[message]:
                yield send, receive

    def holds(self, one: int, other: int) -> bool:
        """Say whether one event happened before another."""
        process, count = self._own[one]
        return one != other and self._vectors[other][process] >= count
