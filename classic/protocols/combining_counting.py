"""Total and causal order by counting up and down a combining tree: the combining multicast is its truncated form.

Requests for numbers combine on their way up; the root assigns as many numbers as a request asks for. The answer comes
down the same way, split at each process into the parts that its own and its children's requests asked for. Only then
are the messages multicast, by their publishers. That is a round trip to the root, where the swap version multicasts all
but one of a run on the way up.

Source: Herlihy 2000, §5, "truncated counting protocol". Requests carry a serial number per link instead of locking
nodes, so that a request which comes too late to be combined need not wait for the answer to the one before.
"""

from __future__ import annotations

from dataclasses import dataclass

from classic.protocols.combining import MEETING_MS
from classic.protocols.numbered import Data, Numbered
from classic.protocols.process import CAUSALLY, TOTALLY, Alarm, Message, Process, unknown
from classic.protocols.setup import NO_FAULTS, Assumption
from classic.protocols.swap import towards


@dataclass(frozen=True, slots=True)
class Ask:
    """To the parent: a request for some numbers."""

    serial: int
    count: int


@dataclass(frozen=True, slots=True)
class Grant:
    """From the parent: the first of the numbers."""

    serial: int
    first: int


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a combined request: a message of this process, or a child's request."""

    count: int
    message: Message | None = None
    child: str = ""
    serial: int = 0


class CombiningCounting(Process):
    """Requests combine on the way to the first process, the root, and are split on the way back."""

    title = "total order by distributed counting (combining tree)"
    source = "Herlihy 2000, §5"
    guarantees = CAUSALLY | TOTALLY
    assumes = NO_FAULTS | {Assumption.BROADCAST, Assumption.FIFO_LINKS, Assumption.SPANNING_TREE}

    def on_start(self) -> None:
        self.parent = towards(self.setup.tree, self.setup.processes[0])[self.name]
        self.counted = 0
        """At the root: the numbers assigned."""
        self.serial = 0
        self.waiting: list[Part] = []
        self.asked: dict[int, list[Part]] = {}
        self.delivery = Numbered()

    def on_publish(self, message: Message) -> None:
        self._want(Part(1, message))

    def on_receive(self, source: str, packet: object) -> None:
        match packet:
            case Ask(serial, count):
                self._want(Part(count, child=source, serial=serial))
            case Grant(serial, first):
                self._split(self.asked.pop(serial), first)
            case Data(message, number):
                for ready in self.delivery.add(message, number):
                    self.deliver(ready)
            case _:
                raise unknown(packet)

    def on_alarm(self, alarm: str) -> None:
        self.serial += 1
        parts, self.waiting = self.waiting, []
        self.asked[self.serial] = parts
        self.send(self.parent, Ask(self.serial, sum(part.count for part in parts)))

    def _want(self, part: Part) -> None:
        if self.parent == self.name:
            self._split([part], self.counted + 1)
            self.counted += part.count
            return
        if not self.waiting:
            self.effect(Alarm("met", MEETING_MS))
        self.waiting.append(part)

    def _split(self, parts: list[Part], first: int) -> None:
        for part in parts:
            if part.message is not None:
                self.send_all(self.members(part.message), Data(part.message, first))
            else:
                self.send(part.child, Grant(part.serial, first))
            first += part.count
