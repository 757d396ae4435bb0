"""Total and causal order by a combining tree that processes join and leave while messages are in flight.

Runs combine as in `combining`. A joining process has the member that links it for parent. A leaving process first sends
the run that it holds to its parent, and names the parent as heir. The root names any child, which becomes the root with
its value. `tree_members` has the rest. Messages go over the tree.

Source: Herlihy 2000, §5 and §6.2: "similar, except that the sink issue does not arise"; for the root it does.
"""

from __future__ import annotations

from classic.protocols.combining import MEETING_MS, Swap
from classic.protocols.process import CAUSALLY, TOTALLY, Alarm, Message, unknown
from classic.protocols.setup import NO_FAULTS, Assumption, Setup
from classic.protocols.tree_members import TreeMembers


class CombiningJoining(TreeMembers):
    """Combining in a tree that changes."""

    title = "total order by distributed swap (combining tree), with joining and leaving"
    source = "Herlihy 2000, §5, §6.2"
    guarantees = CAUSALLY | TOTALLY
    assumes = NO_FAULTS | {Assumption.ONE_GROUP, Assumption.FIFO_LINKS}

    def __init__(self, name: str, setup: Setup) -> None:
        super().__init__(name, setup)
        self.waiting: Swap | None = None

    def on_message(self, message: Message) -> None:
        self._combine(Swap(message, message.id))

    def on_swap_packet(self, source: str, packet: object) -> None:
        match packet:
            case Swap():
                self._combine(packet)
            case _:
                raise unknown(packet)

    def on_alarm(self, alarm: str) -> None:
        self._send_on()

    def before_leaving(self) -> None:
        self._send_on()

    def take_over(self, value: str, swaps: list[object]) -> None:
        self.value = value
        for swap in swaps:
            assert isinstance(swap, Swap)
            self._combine(swap)
        self._send_on()  # later swaps than those, before any that arrive from now on

    def _combine(self, run: Swap) -> None:
        if self.link == self.name:
            self.multicast(run.first, predecessor=self.value)
            self.value = run.last
        elif self.waiting is None:
            self.waiting = run
            self.effect(Alarm("met", MEETING_MS))
        else:
            self.multicast(run.first, predecessor=self.waiting.last)
            self.waiting = Swap(self.waiting.first, run.last)

    def _send_on(self) -> None:
        """Send the run that waits to the parent, or end it here if this process has become the root meanwhile."""
        run, self.waiting = self.waiting, None
        if run is None:
            return
        if self.link == self.name:
            self._combine(run)
        else:
            self.tell(self.link, run)
