"""Total and causal order by a privilege that goes round (Totem-like).

Only the holder of the token may send. The token carries the next number; the holder numbers its waiting messages with
it, sends them to all, and passes the token on. Members deliver in the order of the numbers. A message that a process
publishes after a delivery is numbered when the token next comes, hence with a larger number than the delivered one,
even over links that are not FIFO: the order is causal in closed groups (exercise 6.12.1).

A holder with nothing to send rests the token for a moment; without that an idle ring would be a busy one. Membership
and recovery of lost tokens, the larger part of Totem, are not here.

Source: Kshemkalyani 2008, §6.9, privilege-based algorithms. n − 1 messages a multicast, plus the passing of the token;
a sender waits for half a round on average.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from classic.protocols.numbered import Data, Numbered
from classic.protocols.process import CAUSALLY, TOTALLY, Alarm, Message, Process, unknown
from classic.protocols.setup import NO_FAULTS, Assumption

REST_MS = 5.0
"""Long enough that an idle ring costs little, short beside the round trip of a wide-area network."""


@dataclass(frozen=True, slots=True)
class Token:
    """The privilege to send, and the number of the next message."""

    number: int


class TokenRing(Process):
    """The members pass a token round; the first has it first."""

    title = "total order by a circulating token"
    source = "Kshemkalyani 2008, §6.9, privilege-based algorithms (Totem)"
    guarantees = CAUSALLY | TOTALLY
    assumes = NO_FAULTS | {Assumption.CLOSED_GROUPS, Assumption.ONE_GROUP}

    def on_start(self) -> None:
        [self.group] = self.setup.groups.values()
        self.waiting: deque[Message] = deque()
        self.token: Token | None = None
        self.delivery = Numbered()
        if self.name == self.group[0]:
            self.take(Token(1))

    def on_publish(self, message: Message) -> None:
        self.waiting.append(message)
        if self.token is not None:
            self.send_waiting()

    def on_receive(self, source: str, packet: object) -> None:
        match packet:
            case Token():
                self.take(packet)
            case Data(message, number):
                for ready in self.delivery.add(message, number):
                    self.deliver(ready)
            case _:
                raise unknown(packet)

    def on_alarm(self, alarm: str) -> None:
        if self.token is not None:
            self.pass_on(self.token)

    def take(self, token: Token) -> None:
        """Hold the token: send what waits and pass it on, or let it rest."""
        self.token = token
        if self.waiting:
            self.send_waiting()
            self.pass_on(self.token)
        else:
            self.effect(Alarm("rest", REST_MS))

    def send_waiting(self) -> None:
        """Number and send everything that waits."""
        assert self.token is not None
        while self.waiting:
            self.send_all(self.group, Data(self.waiting.popleft(), self.token.number))
            self.token = Token(self.token.number + 1)

    def pass_on(self, token: Token) -> None:
        """Give the token to the next of the ring."""
        following = self.group[(self.group.index(self.name) + 1) % len(self.group)]
        if following != self.name:
            self.token = None
            self.send(following, token)
