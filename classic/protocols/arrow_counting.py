"""Total and causal order by counting along arrows: the arrow multicast is its truncated form.

Swaps find their predecessors as in `arrow`, but a message is multicast with a number instead of its predecessor's id.
The number is mobile: the publisher of the last numbered message has it, or waits for it. A swap that ends at a sink
becomes the successor of the sink's message, and gets the number after it once that message has its own, from where it
is sent to the successor's publisher. So a message waits until all before it are counted, one after the other, where the
swap version multicasts them all at once.

Source: Herlihy 2000, §4, "truncated version of a distributed counting based protocol".
"""

from __future__ import annotations

from classic.protocols.arrow import Swap
from classic.protocols.numbered import Data, Number, Numbered
from classic.protocols.process import CAUSALLY, TOTALLY, Message, Process, unknown
from classic.protocols.setup import NO_FAULTS, Assumption
from classic.protocols.swap import NOTHING, towards


class ArrowCounting(Process):
    """Arrows that lead to the process that has, or waits for, the number."""

    title = "total order by distributed counting (arrow)"
    source = "Herlihy 2000, §4"
    guarantees = CAUSALLY | TOTALLY
    assumes = NO_FAULTS | {Assumption.BROADCAST, Assumption.SPANNING_TREE}

    def on_start(self) -> None:
        self.arrow = towards(self.setup.tree, self.setup.processes[0])[self.name]
        self.value = NOTHING
        self.numbers: dict[str, int] = {NOTHING: 0} if self.arrow == self.name else {}
        """Messages of this process whose number is known and whose successor is not."""
        self.successors: dict[str, Message] = {}
        """Messages of this process whose successor is known and whose number is not."""
        self.delivery = Numbered()

    def on_publish(self, message: Message) -> None:
        self._go_along(Swap(message), came_from=self.name)
        self.value = message.id

    def on_receive(self, source: str, packet: object) -> None:
        match packet:
            case Swap():
                self._go_along(packet, came_from=source)
            case Number(message_id, number):
                self.numbers[message_id] = number
                self._count(message_id)
            case Data(message, number):
                self.on_data(message, number)
            case _:
                raise unknown(packet)

    def on_data(self, message: Message, number: int) -> None:
        """A numbered message has come."""
        for ready in self.delivery.add(message, number):
            self.deliver(ready)

    def _go_along(self, swap: Swap, *, came_from: str) -> None:
        if self.arrow == self.name:
            self.successors[self.value] = swap.message
            self._count(self.value)
        else:
            self.send(self.arrow, swap)
        self.arrow = came_from

    def _count(self, message_id: str) -> None:
        """Number the successor of a message as soon as both the message's number and the successor are known."""
        if message_id in self.numbers and message_id in self.successors:
            number = self.numbers.pop(message_id) + 1
            successor = self.successors.pop(message_id)
            self.multicast(successor, number)
            self.send(successor.sender, Number(successor.id, number))

    def multicast(self, message: Message, number: int) -> None:
        """Send a numbered message to all."""
        self.send_all(self.members(message), Data(message, number))
