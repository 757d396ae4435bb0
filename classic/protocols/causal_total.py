"""Causal and total order for any groups and any links: a causal multicast below a sequencer.

Every message is multicast in causal order (`raynal_schiper_toueg`) to its group and to one process more, the sequencer.
The order in which messages are delivered at the sequencer is a total order that extends causality. The sequencer
sends each member the number of each message, among the messages for this member. Members deliver by these numbers.

All delivery orders are parts of one order, so they are total, and acyclic, over groups that overlap in any way; senders
may be outside. The price is the matrix on every message, and that the sequencer takes part in all groups.

Source: Gupta 2019, "Hybrid Variants" (layers: order, then reliability); Kshemkalyani 2008, §6.5.1.
"""

from __future__ import annotations

from collections import defaultdict

from classic.protocols.numbered import Number
from classic.protocols.process import CAUSALLY, TOTALLY, Message
from classic.protocols.raynal_schiper_toueg import RaynalSchiperToueg


class CausalTotal(RaynalSchiperToueg):
    """Raynal–Schiper–Toueg, numbered by the first process."""

    title = "causal and total order, any groups"
    source = "Gupta 2019, Hybrid Variants; Kshemkalyani 2008, §6.5.1"
    guarantees = CAUSALLY | TOTALLY

    def on_start(self) -> None:
        super().on_start()
        self.sequencer = self.setup.processes[0]
        self.numbered: dict[str, int] = defaultdict(int)
        self.last = 0
        self.data: dict[str, Message] = {}
        self.numbers: dict[int, str] = {}

    def members(self, message: Message) -> tuple[str, ...]:
        """The group and the sequencer."""
        group = self.setup.members(message.group)
        return group if self.sequencer in group else (self.sequencer, *group)

    def on_receive(self, source: str, packet: object) -> None:
        if isinstance(packet, Number):
            self.numbers[packet.number] = packet.message_id
            self._deliver_next()
        else:
            super().on_receive(source, packet)

    def deliver(self, message: Message) -> None:
        """The causal layer delivers: number the message, or wait for its number."""
        if self.name in self.setup.members(message.group):
            self.data[message.id] = message
        if self.name == self.sequencer:
            for member in self.setup.members(message.group):
                self.numbered[member] += 1
                self.send(member, Number(message.id, self.numbered[member]))
        self._deliver_next()

    def _deliver_next(self) -> None:
        while message := self.data.pop(self.numbers.get(self.last + 1, ""), None):
            self.last += 1
            super().deliver(message)
