"""FIFO and total order: a sequencer that numbers each sender's messages in their order.

Over links that are not FIFO a sequencer (`sequencer`) may see a sender's second message first, and number it first. So
the sender numbers its messages too, and the sequencer holds back what is ahead.

In one group this is causal as well. m → m' means that m' was published by m's sender later (FIFO), or by a process that
had delivered m, and so had m before m' in its order, which is the order of all (total); chains follow.
With several groups it is not, because a chain can lead through processes that deliver neither; `causal_total` is.

Source: Gupta 2019, "Hybrid Variants".
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from classic.protocols.process import CAUSALLY, TOTALLY, Message
from classic.protocols.sequencer import Data, Sequencer


@dataclass(frozen=True, slots=True)
class Ordered:
    """A message and its number among its sender's."""

    message: Message
    of_sender: int


class FifoTotal(Sequencer):
    """A sequencer that keeps each sender's order."""

    title = "FIFO and total order"
    source = "Gupta 2019, Hybrid Variants"
    guarantees = CAUSALLY | TOTALLY

    def on_start(self) -> None:
        super().on_start()
        self.published = 0
        self.numbered_of: dict[str, int] = defaultdict(int)
        self.early: dict[tuple[str, int], Message] = {}

    def on_publish(self, message: Message) -> None:
        self.published += 1
        self.send_all(self.members(message), Ordered(message, self.published))

    def on_receive(self, source: str, packet: object) -> None:
        if isinstance(packet, Ordered):
            if self.name == self.members(packet.message)[0]:
                self.early[packet.message.sender, packet.of_sender] = packet.message
            super().on_receive(source, Data(packet.message))
        else:
            super().on_receive(source, packet)

    def number(self, message: Message) -> None:
        sender = message.sender
        while ready := self.early.pop((sender, self.numbered_of[sender] + 1), None):
            self.numbered_of[sender] += 1
            super().number(ready)
