"""Total order by two phases with commit times.

The sender's clock goes with the message; every receiver queues it and acknowledges with its own clock, raised above the
message's. The sender takes a commit time above all acknowledgements and sends it to all. A receiver delivers a message
once everything that it acknowledged at an earlier time than the message's commit time is committed, and in the order of
commit times: what is acknowledged later will have a later commit time, as a commit time exceeds all acknowledgements.

Unlike in the three-phase algorithm (`three_phase`) there is one clock, and commits raise it at the receivers: hence the
order is total over any groups. Two commit times can be equal only for different senders, whose names then decide.

Source: CMU 15-440, "Total Order Multicast". Three hops and 3(n − 1) messages: the two phases are the sender's.
"""

from __future__ import annotations

from dataclasses import dataclass

from classic.protocols.process import TOTALLY, Message, Process, unknown
from classic.protocols.setup import NO_FAULTS


@dataclass(frozen=True, slots=True)
class Data:
    """The message, at its sender's time."""

    message: Message
    time: int


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """A receiver has queued it, at its time."""

    message_id: str
    time: int


@dataclass(frozen=True, slots=True)
class Commit:
    """When the message counts as received."""

    message_id: str
    time: int


@dataclass(slots=True)
class Waiting:
    """A message at a receiver; the time is that of the acknowledgement, and then of the commit."""

    message: Message
    time: int
    committed: bool = False


class TwoPhase(Process):
    """Acknowledgements, then a commit time."""

    title = "total order by commit times"
    source = "CMU 15-440, Total Order Multicast"
    guarantees = TOTALLY
    assumes = NO_FAULTS

    def on_start(self) -> None:
        self.time = 0
        self.waiting: dict[str, Waiting] = {}
        self.acknowledged: dict[str, list[int]] = {}
        self.mine: dict[str, Message] = {}

    def on_publish(self, message: Message) -> None:
        self.mine[message.id] = message
        self.acknowledged[message.id] = []
        self.send_all(self.members(message), Data(message, self._tick()))

    def on_receive(self, source: str, packet: object) -> None:
        match packet:
            case Data(message, time):
                self.waiting[message.id] = Waiting(message, self._tick(time))
                self.send(source, Acknowledge(message.id, self.waiting[message.id].time))
            case Acknowledge(message_id, time):
                self.acknowledged[message_id].append(time)
                if len(self.acknowledged[message_id]) == len(self.members(self.mine[message_id])):
                    commit = self._tick(max(self.acknowledged.pop(message_id)))
                    self.send_all(self.members(self.mine.pop(message_id)), Commit(message_id, commit))
            case Commit(message_id, time):
                self._tick(time)
                self.waiting[message_id].time = time
                self.waiting[message_id].committed = True
                self._deliver_what_is_certain()
            case _:
                raise unknown(packet)

    def _tick(self, seen: int = 0) -> int:
        self.time = max(self.time, seen) + 1
        return self.time

    def _deliver_what_is_certain(self) -> None:
        while self.waiting:
            first = min(self.waiting.values(), key=lambda one: (one.time, one.message.sender))
            if not first.committed:
                return
            self.deliver(self.waiting.pop(first.message.id).message)
