"""Uniform total order: a leader appends to a log, and what a majority has is delivered; wrong suspicions do no harm.

A sender sends its message to the group. The leader appends it to its log and sends the entry, with its place, to all.
Each member appends it as well and tells all how long its log is. An entry that is in the logs of more than half of the
members is delivered, after all before it.

Leadership goes round: in term t the leader is member t modulo n. A member that suspects its leader moves to the next
term whose leader it does not suspect, and tells all; those that are behind follow. A member that moves to a term
promises by this to take nothing of earlier ones any more, and sends its log to the new leader. With the logs of a
majority, the leader takes the one of the latest term, and of these the longest; it sends it to all, who replace theirs,
and then appends what it has received and the log lacks.

Why nothing delivered is lost: what was delivered in a term was in the logs of a majority, any majority of a later term
has one of its members, and a log of a later term extends it by the same argument. Over FIFO links a log is always a
prefix of its leader's, so no entry is missing in the middle. Why the order is causal: a member that answers a message
has delivered it, so that each later leader's log has it before the answer arrives. Wrong suspicions cost changes of
leader, and nothing else; it is only needed that those who crash are suspected in the end, and that a majority stays.

A suspicion is never known to be wrong, since a packet may have been sent before a crash that is known already. But if
each member is suspected by one that is alive, terms would pass on for ever. So only the first term of a suspect is left
at once. Others bring this process to later terms of it: in each it is given twice the time of the one before, and left
after a time in which nothing came of it, if something waits for it.

Logs are sent whole with each change of leader: snapshots, which would keep them short, are left out.

Source: Oki and Liskov 1988, "Viewstamped Replication", without recovery of the crashed; uniform properties as in
Kshemkalyani 2008, §6.10. Three hops; n² − 1 messages a multicast of a member other than the leader.
"""

from __future__ import annotations

from dataclasses import dataclass

from classic.protocols.process import CAUSALLY, TOTALLY, Alarm, Guarantee, Message, Process, unknown
from classic.protocols.setup import Assumption

SILENCE_MS, SILENCE_MS_MAX = 50.0, 60_000.0
"""How long a suspected leader may be silent, when it leads for the second time, and at most."""


@dataclass(frozen=True, slots=True)
class Data:
    """A message without a place."""

    message: Message


@dataclass(frozen=True, slots=True)
class Entry:
    """The leader of a term has appended a message to its log, which then is of a length."""

    term: int
    length: int
    message: Message


@dataclass(frozen=True, slots=True)
class Has:
    """The sender's log of a term is of a length."""

    term: int
    length: int


@dataclass(frozen=True, slots=True)
class Moved:
    """The sender has moved to a term, and asks all that are behind to follow."""

    term: int


@dataclass(frozen=True, slots=True)
class Promise:
    """To the leader of a term: the sender takes nothing of earlier ones; its log, and the term that this is of."""

    term: int
    log_term: int
    log: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class Lead:
    """The log that a term begins with."""

    term: int
    log: tuple[Message, ...]


class Viewstamped(Process):
    """A log that a majority has."""

    title = "uniform total order by a log that a majority has"
    source = "Oki and Liskov 1988, Viewstamped Replication; Kshemkalyani 2008, §6.10"
    guarantees = (
        TOTALLY
        | CAUSALLY
        | {
            Guarantee.UNIFORM_AGREEMENT,
            Guarantee.UNIFORM_INTEGRITY,
            Guarantee.UNIFORM_FIFO,
            Guarantee.UNIFORM_CAUSAL,
            Guarantee.UNIFORM_TOTAL,
        }
    )
    assumes = frozenset(
        {
            Assumption.RELIABLE_LINKS,
            Assumption.FIFO_LINKS,
            Assumption.ONE_GROUP,
            Assumption.CRASHES_REPORTED,
            Assumption.MAJORITY_STAYS,
        }
    )

    def on_start(self) -> None:
        [self.group] = self.setup.groups.values()
        self.others = tuple(member for member in self.group if member != self.name)
        self.term = self.log_term = 0
        """The term that this process is in, and the one that its log is of: smaller while the term has not begun."""
        self.log: list[Message] = []
        self.known: set[str] = set()
        """The messages of the log."""
        self.waiting: dict[str, Message] = {}
        """Messages that are not in the log, in the order in which they came."""
        self.lengths: dict[tuple[int, str], int] = {}
        """Term and member → how long its log is."""
        self.promises: dict[str, Promise] = {}
        self.suspected: dict[str, float] = {}
        """Member that is suspected → how long it may be silent while it leads, in ms."""
        self.heard = 0
        """How many packets of the leader have come in this term."""
        self.watches = False
        """Whether an alarm is set for the leader of this term."""
        self.delivered = 0

    def leader(self, term: int) -> str:
        """Return the leader of a term."""
        return self.group[term % len(self.group)]

    def majority(self) -> int:
        """Return how many members are more than half of the group."""
        return len(self.group) // 2 + 1

    def on_publish(self, message: Message) -> None:
        self.send_all(self.group, Data(message))

    def on_suspicion(self, process: str) -> None:
        if process != self.name and process in self.group:
            self.suspected.setdefault(process, 0.0)
            self._watch_a_suspect()

    def on_alarm(self, alarm: str) -> None:
        term, heard = map(int, alarm.split())
        if term == self.term:
            self.watches = False
            if heard == self.heard and self._something_waits():
                self._leave()
            else:
                self._watch_a_suspect()

    def on_receive(self, source: str, packet: object) -> None:
        if source == self.leader(self.term):
            self.heard += 1
        match packet:
            case Data(message):
                if message.id not in self.known:
                    self.waiting[message.id] = message
                    self._append_waiting()
                    self._watch_a_suspect()
            case Moved(term) | Promise(term) | Lead(term) | Entry(term) if term < self.term:
                pass  # of a leader that this process has promised to leave behind
            case Moved(term):
                if term > self.term:
                    self._move_to(term)
            case Promise(term):
                if term > self.term:
                    self._move_to(term)
                if term == self.term > self.log_term:
                    self.promises[source] = packet
                    self._lead()
            case Lead(term, log):
                self._adopt(term, log)
            case Entry(term, length, message):
                self._append(message)
                self.lengths[term, source] = length
                self._say_how_long()
            case Has(term, length):
                self.lengths[term, source] = length
            case _:
                raise unknown(packet)
        self._deliver_what_a_majority_has()

    def _append_waiting(self) -> None:
        if self.name == self.leader(self.term) and self.log_term == self.term:
            for message in list(self.waiting.values()):
                self._append(message)
                entry = Entry(self.term, len(self.log), message)
                self.lengths[self.term, self.name] = len(self.log)
                self.send_all(self.others, entry)

    def _append(self, message: Message) -> None:
        self.log.append(message)
        self.known.add(message.id)
        self.waiting.pop(message.id, None)

    def _say_how_long(self) -> None:
        self.lengths[self.term, self.name] = len(self.log)
        self.send_all(self.others, Has(self.term, len(self.log)))

    def _deliver_what_a_majority_has(self) -> None:
        if self.log_term < self.term or self.name not in self.group:
            return
        lengths = sorted((self.lengths.get((self.term, m), 0) for m in self.group), reverse=True)
        for message in self.log[self.delivered : lengths[self.majority() - 1]]:
            self.delivered += 1
            self.deliver(message)

    def _watch_a_suspect(self) -> None:
        """If the leader of this term is suspected, leave it, at once or when it is silent for too long."""
        silence_ms = self.suspected.get(self.leader(self.term))
        if self.name not in self.group or silence_ms is None:
            return
        if not silence_ms:
            self._leave()
        elif self._something_waits() and not self.watches:
            self.watches = True
            self.effect(Alarm(f"{self.term} {self.heard}", silence_ms))

    def _something_waits(self) -> bool:
        return bool(self.waiting) or self.delivered < len(self.log) or self.log_term < self.term

    def _leave(self) -> None:
        suspect = self.leader(self.term)
        self.suspected[suspect] = min(max(2 * self.suspected[suspect], SILENCE_MS), SILENCE_MS_MAX)
        term = self.term + 1
        while self.leader(term) in self.suspected:
            term += 1
        self._move_to(term)

    def _move_to(self, term: int) -> None:
        self._begin(term)
        self.promises.clear()
        self.send_all(self.others, Moved(term))
        self.send(self.leader(term), Promise(term, self.log_term, tuple(self.log)))
        self._watch_a_suspect()

    def _begin(self, term: int) -> None:
        self.term, self.heard, self.watches = term, 0, False

    def _lead(self) -> None:
        if len(self.promises) >= self.majority():
            best = max(self.promises.values(), key=lambda promise: (promise.log_term, len(promise.log)))
            self.send_all(self.others, Lead(self.term, best.log))
            self._adopt(self.term, best.log)
            self._append_waiting()

    def _adopt(self, term: int, log: tuple[Message, ...]) -> None:
        is_new = term > self.term
        if is_new:
            self._begin(term)
        self.log_term = term
        self.known = {message.id for message in log}
        self.waiting = {m.id: m for m in (*self.log, *self.waiting.values()) if m.id not in self.known}
        self.log = list(log)
        self.lengths[term, self.leader(term)] = len(log)
        if is_new:
            self._watch_a_suspect()
        if self.name != self.leader(term):
            self._say_how_long()
