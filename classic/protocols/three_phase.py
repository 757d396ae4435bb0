"""Total and causal order by agreement of the destinations on a timestamp (ISIS).

A message goes through three phases.

1. The sender sends it to all with its clock.
2. Each receiver proposes a timestamp: above all that it has proposed before, and no less than the sender's clock. It
   queues the message under its proposal, as not yet deliverable.
3. The sender sends the largest proposal as the final timestamp. Receivers move the message to its place under it, and
   mark it deliverable. A deliverable message at the head of the queue is delivered.

A final timestamp is no less than any proposal, so whatever is queued behind the head can only move further back: the
head's place is certain. Equal timestamps are ordered by sender and tag. Causal order follows, over FIFO links and in
one group: what a process publishes after delivering m starts from a clock above m's final timestamp.

A finding. The source's rule 3 leaves ``priority`` alone, so a receiver can propose less than a final timestamp that it
has delivered already. Two messages, M and M', two members: D proposes 9 for M' and then 10 for M; C, that has neither
seen M' nor reached 10 itself, delivers M under 10; when M' comes, C proposes 8, and its final timestamp is 9. C has
delivered M before M', D will deliver M' before M. The simulator finds such runs, and
tests/laboratory/papers/test_kshemkalyani_2008_protocols.py plays this one. Here a final timestamp raises ``priority``,
as in Skeen's original; then what is yet to be proposed is above all that was delivered.

With this rule the order is total over any groups and any links (`OverlappingThreePhase`). Causal it is in one group
only: with several, a sender's second message can get a smaller final timestamp than its first.

Source: Kshemkalyani 2008, §6.6.2, Algorithm 6.5, but for rule 3. Three hops and 3(n − 1) messages.
"""

from __future__ import annotations

from dataclasses import dataclass

from classic.protocols.process import CAUSALLY, TOTALLY, Message, Process, unknown
from classic.protocols.setup import NO_FAULTS, Assumption


@dataclass(frozen=True, slots=True)
class Revise:
    """Phase 1: the message and its sender's clock."""

    message: Message
    timestamp: int


@dataclass(frozen=True, slots=True)
class Propose:
    """Phase 2: a receiver's proposal."""

    message_id: str
    timestamp: int


@dataclass(frozen=True, slots=True)
class Final:
    """Phase 3: the largest proposal."""

    message_id: str
    timestamp: int


@dataclass(slots=True)
class Queued:
    """A message in the queue of those that are not delivered yet."""

    message: Message
    timestamp: int
    deliverable: bool = False

    @property
    def place(self) -> tuple[int, str, str]:
        """The key that sorts the queue."""
        return self.timestamp, self.message.sender, self.message.id


class ThreePhase(Process):
    """Agreement on the largest proposed timestamp."""

    title = "total order by three phases (ISIS)"
    source = "Kshemkalyani 2008, §6.6.2, Algorithm 6.5"
    guarantees = CAUSALLY | TOTALLY
    assumes = NO_FAULTS | {Assumption.CLOSED_GROUPS, Assumption.ONE_GROUP, Assumption.FIFO_LINKS}

    def on_start(self) -> None:
        self.clock = 0
        self.priority = 0
        self.queue: dict[str, Queued] = {}
        self.proposals: dict[str, list[int]] = {}
        self.mine: dict[str, Message] = {}

    def on_publish(self, message: Message) -> None:
        self.clock += 1
        self.mine[message.id] = message
        self.proposals[message.id] = []
        self.send_all(self.members(message), Revise(message, self.clock))

    def on_receive(self, source: str, packet: object) -> None:
        match packet:
            case Revise(message, clock):
                self.priority = max(self.priority + 1, clock)
                self.queue[message.id] = Queued(message, self.priority)
                self.send(source, Propose(message.id, self.priority))
            case Propose(message_id, timestamp):
                self.proposals[message_id].append(timestamp)
                if len(self.proposals[message_id]) == len(self.members(self.mine[message_id])):
                    final = max(self.proposals.pop(message_id))
                    self.send_all(self.members(self.mine.pop(message_id)), Final(message_id, final))
                    self.clock = max(self.clock, final)
            case Final(message_id, timestamp):
                self.queue[message_id].timestamp = timestamp
                self.queue[message_id].deliverable = True
                self.priority = max(self.priority, timestamp)
                self._deliver_what_is_first()
            case _:
                raise unknown(packet)

    def _deliver_what_is_first(self) -> None:
        while self.queue:
            first = min(self.queue.values(), key=lambda queued: queued.place)
            if not first.deliverable:
                return
            del self.queue[first.message.id]
            self.clock = max(self.clock, first.timestamp) + 1
            self.deliver(first.message)


class OverlappingThreePhase(ThreePhase):
    """The same where less is assumed, and less promised."""

    title = "total order by three phases, overlapping groups (Skeen)"
    source = "Kshemkalyani 2008, §6.6.2 and §6.9, destination agreement"
    guarantees = TOTALLY
    assumes = NO_FAULTS
