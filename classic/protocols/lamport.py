"""Total and causal order by Lamport's timestamps and acknowledgements.

Messages are delivered in the order of (timestamp, sender). A process delivers the first one when it knows that no
process can still send one before it: over FIFO links, when every member has sent it a timestamp that is no smaller. So
that it hears, each member acknowledges each message to all. Publishing after delivering takes a larger timestamp, hence
the order is causal.

Source: Kshemkalyani 2008, §6.9, communication history-based algorithms. Two hops; n − 1 messages and n(n − 1)
acknowledgements, n² − 1 together, for a broadcast.
"""

from __future__ import annotations

from dataclasses import dataclass

from classic.protocols.process import CAUSALLY, TOTALLY, Message, Process, unknown
from classic.protocols.setup import NO_FAULTS, Assumption


@dataclass(frozen=True, slots=True)
class Data:
    """A message and its timestamp."""

    message: Message
    timestamp: int


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """The sender's clock has come so far."""

    timestamp: int


class Lamport(Process):
    """Timestamps, acknowledged by all to all."""

    title = "total order by Lamport's timestamps"
    source = "Kshemkalyani 2008, §6.9, communication history-based algorithms"
    guarantees = CAUSALLY | TOTALLY
    assumes = NO_FAULTS | {Assumption.CLOSED_GROUPS, Assumption.ONE_GROUP, Assumption.FIFO_LINKS}

    def on_start(self) -> None:
        [self.group] = self.setup.groups.values()
        self.clock = 0
        self.heard = dict.fromkeys(self.group, 0)
        """The last timestamp of each member."""
        self.held: dict[tuple[int, str], Message] = {}

    def on_publish(self, message: Message) -> None:
        self.clock += 1
        self.send_all(self.group, Data(message, self.clock))

    def on_receive(self, source: str, packet: object) -> None:
        match packet:
            case Data(message, timestamp):
                self.held[timestamp, source] = message
                self.clock = max(self.clock, timestamp) + 1
                self.send_all(self.group, Acknowledge(self.clock))
            case Acknowledge(timestamp):
                self.clock = max(self.clock, timestamp)
            case _:
                raise unknown(packet)
        self.heard[source] = timestamp
        while self.held and min(self.held)[0] <= min(self.heard.values()):
            self.deliver(self.held.pop(min(self.held)))
