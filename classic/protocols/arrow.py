"""Total and causal order by path reversal: the arrow multicast.

Every process of a tree has an arrow, to a neighbour or to itself; following the arrows leads to a sink. A process that
publishes sends swap(m) along its arrow and turns the arrow to itself: it is a sink now, whose value is m. Each process
on the way forwards the swap along its own arrow and turns that back to where the swap came from, so that later swaps
are led to m's publisher. At a sink the swap ends: the sink's value is m's predecessor, and m is multicast with it at
once, without waiting for anything.

Concurrent swaps deflect each other: the one that passes second finds the arrow turned, and ends at the first one's
publisher, as its successor. A swap crosses at most as many links as the tree's diameter, and where one process alone
publishes none at all: that is its locality. A process may be a sink several times over; the value is always its latest.

The source has FIFO links. Arrows do without: a link never has two swaps on it, because a process that has sent a swap
over it points away from it until the next swap comes over it from the other side.

A process joins at any process of the tree, by pointing its arrow there (`joining`). To leave, it locks its neighbours;
when the links to them are drained it hands the sink's place, if it has it, to the neighbour that takes over its other
neighbours (`leaving`). Both concern neighbours only.

Source: Herlihy 2000, §4 and §6.2. At most diameter hops to the predecessor, and one for the multicast.
"""

from __future__ import annotations

from dataclasses import dataclass

from classic.protocols.process import CAUSALLY, TOTALLY, Message, Process, unknown
from classic.protocols.setup import NO_FAULTS, Assumption
from classic.protocols.swap import NOTHING, Chain, Follows, towards


@dataclass(frozen=True, slots=True)
class Swap:
    """A message in search of its predecessor."""

    message: Message


class Arrow(Process):
    """Arrows that lead to the last publisher; at first, to the first process."""

    title = "total order by distributed swap (arrow)"
    source = "Herlihy 2000, §4"
    guarantees = CAUSALLY | TOTALLY
    assumes = NO_FAULTS | {Assumption.BROADCAST, Assumption.SPANNING_TREE}

    def on_start(self) -> None:
        self.arrow = towards(self.setup.tree, self.setup.processes[0])[self.name]
        self.value = NOTHING
        """The last message of this process; of a meaning only while the arrow points to itself."""
        self.chain = Chain()

    def on_publish(self, message: Message) -> None:
        self._go_along(Swap(message), came_from=self.name)
        self.value = message.id

    def on_receive(self, source: str, packet: object) -> None:
        match packet:
            case Swap():
                self._go_along(packet, came_from=source)
            case Follows():
                for message in self.chain.add(packet):
                    self.deliver(message)
            case _:
                raise unknown(packet)

    def _go_along(self, swap: Swap, *, came_from: str) -> None:
        """Forward a swap along the arrow, or end it here; either way the arrow turns to where the swap came from."""
        if self.arrow == self.name:
            self.send_all(self.members(swap.message), Follows(swap.message, self.value))
        else:
            self.send(self.arrow, swap)
        self.arrow = came_from


@dataclass(frozen=True, slots=True)
class Arrows:
    """The directory as it stands while the links around a place are drained: tree edges, arrows and sinks' values."""

    tree: tuple[tuple[str, str], ...]
    arrow: dict[str, str]
    value: dict[str, str]

    def neighbours(self, process: str) -> list[str]:
        """The processes that a process is linked to in the tree."""
        return [b if a == process else a for a, b in self.tree if process in (a, b)]

    def joining(self, process: str, *, at: str) -> Arrows:
        """Return the directory with a new leaf; only ``at`` has to know."""
        return Arrows((*self.tree, (at, process)), {**self.arrow, process: at}, dict(self.value))

    def leaving(self, process: str) -> Arrows:
        """Return the directory without a process; only its neighbours are touched. The last one cannot leave."""
        heir, *others = sorted(self.neighbours(process), key=lambda other: other != self.arrow[process])
        arrow, value = dict(self.arrow), dict(self.value)
        was_sink = arrow.pop(process) == process
        last = value.pop(process, NOTHING)
        if was_sink:
            # All neighbours' arrows lead here. The heir becomes the sink in this one's place.
            arrow[heir], value[heir] = heir, last
        elif arrow[heir] == process:
            raise AssertionError(f"a swap is under way between {process} and {heir}: the link was not drained")
        for other in others:
            if arrow[other] == process:
                arrow[other] = heir
        kept = tuple(edge for edge in self.tree if process not in edge)
        return Arrows((*kept, *((heir, other) for other in others)), arrow, value)

    def end_of(self, process: str) -> str:
        """The sink that a swap of a process would end at."""
        while self.arrow[process] != process:
            process = self.arrow[process]
        return process
