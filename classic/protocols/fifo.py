"""FIFO order by sequence numbers per sender.

A sender numbers what it publishes to a group 1, 2, 3, …; a receiver delivers, of each sender and group, the number that
follows the last one delivered and holds what is further ahead. A number that was delivered already is a repetition and
is dropped. Messages of different senders have no order, so a reply can be delivered before the message it answers.

Numbers are per group because a receiver that is not a member of all of a sender's groups would wait for ever for those
that it is not sent.

Source: CMU 15-440, "FIFO Multicast Protocol"; Gupta 2019, "FIFO Multicast: Updating Rules". A multicast to n processes
is n − 1 messages and one hop.
"""

from __future__ import annotations

from collections import defaultdict

from classic.protocols.numbered import Data
from classic.protocols.process import EVERYTHING_ONCE, Guarantee, Message, Process, unknown
from classic.protocols.setup import NO_FAULTS


class Fifo(Process):
    """Sequence numbers per sender."""

    title = "FIFO by sequence numbers"
    source = "CMU 15-440, FIFO Multicast Protocol; Gupta 2019, FIFO Multicast"
    guarantees = EVERYTHING_ONCE | {Guarantee.FIFO}
    assumes = NO_FAULTS

    def on_start(self) -> None:
        self.sent: dict[str, int] = defaultdict(int)
        self.delivered: dict[tuple[str, str], int] = defaultdict(int)
        self.held: dict[tuple[str, str, int], Message] = {}

    def on_publish(self, message: Message) -> None:
        self.sent[message.group] += 1
        self.send_all(self.members(message), Data(message, self.sent[message.group]))

    def on_receive(self, source: str, packet: object) -> None:
        if not isinstance(packet, Data):
            raise unknown(packet)
        stream = (packet.message.sender, packet.message.group)
        if packet.number > self.delivered[stream]:
            self.held[*stream, packet.number] = packet.message
        while (following := (*stream, self.delivered[stream] + 1)) in self.held:
            self.delivered[stream] += 1
            self.deliver(self.held.pop(following))
