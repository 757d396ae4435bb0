"""Synchronous order on an asynchronous network: binary rendezvous with priorities.

Sender and receiver of a message meet: its send and its receive take place as one. To bring that about with ordinary
messages, one waits for the other, and circles of waiting must be avoided. They are, because it is always the process of
the higher priority that blocks on one of the lower:

- towards a lower priority, the sender sends the message and blocks until it is acknowledged;
- towards a higher priority, it asks, and goes on; when the receiver grants permission, the receiver blocks until the
  message is there, and the sender sends it.

A blocked process queues its inputs, and takes them in order afterwards. A process that has asked and not been granted
yet still receives: such a message counts as received before the send. Each process tries one send at a time.

The execution of the application's sends and receives has no crown: it could have run on instantaneous messages. A
process that is always busy with higher ones can wait for long (exercise 6.7: the priorities are not fair).

Source: Kshemkalyani 2008, §6.3.2, Algorithm 6.1 (Bagrodia). Two messages towards a lower priority, three towards a
higher one.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from classic.protocols.process import CAUSALLY, Guarantee, Message, Process, Scheduled, unknown
from classic.protocols.setup import NO_FAULTS, Assumption
from sequencing.errors import UsageError


@dataclass(frozen=True, slots=True)
class Data:
    """The message itself: M."""

    message: Message


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """ack(M), to a sender of higher priority."""

    message_id: str


@dataclass(frozen=True, slots=True)
class Request:
    """request(M), to a receiver of higher priority."""

    message_id: str


@dataclass(frozen=True, slots=True)
class Permission:
    """permission(M), to a sender of lower priority."""

    message_id: str


class Rendezvous(Process):
    """Meetings of two; earlier processes of the set-up have the higher priority."""

    title = "synchronous order by rendezvous"
    source = "Kshemkalyani 2008, §6.3.2, Algorithm 6.1"
    guarantees = CAUSALLY | {Guarantee.SYNCHRONOUS}
    assumes = NO_FAULTS | {Assumption.ONE_TO_ONE}

    def on_start(self) -> None:
        self.priority = {process: -i for i, process in enumerate(self.setup.processes)}
        self.to_send: deque[Message] = deque()
        self.current: Message | None = None
        """The message that this process tries to send."""
        self.blocked_on: str | None = None
        """The message whose acknowledgement, or which itself, must come before anything else is done."""
        self.queue: deque[tuple[str, object]] = deque()

    def on_publish(self, message: Message) -> None:
        if self.members(message) == (self.name,):
            raise UsageError(f"{self.name} cannot meet itself: a rendezvous is of two processes")
        self.to_send.append(message)
        self._go_on()

    def on_receive(self, source: str, packet: object) -> None:
        match packet:
            case Acknowledge(message_id) if message_id == self.blocked_on:
                self.current = self.blocked_on = None
            case Data(message) if message.id == self.blocked_on:
                self.deliver(message)
                self.blocked_on = None
            case _:
                self.queue.append((source, packet))
        self._go_on()

    def _go_on(self) -> None:
        """While this process is not blocked, take queued inputs, and then try to send."""
        while self.blocked_on is None and self.queue:
            self._take(*self.queue.popleft())
        if self.blocked_on is None and self.current is None and self.to_send:
            self._try_to_send(self.to_send.popleft())

    def _try_to_send(self, message: Message) -> None:
        [partner] = self.members(message)
        self.current = message
        if self.priority[partner] < self.priority[self.name]:
            self.effect(Scheduled(message))
            self.send(partner, Data(message))
            self.blocked_on = message.id
        else:
            self.send(partner, Request(message.id))

    def _take(self, source: str, packet: object) -> None:
        match packet:
            case Data(message):
                self.deliver(message)
                self.send(source, Acknowledge(message.id))
            case Request(message_id):
                self.send(source, Permission(message_id))
                self.blocked_on = message_id
            case Permission(message_id):
                assert self.current is not None
                assert self.current.id == message_id
                self.effect(Scheduled(self.current))
                self.send(source, Data(self.current))
                self.current = None
            case _:
                raise unknown(packet)
