"""Reliable multicast by re-sending: a receiver of a message sends it to all others before it delivers it.

A sender that crashes in the middle of a multicast has reached some and not others. If any of those that it reached is
correct, that one has passed the message on to all: either all correct processes deliver it, or none does. As a process
passes on before it delivers, this holds even for one that delivers and then crashes: agreement is uniform.

No order is promised; order and reliability are separate, and any ordering protocol can be laid over this one.

Source: Gupta 2019, "REALLY Implementing Reliable Multicast". At most (n − 1)² messages a multicast: n − 1
of the sender's, and n − 2 of each other member's.
"""

from __future__ import annotations

from dataclasses import dataclass

from classic.protocols.process import EVERYTHING_ONCE, Guarantee, Message, Process, unknown
from classic.protocols.setup import Assumption


@dataclass(frozen=True, slots=True)
class Data:
    """A message, from its sender or from another process."""

    message: Message


class Resending(Process):
    """Every process sends every message on, once."""

    title = "reliable multicast by re-sending"
    source = "Gupta 2019 Implementing Reliable Multicast; Kshemkalyani 2008, §6.10"
    guarantees = EVERYTHING_ONCE | {Guarantee.UNIFORM_AGREEMENT, Guarantee.UNIFORM_INTEGRITY}
    assumes = frozenset({Assumption.RELIABLE_LINKS})

    def on_start(self) -> None:
        self.seen: set[str] = set()

    def on_publish(self, message: Message) -> None:
        # A member receives its own message, and thereby sends it on.
        to = self.members(message)
        self.send_all([self.name] if self.name in to else to, Data(message))

    def on_receive(self, source: str, packet: object) -> None:
        if not isinstance(packet, Data):
            raise unknown(packet)
        message = packet.message
        if message.id in self.seen:
            return
        self.seen.add(message.id)
        self.send_all((m for m in self.members(message) if m not in (self.name, source)), packet)
        self.deliver(message)
