"""Total order by a sequencer's office that goes round (Chang and Maxemchuk).

Some of the processes are sequencers. A sender sends its message to all of them. They pass a token round, which carries
the next number and what was numbered lately. The sequencer that has the token numbers all that it has received and that
is not numbered yet, sends it to the group, and passes the token on. Members deliver in the order of the numbers. The
load is spread over the sequencers, and senders need know only them: groups may be open.

A message stays on the token for one round, after which every sequencer has seen that it is numbered, also one that is
yet to receive the message itself. Nothing makes a sender's messages be numbered in its order: over links that are not
FIFO the order is total and no more. (Acknowledgements and recovery, which the original is known for, are not here.)

Source: Kshemkalyani 2008, §6.9, moving sequencer algorithms. Two hops and a wait for the token; s + n messages with s
sequencers.
"""

from __future__ import annotations

from dataclasses import dataclass

from classic.protocols.numbered import Data, Numbered
from classic.protocols.process import TOTALLY, Alarm, Message, Process, unknown
from classic.protocols.setup import NO_FAULTS, Assumption

SEQUENCERS = 3
REST_MS = 5.0
"""How long a sequencer with nothing to number keeps the token."""


@dataclass(frozen=True, slots=True)
class Submit:
    """A message, to a sequencer."""

    message: Message


@dataclass(frozen=True, slots=True)
class Token:
    """The next number, and the messages of the last round: message id, and the number of passes that it has left."""

    number: int
    numbered: tuple[tuple[str, int], ...]


class ChangMaxemchuk(Process):
    """The first few processes are sequencers by turns."""

    title = "total order by a moving sequencer (Chang–Maxemchuk)"
    source = "Kshemkalyani 2008, §6.9, moving sequencer algorithms"
    guarantees = TOTALLY
    assumes = NO_FAULTS | {Assumption.ONE_GROUP}

    def on_start(self) -> None:
        self.sequencers = self.setup.processes[:SEQUENCERS]
        self.received: dict[str, Message] = {}
        """As a sequencer: messages that are not numbered yet."""
        self.numbered_unseen: set[str] = set()
        """As a sequencer: messages that are numbered and have not arrived here yet."""
        self.token: Token | None = None
        self.delivery = Numbered()
        if self.name == self.sequencers[0]:
            self._take(Token(1, ()))

    def on_publish(self, message: Message) -> None:
        self.send_all(self.sequencers, Submit(message))

    def on_receive(self, source: str, packet: object) -> None:
        match packet:
            case Submit(message) if message.id in self.numbered_unseen:
                self.numbered_unseen.remove(message.id)
            case Submit(message):
                self.received[message.id] = message
            case Token():
                self._take(packet)
            case Data(message, number):
                for ready in self.delivery.add(message, number):
                    self.deliver(ready)
            case _:
                raise unknown(packet)

    def on_alarm(self, alarm: str) -> None:
        if self.token is not None:
            self._number_and_pass(self.token)

    def _take(self, token: Token) -> None:
        for message_id, _ in token.numbered:
            if self.received.pop(message_id, None) is None:
                self.numbered_unseen.add(message_id)
        self.token = token
        if self.received:
            self._number_and_pass(token)
        else:
            self.effect(Alarm("rest", REST_MS))

    def _number_and_pass(self, token: Token) -> None:
        number = token.number
        rounds = [(message_id, passes - 1) for message_id, passes in token.numbered if passes > 1]
        for message in self.received.values():
            self.send_all(self.members(message), Data(message, number))
            number += 1
            rounds.append((message.id, len(self.sequencers) - 1))
        self.received.clear()
        self.token = None
        following = self.sequencers[(self.sequencers.index(self.name) + 1) % len(self.sequencers)]
        self.send(following, Token(number, tuple(entry for entry in rounds if entry[1])))
