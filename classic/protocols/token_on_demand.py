"""Total and causal order by a privilege that goes to the process that asks for it.

As with the circulating token (`token_ring`), only the holder sends, and the token carries the next number; but it stays
where it is until another process wants it. A process that has something to send and no token asks all members for it,
with a serial number of its requests. The token remembers the serial number of each member's last request that was
granted, and a queue of those whose requests were not: the holder, when it is done, gives it to the head of the queue.
So an idle system sends nothing, and a lone sender keeps the privilege.

Source: Kshemkalyani 2008, §6.9, privilege-based algorithms (On-Demand); the granting is Suzuki and Kasami's.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from classic.protocols.numbered import Data, Numbered
from classic.protocols.process import CAUSALLY, TOTALLY, Message, Process, unknown
from classic.protocols.setup import NO_FAULTS, Assumption


@dataclass(frozen=True, slots=True)
class Request:
    """The sender wants the token, for this time."""

    serial: int


@dataclass(frozen=True, slots=True)
class Token:
    """The privilege: the next number, the requests granted of each member, and the members waiting for it, in order."""

    number: int
    granted: tuple[tuple[str, int], ...]
    queue: tuple[str, ...]


class TokenOnDemand(Process):
    """The token is asked for; the first member has it first."""

    title = "total order by a token on demand"
    source = "Kshemkalyani 2008, §6.9, privilege-based algorithms (On-Demand)"
    guarantees = CAUSALLY | TOTALLY
    assumes = NO_FAULTS | {Assumption.CLOSED_GROUPS, Assumption.ONE_GROUP}

    def on_start(self) -> None:
        [self.group] = self.setup.groups.values()
        self.token = Token(1, tuple((m, 0) for m in self.group), ()) if self.name == self.group[0] else None
        self.requested = dict.fromkeys(self.group, 0)
        self.waiting: deque[Message] = deque()
        self.delivery = Numbered()

    def on_publish(self, message: Message) -> None:
        self.waiting.append(message)
        if self.token is not None:
            self._use(self.token)
        elif len(self.waiting) == 1:
            self.send_all(self.group, Request(self.requested[self.name] + 1))

    def on_receive(self, source: str, packet: object) -> None:
        match packet:
            case Request(serial):
                self.requested[source] = max(serial, self.requested[source])
                if self.token is not None:
                    self._use(self.token)
            case Token():
                self._use(packet)
            case Data(message, number):
                for ready in self.delivery.add(message, number):
                    self.deliver(ready)
            case _:
                raise unknown(packet)

    def _use(self, token: Token) -> None:
        """Send what waits, and give the token to the next that wants it, if any."""
        number = token.number
        while self.waiting:
            self.send_all(self.group, Data(self.waiting.popleft(), number))
            number += 1
        granted = dict(token.granted)
        granted[self.name] = self.requested[self.name]
        wanting = [m for m in self.group if self.requested[m] > granted[m] and m not in token.queue]
        queue = (*token.queue, *wanting)
        self.token = Token(number, tuple(granted.items()), queue)
        if queue:
            following, *rest = queue
            self.send(following, Token(number, self.token.granted, tuple(rest)))
            self.token = None
