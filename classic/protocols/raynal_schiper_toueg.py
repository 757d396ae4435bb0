"""Causal order of messages to any sets of processes, by a matrix of counts.

Each process keeps SENT[i][j], how many messages i has sent to j as far as it knows, and DELIV[i], how many of i's it
has delivered. A message carries its sender's SENT as it was before the message. A receiver j holds it until it has
delivered, of every k, as many as the matrix says were sent from k to j: those are all the messages to j in the past of
this one, and as each sender's are delivered in order, counting suffices. Upon delivery the matrices are merged, and the
message itself is counted for each of its destinations.

No process needs to know the groups, and senders need not be members: a matrix is about pairs of processes.

Source: Kshemkalyani 2008, §6.5.1 (Raynal, Schiper and Toueg). Our scan of it has lost the text of Algorithm 6.2; this
is built from the description around it. A message carries n² numbers; n − 1 messages, one hop.
"""

from __future__ import annotations

from dataclasses import dataclass

from classic.protocols.process import CAUSALLY, Message, Process, unknown
from classic.protocols.setup import NO_FAULTS


@dataclass(frozen=True, slots=True)
class Data:
    """A message and what its sender knew to be sent: row = sender, column = destination."""

    message: Message
    sent: tuple[tuple[int, ...], ...]


class RaynalSchiperToueg(Process):
    """Causal multicast by a matrix of counts."""

    title = "causal order by a matrix (Raynal–Schiper–Toueg)"
    source = "Kshemkalyani 2008, §6.5.1"
    guarantees = CAUSALLY
    assumes = NO_FAULTS

    def on_start(self) -> None:
        self.index = {process: i for i, process in enumerate(self.setup.processes)}
        self.me = self.index[self.name]
        self.sent = [[0] * len(self.index) for _ in self.index]
        self.delivered = [0] * len(self.index)
        self.held: list[Data] = []

    def on_publish(self, message: Message) -> None:
        before = tuple(map(tuple, self.sent))
        self._count(message)
        self.send_all(self.members(message), Data(message, before))

    def on_receive(self, source: str, packet: object) -> None:
        if not isinstance(packet, Data):
            raise unknown(packet)
        self.held.append(packet)
        while ready := next((data for data in self.held if self._past_is_here(data)), None):
            self.held.remove(ready)
            self.deliver(ready.message)
            self.delivered[self.index[ready.message.sender]] += 1
            self._learn(ready)

    def _past_is_here(self, data: Data) -> bool:
        return all(row[self.me] <= here for row, here in zip(data.sent, self.delivered, strict=True))

    def _learn(self, data: Data) -> None:
        sender = self.index[data.message.sender]
        known = [list(row) for row in data.sent]
        for process in self.members(data.message):
            known[sender][self.index[process]] += 1
        self.sent = [
            [max(pair) for pair in zip(mine, theirs, strict=True)]
            for mine, theirs in zip(self.sent, known, strict=True)
        ]

    def _count(self, message: Message) -> None:
        for process in self.members(message):
            self.sent[self.me][self.index[process]] += 1
