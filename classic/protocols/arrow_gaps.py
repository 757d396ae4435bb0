"""Total order with gaps: no wait is endless, and a possible loss is announced in its place.

The multicast below an ordering layer can lose a message for good. To hold everything behind it back is one answer; the
other is to continue and announce to the application: "something may be missing here". If two members deliver m₀ and m₂,
they do so in the same order, and a member that did not have m₁ between them announced a gap.

For that a receiver must know that what it has comes after what it lacks. A predecessor's id does not say so when two
pieces of the chain are missing: which piece is first? Numbers do, so this is built on counting (`arrow_counting`). When
a number has been missing for a while, the receiver announces the gap and goes on with the next number that it has; what
comes later than its gap is dropped.

Source: Herlihy 2000, §6.3.
"""

from __future__ import annotations

from classic.protocols.arrow_counting import ArrowCounting
from classic.protocols.numbered import Data
from classic.protocols.process import Alarm, Gap, Guarantee, Message
from classic.protocols.setup import Assumption

PATIENCE_MS = 400.0
"""Longer than packets are late in any but the worst moments: giving up early costs a message, late only time."""


class ArrowGaps(ArrowCounting):
    """Arrow counting over a multicast that loses messages."""

    title = "total order with gaps (arrow counting over a lossy multicast)"
    source = "Herlihy 2000, §6.3"
    guarantees = frozenset({Guarantee.INTEGRITY, Guarantee.TOTAL, Guarantee.ACYCLIC, Guarantee.GAPS})
    assumes = ArrowCounting.assumes - {Assumption.RELIABLE_LINKS}

    def multicast(self, message: Message, number: int) -> None:
        self.send_all(self.members(message), Data(message, number), lossy=True)

    def on_data(self, message: Message, number: int) -> None:
        if number > self.delivery.last:
            super().on_data(message, number)
            self._wait_for_the_next()

    def on_alarm(self, alarm: str) -> None:
        if int(alarm) != self.delivery.last + 1:
            return  # the missing message has arrived, or was given up
        following = min(self.delivery.held)
        self.effect(Gap())
        self.delivery.last = following - 1
        for ready in self.delivery.add(self.delivery.held[following], following):
            self.deliver(ready)
        self._wait_for_the_next()

    def _wait_for_the_next(self) -> None:
        if self.delivery.held:
            self.effect(Alarm(str(self.delivery.last + 1), PATIENCE_MS))
