"""Causal order of messages to any sets of processes, with as little control information as there can be.

A later message must carry of an earlier one, M sent by i as its a-th, its destinations: "d ∈ M(i,a).dests". This
needs to be remembered in M's causal future only as long as

 I.  it is not known that M was delivered to d, and
 II. it is not known that another message was sent to d in M's causal future (a destination of that one delivers it
 after
     M, by transitivity),

and the algorithm forgets it at the first event at which either fails. That is what makes it optimal: typical logs hold
a few entries instead of Raynal–Schiper–Toueg's n².

The absence of an entry is information, too. An entry (i, a) whose destinations are empty means: delivered, or sure
to be delivered in order, everywhere. Of such entries only the latest of a sender is kept, as it implies the older ones.
So when a log and a message are merged, an entry that one side has and the other side must have had and dropped is out
of date and is dropped too (rule 2d).

Source: Kshemkalyani 2008, §6.5.2, Algorithm 6.3. Departure: rule 1b cleans the list that a message carries in one pass,
so whether an entry is the latest of its sender is judged on the whole list.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from classic.protocols.process import CAUSALLY, Message, Process, unknown
from classic.protocols.setup import NO_FAULTS

Log = dict[tuple[str, int], frozenset[str]]
"""(sender, its clock) → those of the message's destinations that still matter."""
Entry = tuple[str, int, tuple[str, ...]]
"""The same in flight: sender, clock, destinations in the order of their names."""


@dataclass(frozen=True, slots=True)
class Data:
    """A message, its sender's clock, whom it is for, and what this destination must know of the past."""

    message: Message
    clock: int
    to: tuple[str, ...]
    log: tuple[Entry, ...]


class KshemkalyaniSinghal(Process):
    """Causal multicast with minimal logs."""

    title = "causal order with minimal logs (Kshemkalyani–Singhal)"
    source = "Kshemkalyani 2008, §6.5.2, Algorithm 6.3"
    guarantees = CAUSALLY
    assumes = NO_FAULTS

    def on_start(self) -> None:
        self.clock = 0
        self.last_delivered = dict.fromkeys(self.setup.processes, 0)
        """SR: the clock of the last message of each process that was delivered here."""
        self.log: Log = {(process, 0): frozenset() for process in self.setup.processes}
        self.held: list[Data] = []

    def on_publish(self, message: Message) -> None:
        self.clock += 1
        to = self.members(message)
        for destination in to:
            self.send(destination, Data(message, self.clock, to, _entries(self._log_for(destination, to))))
        self.log = without_empty({key: dests - set(to) for key, dests in self.log.items()})
        self.log[self.name, self.clock] = frozenset(to)

    def on_receive(self, source: str, packet: object) -> None:
        if not isinstance(packet, Data):
            raise unknown(packet)
        self.held.append(packet)
        while ready := next((data for data in self.held if self._past_is_here(data)), None):
            self.held.remove(ready)
            self.deliver(ready.message)
            sender = ready.message.sender
            self.last_delivered[sender] = ready.clock
            carried: Log = {(s, t): frozenset(dests) for s, t, dests in ready.log}
            carried[sender, ready.clock] = frozenset(ready.to)
            carried = {key: dests - {self.name} for key, dests in carried.items()}
            self.log = without_empty(merge(self.log, carried))

    def _log_for(self, destination: str, to: Iterable[str]) -> Log:
        """Return the log that the message carries to a destination; it leaves out the other ones, by constraint II."""
        others = frozenset(to) - {destination}
        return without_empty({key: dests - others for key, dests in self.log.items()})

    def _past_is_here(self, data: Data) -> bool:
        return all(clock <= self.last_delivered[sender] for sender, clock, dests in data.log if self.name in dests)


def merge(log: Log, carried: Log) -> Log:
    """Return the entries of a log and of a message's log that are not out of date (rule 2d)."""
    latest_here, latest_there = _latest(log), _latest(carried)
    # An entry that one side lacks, although it has a later message of the sender, had become empty in its past.
    kept = {
        key: dests & carried.get(key, dests)
        for key, dests in log.items()
        if key in carried or key[1] > latest_there.get(key[0], -1)
    }
    news = {key: dests for key, dests in carried.items() if key not in log and key[1] > latest_here.get(key[0], -1)}
    return kept | news


def without_empty(log: Log) -> Log:
    """Leave out the entries without destinations but for the latest of each sender."""
    latest = _latest(log)
    return {(s, t): dests for (s, t), dests in log.items() if dests or latest[s] == t}


def _latest(log: Log) -> dict[str, int]:
    latest: dict[str, int] = {}
    for sender, clock in log:
        latest[sender] = max(clock, latest.get(sender, -1))
    return latest


def _entries(log: Log) -> tuple[Entry, ...]:
    return tuple((sender, clock, tuple(sorted(dests))) for (sender, clock), dests in sorted(log.items()))
