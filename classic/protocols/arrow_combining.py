"""The hybrid of both swaps: combining trees whose root is a group that runs the arrow protocol.

A combining tree loads its root even when one process alone publishes. Arrows load no particular process, but make a
publisher's swap cross the tree for one message at a time. Here some connected processes, the core, are a virtual root:
swaps combine on their way to the nearest core process, and runs are swapped inside the core by arrows. A run is swapped
like a message: it seeks the predecessor of its first message, and leaves its last one as the value.

Source: Herlihy 2000, §6.1.
"""

from __future__ import annotations

from classic.protocols.combining import Combining, Swap
from classic.protocols.process import unknown
from classic.protocols.swap import Follows, towards


class ArrowCombining(Combining):
    """Combining outside of a core, arrows inside; the core is the first process and its neighbours."""

    title = "total order by distributed swap (combining below arrows)"
    source = "Herlihy 2000, §6.1"

    def on_start(self) -> None:
        super().on_start()
        first = self.setup.processes[0]
        to_first = towards(self.setup.tree, first)
        self.core = {first} | {process for process, parent in to_first.items() if parent == first}
        self.arrow = to_first[self.name]
        if self.name in self.core:
            self.parent = self.name

    def on_receive(self, source: str, packet: object) -> None:
        match packet:
            case Swap() if self.name in self.core and source in self.core:
                self._go_along(packet, came_from=source)
            case Swap() | Follows():
                super().on_receive(source, packet)
            case _:
                raise unknown(packet)

    def on_root(self, run: Swap) -> None:
        self._go_along(run, came_from=self.name)
        self.value = run.last

    def _go_along(self, run: Swap, *, came_from: str) -> None:
        if self.arrow == self.name:
            self.multicast(run.first, predecessor=self.value)
        else:
            self.send(self.arrow, run)
        self.arrow = came_from
