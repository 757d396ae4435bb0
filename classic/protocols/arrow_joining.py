"""Total and causal order by path reversal, in a tree that processes join and leave while messages are in flight.

Arrows are those of `arrow`: a joining process points to the member that links it. A leaving process names as heir the
neighbour to which its own arrow leads. If it is the sink, any neighbour is the heir, and becomes the sink with its
value. A swap of the heir in flight to a sink that left ends at the heir, at that value. `tree_members` has the rest.
Messages go over the tree. So a multicast takes n − 1 packets, and as many hops as the tree is wide; a sender that knows
all members would take one.

Source: Herlihy 2000, §4 and §6.2.
"""

from __future__ import annotations

from classic.protocols.arrow import Swap
from classic.protocols.process import CAUSALLY, TOTALLY, Message, unknown
from classic.protocols.setup import NO_FAULTS, Assumption
from classic.protocols.tree_members import TreeMembers


class ArrowJoining(TreeMembers):
    """Arrows in a tree that changes."""

    title = "total order by distributed swap (arrow), with joining and leaving"
    source = "Herlihy 2000, §4, §6.2"
    guarantees = CAUSALLY | TOTALLY
    assumes = NO_FAULTS | {Assumption.ONE_GROUP, Assumption.FIFO_LINKS}

    def on_message(self, message: Message) -> None:
        self._go_along(Swap(message), came_from=self.name)
        self.value = message.id

    def on_swap_packet(self, source: str, packet: object) -> None:
        match packet:
            case Swap():
                self._go_along(packet, came_from=source)
            case _:
                raise unknown(packet)

    def take_over(self, value: str, swaps: list[object]) -> None:
        for swap in swaps:
            # Its arrow has turned away already, to where the swap came from.
            assert isinstance(swap, Swap)
            self.multicast(swap.message, predecessor=value)
        if not swaps:
            self.value = value

    def _go_along(self, swap: Swap, *, came_from: str) -> None:
        if self.link == self.name:
            self.multicast(swap.message, predecessor=self.value)
        else:
            self.tell(self.link, swap)
        self.link = came_from
