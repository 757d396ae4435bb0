"""Total order that survives crashes, by a sequencer in each view: the first member of the view.

Messages travel as in `virtual_synchrony`, but wait at their receivers. The view's first member, the sequencer, sends
the others the order in which it received them; a member delivers a message when it has the message, its place, and all
before it. A change of view ends the order of the old view for all alike, and the first of the next view's members is
its sequencer; no election is needed.

At a change of view each Flush has, beside the messages, the order as far as its sender knows it. The sequencer's links
are FIFO, so any two such orders are prefixes of one order, and the longest of them contains what any of the members
that stay has delivered. Everyone continues with this one, then with the messages that have no place, by sender and
number. A message that has a place, but that has reached none of those who stay, is left out.

What a process delivers shortly before it crashes is not bound by this: the sequencer may deliver two messages, and
crash before anyone knows their places; the others then deliver them in another order. Nor is causal order kept: someone
may answer such a message, and the answer gets to a member that the message never reached. Both need a delivery to wait
until enough others know of it, as in `viewstamped`. In return this one goes on for as long as one member is left.

Source: Gupta 2019, "Virtual Synchrony" and "Sequencer-based Approach". Two hops; 2(n − 1) messages a multicast of a
member other than the sequencer.
"""

from __future__ import annotations

from dataclasses import dataclass

from classic.protocols.process import Guarantee
from classic.protocols.virtual_synchrony import Data, VirtualSynchrony


@dataclass(frozen=True, slots=True)
class Place:
    """The next message in the order of a view: number ``number`` of ``sender``."""

    view: int
    sender: str
    number: int


class ViewSynchronousTotal(VirtualSynchrony):
    """Views and flushes, and a sequencer in each view."""

    title = "total order by a sequencer in each view"
    source = "Gupta 2019, Virtual Synchrony and Sequencer-based Approach"
    guarantees = VirtualSynchrony.guarantees | {Guarantee.TOTAL}

    def on_start(self) -> None:
        self.places: list[tuple[str, int]] = []
        """The order of this view's messages, as far as it is known."""
        self.passed = 0
        """How many of them are delivered."""
        super().on_start()

    def on_view(self) -> None:
        self.places.clear()
        self.passed = 0

    def on_data(self, data: Data) -> None:
        if self.name == self.members_now[0]:
            self.places.append((data.message.sender, data.number))
            place = Place(self.view, data.message.sender, data.number)
            self.send_all((m for m in self.members_now if m != self.name), place)
        self._deliver_in_order()

    def on_receive(self, source: str, packet: object) -> None:
        if not isinstance(packet, Place):
            super().on_receive(source, packet)
        elif packet.view > self.view:
            self.ahead.append((source, packet))
        elif packet.view == self.view and source == self.members_now[0] and not self.halted:
            self.places.append((packet.sender, packet.number))
            if not self._is_flushing():
                self._deliver_in_order()

    def order(self) -> tuple[tuple[str, int], ...]:
        return tuple(self.places)

    def _deliver_in_order(self) -> None:
        while self.passed < len(self.places) and (data := self.received.get(self.places[self.passed])):
            self.passed += 1
            self._deliver_once(data.message)
