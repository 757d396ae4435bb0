"""Delivery by consecutive numbers: the common part of all protocols that number messages, wherever numbers come
from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from classic.protocols.process import Message


@dataclass(frozen=True, slots=True)
class Data:
    """A message and its number, given to it or taken by its sender."""

    message: Message
    number: int


@dataclass(frozen=True, slots=True)
class Number:
    """The number that a message was given."""

    message_id: str
    number: int


@dataclass(slots=True)
class Numbered:
    """The messages of one member, by their numbers from 1."""

    last: int = 0
    held: dict[int, Message] = field(default_factory=dict)

    def add(self, message: Message, number: int) -> Iterator[Message]:
        """Take a message, and yield what can be delivered now, in order."""
        self.held[number] = message
        while following := self.held.pop(self.last + 1, None):
            self.last += 1
            yield following
