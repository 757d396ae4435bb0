"""Total order by a sequencer that numbers, while the data goes directly.

A sender sends its message to the whole group; the group's sequencer answers each message that it receives by sending
its number, 1, 2, 3, …, to the group. A member delivers a message when it has both the message and its number, in the
order of the numbers. The large thing travels one hop and only the small one two; in exchange there are nearly twice as
many packets.

The order is total over any links. It is causal only over FIFO links: a sender's two messages can overtake each other on
their way to the sequencer, which is what `fifo_total` and `causal_total` mend.

Source: Gupta 2019, "Sequencer-based Approach"; Kshemkalyani 2008, §6.9, fixed sequencer algorithms. Two hops for the
number, and 2(n − 1) messages where the sequencer is a member other than the sender.
"""

from __future__ import annotations

from dataclasses import dataclass

from classic.protocols.numbered import Number
from classic.protocols.process import TOTALLY, Message, Process, unknown
from classic.protocols.setup import NO_FAULTS, Assumption


@dataclass(frozen=True, slots=True)
class Data:
    """A message, without a number yet."""

    message: Message


class Sequencer(Process):
    """The group's first member numbers its messages."""

    title = "total order by a sequencer that numbers"
    source = "Gupta 2019 Sequencer-based Approach; Kshemkalyani 2008, §6.9"
    guarantees = TOTALLY
    assumes = NO_FAULTS | {Assumption.ONE_GROUP}

    def on_start(self) -> None:
        self.numbered = 0
        self.delivered = 0
        self.data: dict[str, Message] = {}
        self.numbers: dict[int, str] = {}

    def on_publish(self, message: Message) -> None:
        self.send_all(self.members(message), Data(message))

    def on_receive(self, source: str, packet: object) -> None:
        match packet:
            case Data(message):
                self.data[message.id] = message
                if self.name == self.members(message)[0]:
                    self.number(message)
            case Number(message_id, number):
                self.numbers[number] = message_id
            case _:
                raise unknown(packet)
        while (following := self.numbers.get(self.delivered + 1)) in self.data:
            self.delivered += 1
            self.deliver(self.data.pop(following))

    def number(self, message: Message) -> None:
        """As the sequencer, give a message the next number."""
        self.numbered += 1
        self.send_all(self.members(message), Number(message.id, self.numbered))
