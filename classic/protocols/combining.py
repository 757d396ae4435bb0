"""Total and causal order by a combining tree.

Swaps go up a tree to its root, which keeps the value. Where two meet on the way they are combined: a run of messages
that are in order already, m₁ … mₖ, continues as one packet that names only the first, whose predecessor is sought, and
the last, which will be the value. When the runs m₁ … mₖ and m' meet, m' becomes the successor of mₖ and is multicast at
once. At the root the first message of the run gets the root's value as its predecessor and the last one becomes the
value.

So that runs meet, a process keeps a swap for a moment before it sends it on. The longer, the fewer packets reach the
root, and the later the first message of a run is known. Of two runs of which either could go first, the one that came
first does here: over FIFO links a publisher's messages then keep its order.

Source: Herlihy 2000, §5. At most depth hops to the predecessor, plus the waiting; without company every swap loads the
root.
"""

from __future__ import annotations

from dataclasses import dataclass

from classic.protocols.process import CAUSALLY, TOTALLY, Alarm, Message, Process, unknown
from classic.protocols.setup import NO_FAULTS, Assumption
from classic.protocols.swap import NOTHING, Chain, Follows, towards

MEETING_MS = 2.0
"""How long a swap waits for others: about a hop within a data centre, so that it costs no more than one level."""


@dataclass(frozen=True, slots=True)
class Swap:
    """A run of messages: the first one, which seeks its predecessor, and the id of the last."""

    first: Message
    last: str


class Combining(Process):
    """Runs combine on the way to the first process, the root."""

    title = "total order by distributed swap (combining tree)"
    source = "Herlihy 2000, §5"
    guarantees = CAUSALLY | TOTALLY
    assumes = NO_FAULTS | {Assumption.BROADCAST, Assumption.FIFO_LINKS, Assumption.SPANNING_TREE}

    def on_start(self) -> None:
        self.parent = towards(self.setup.tree, self.setup.processes[0])[self.name]
        self.value = NOTHING
        """At the root: the last message of all."""
        self.waiting: Swap | None = None
        self.chain = Chain()

    def on_publish(self, message: Message) -> None:
        self.on_swap(Swap(message, message.id))

    def on_receive(self, source: str, packet: object) -> None:
        match packet:
            case Swap():
                self.on_swap(packet)
            case Follows():
                for message in self.chain.add(packet):
                    self.deliver(message)
            case _:
                raise unknown(packet)

    def on_alarm(self, alarm: str) -> None:
        assert self.waiting is not None
        run, self.waiting = self.waiting, None
        self.send(self.parent, run)

    def on_swap(self, run: Swap) -> None:
        """End a run at the root; elsewhere combine it with the one that waits, or have it wait."""
        if self.parent == self.name:
            self.on_root(run)
        elif self.waiting is None:
            self.waiting = run
            self.effect(Alarm("met", MEETING_MS))
        else:
            self.multicast(run.first, predecessor=self.waiting.last)
            self.waiting = Swap(self.waiting.first, run.last)

    def on_root(self, run: Swap) -> None:
        """Swap the run's last message for the value."""
        self.multicast(run.first, predecessor=self.value)
        self.value = run.last

    def multicast(self, message: Message, *, predecessor: str) -> None:
        """Send a message and the id of its predecessor to all."""
        self.send_all(self.members(message), Follows(message, predecessor))
