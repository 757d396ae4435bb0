"""Causal order of broadcasts by vector clocks.

Each process counts, for every process, the broadcasts of it that it has delivered (for itself: published). A broadcast
carries its sender's vector V. It may be delivered at a receiver that has delivered R once it is the sender's next,
V[s] = R[s] + 1, and everything else that the sender had delivered is delivered here too, V[k] ≤ R[k] for k ≠ s: what
the message may depend on is exactly what its sender had delivered or published, and V counts it.

The count works because everyone is sent everything: "5 messages of k" means the same five everywhere. With several
groups it does not, and a matrix (`raynal_schiper_toueg`) or a log of destinations (`kshemkalyani_singhal`) is needed.
In the terms of exercise 6.9.1: the two vectors are that of what was published and that of what was delivered.

Source: Gupta 2019, "Causal Multicast: Updating Rules"; CMU 15-440, "Causal Ordering Multicast Protocol". A message
carries n numbers; n − 1 messages, one hop.
"""

from __future__ import annotations

from dataclasses import dataclass

from classic.protocols.process import CAUSALLY, Message, Process, unknown
from classic.protocols.setup import NO_FAULTS, Assumption


@dataclass(frozen=True, slots=True)
class Data:
    """A message and its sender's vector, in the order of the processes."""

    message: Message
    vector: tuple[int, ...]


class VectorClocks(Process):
    """Causal broadcast by vector clocks."""

    title = "causal order by vector clocks"
    source = (
        "Gupta 2019, Causal Multicast; CMU 15-440, Causal Ordering Multicast Protocol; Kshemkalyani 2008 exercise 6.9.1"
    )
    guarantees = CAUSALLY
    assumes = NO_FAULTS | {Assumption.BROADCAST}

    def on_start(self) -> None:
        self.index = {process: i for i, process in enumerate(self.setup.processes)}
        self.published = 0
        self.delivered = [0] * len(self.index)
        self.held: list[Data] = []

    def on_publish(self, message: Message) -> None:
        self.published += 1
        vector = list(self.delivered)
        vector[self.index[self.name]] = self.published
        self.send_all(self.members(message), Data(message, tuple(vector)))

    def on_receive(self, source: str, packet: object) -> None:
        if not isinstance(packet, Data):
            raise unknown(packet)
        self.held.append(packet)
        while ready := next((data for data in self.held if self._is_next(data)), None):
            self.held.remove(ready)
            self.delivered[self.index[ready.message.sender]] += 1
            self.deliver(ready.message)

    def _is_next(self, data: Data) -> bool:
        sender = self.index[data.message.sender]
        return all(
            count == here + 1 if k == sender else count <= here
            for k, (count, here) in enumerate(zip(data.vector, self.delivered, strict=True))
        )
