"""Total and causal order over overlapping groups, each with a sequencer of its own (Newtop, asymmetric).

A group's sequencer (its first member) stamps the group's messages with its logical clock, which exceeds all stamps that
it has seen, and sends them to the members. A member delivers in the order of (stamp, group), the first message once it
has, from the sequencer of each of its groups, a stamp that is no smaller. The stamps of one group never decrease, over
FIFO links, so nothing earlier can come.

A process that publishes to one group and then to another delays the second until it has delivered the first: the other
sequencer could otherwise stamp it lower. Messages to one group need not wait for each other, their link is FIFO.

A sequencer without messages would hold up the members of its group. Newtop sends null messages from time to time; here
a member that waits asks the sequencer for a stamp (a nudge), so that a quiet system is quiet.

Source: Kshemkalyani 2008, §6.9, fixed sequencer algorithms (Newtop's asymmetric algorithm).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from classic.protocols.process import CAUSALLY, TOTALLY, Message, Process, unknown
from classic.protocols.setup import NO_FAULTS, Assumption


@dataclass(frozen=True, slots=True)
class Request:
    """To the sequencer: a message and its sender's clock."""

    message: Message
    clock: int


@dataclass(frozen=True, slots=True)
class Stamped:
    """From the sequencer; no message is a null, which only says how far the stamps of the group have come."""

    group: str
    stamp: int
    message: Message | None


@dataclass(frozen=True, slots=True)
class Nudge:
    """To the sequencer: the sender of this waits for a stamp of the group that is no smaller."""

    group: str
    stamp: int


class NewtopAsymmetric(Process):
    """A sequencer a group."""

    title = "total order over overlapping groups, a sequencer each (Newtop, asymmetric)"
    source = "Kshemkalyani 2008, §6.9, Newtop's asymmetric algorithm"
    guarantees = CAUSALLY | TOTALLY
    assumes = NO_FAULTS | {Assumption.CLOSED_GROUPS, Assumption.FIFO_LINKS}

    def on_start(self) -> None:
        self.clock = 0
        self.heard = dict.fromkeys(self.setup.groups_of(self.name), 0)
        """The last stamp of each group."""
        self.held: dict[tuple[int, str], Message] = {}
        self.nudged = dict(self.heard)
        self.outstanding: set[str] = set()
        """This process' own messages that it has not delivered yet; all are to one group."""
        self.delayed: deque[Message] = deque()
        self.last_group = ""
        self.stamped: dict[str, int] = dict(self.heard)
        """As a sequencer: the last stamp of each group."""

    def on_publish(self, message: Message) -> None:
        self.delayed.append(message)
        self._send_what_need_not_wait()

    def on_receive(self, source: str, packet: object) -> None:
        match packet:
            case Request(message, clock):
                self._stamp(message.group, clock, message)
            case Nudge(group, stamp):
                if self.stamped[group] < stamp:
                    self._stamp(group, stamp, None)
            case Stamped(group, stamp, message):
                self.clock = max(self.clock, stamp)
                self.heard[group] = stamp
                if message is not None:
                    self.held[stamp, group] = message
                self._deliver_what_is_certain()
            case _:
                raise unknown(packet)

    def _stamp(self, group: str, clock: int, message: Message | None) -> None:
        self.clock = max(self.clock, clock) + 1
        self.stamped[group] = self.clock
        self.send_all(self.setup.members(group), Stamped(group, self.clock, message))

    def _deliver_what_is_certain(self) -> None:
        while self.held:
            stamp, _ = first = min(self.held)
            silent = [group for group, heard in self.heard.items() if heard < stamp]
            for group in silent:
                if self.nudged[group] < stamp:
                    self.nudged[group] = stamp
                    self.send(self.setup.members(group)[0], Nudge(group, stamp))
            if silent:
                return
            message = self.held.pop(first)
            self.deliver(message)
            self.outstanding.discard(message.id)
            self._send_what_need_not_wait()

    def _send_what_need_not_wait(self) -> None:
        while self.delayed and (not self.outstanding or self.delayed[0].group == self.last_group):
            message = self.delayed.popleft()
            self.last_group = message.group
            self.outstanding.add(message.id)
            self.clock += 1
            self.send(self.members(message)[0], Request(message, self.clock))
