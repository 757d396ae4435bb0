"""Ordered multicast from distributed swap: the common part of all swap protocols.

A swap object holds a value, and swap(v) puts v in and takes out the previous value. If every message is swapped in, the
value taken out is the message that precedes it, and so all messages are one chain. A member that knows, of each
message, its predecessor delivers the message after it, and the first of the chain, whose predecessor is ⊥, at once. No
process needs to know how many messages there were before. So swap is cheaper than counting when many publish at once.

The order is total by construction. It is causal as well: a member that has delivered m has delivered all of the chain
up to m, so each message that it swaps in afterwards comes after m.

Source: Herlihy 2000, §3.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from classic.protocols.process import Message

NOTHING = ""
"""⊥: the predecessor of the first message."""


@dataclass(frozen=True, slots=True)
class Follows:
    """The multicast of a message together with the id of its predecessor."""

    message: Message
    predecessor: str


@dataclass(slots=True)
class Chain:
    """The messages of one member by their predecessors."""

    last: str = NOTHING
    held: dict[str, Message] = field(default_factory=dict)

    def add(self, packet: Follows) -> Iterator[Message]:
        """Take a message, and yield what can be delivered now, in order."""
        self.held[packet.predecessor] = packet.message
        while message := self.held.pop(self.last, None):
            self.last = message.id
            yield message


def towards(tree: tuple[tuple[str, str], ...], root: str) -> dict[str, str]:
    """Return the neighbour of each process on its way to the root, which has itself."""
    parent = {root: root}
    frontier = [root]
    for process in frontier:
        for edge in tree:
            if process in edge:
                other = edge[0] if edge[1] == process else edge[1]
                if other not in parent:
                    parent[other] = process
                    frontier.append(other)
    return parent
