"""Members of a tree that join and leave it, which concerns their neighbours only.

No process knows the members of the group, not even a publisher: a message goes from neighbour to neighbour over the
whole tree, so an edge that comes or goes is all that there is to know.

*Join.* A process asks any member, which makes it a leaf of its own. The member sends it the last message that it has
delivered and those that it holds, and passes on all messages that it receives later. So the joiner delivers everything
after that message, in the common order.

*Leave.* A process asks its neighbours to lock the links to it: from then on they keep back their packets for it, and
their answer is the last that they send. Meanwhile it continues as a member. When all have answered, its links are
quiet. It names to them its heir, one of themselves, and ends. The others link themselves to the heir and send it the
packets that they have kept back. The heir passes on those that it has kept back, and takes over the protocol's state of
this process (`deliver`, `take_over`). A packet from a process that is no neighbour yet waits until it is one.

*Neighbours that both leave.* A process that has locked its link to another waits until that one has left. If both ask
at once, the lesser name goes first. In a tree no circle of waiting arises. One process remains: it cannot leave.

Source: Herlihy 2000, §6.2, which says what to do and leaves open how the links become quiet, and how messages get to
all.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

from classic.protocols.process import Effect, Halt, Joinable, Message
from classic.protocols.setup import Setup
from classic.protocols.swap import NOTHING, Chain, Follows, towards


@dataclass(frozen=True, slots=True)
class Join:
    """To a member: link me."""


@dataclass(frozen=True, slots=True)
class Welcome:
    """To a new leaf: the last message that was delivered, and those that are held."""

    last: str
    held: tuple[Follows, ...]


@dataclass(frozen=True, slots=True)
class Lock:
    """To a neighbour: send me no more."""


@dataclass(frozen=True, slots=True)
class Locked:
    """The last from a neighbour that was asked to lock its link."""


@dataclass(frozen=True, slots=True)
class Gone:
    """The last packet of a leaving process: its heir, the heir's new neighbours, and the state kept here, if there was
    any."""

    heir: str
    others: tuple[str, ...]
    was_end: bool
    value: str


class TreeMembers(Joinable):
    """The common part: the tree, and the chain of messages. ``link`` leads to where swaps end, or is this process.

    The first members are those of the group, on the edges of the set-up's tree that join them, or if these do not join
    all of them in a star around the first.
    """

    def on_start(self) -> None:
        [founders] = self.setup.groups.values()
        self.neighbours: list[str] = []
        self.link = ""
        """Empty: outside."""
        self.value = NOTHING
        """The last message of all; of a meaning only while ``link`` is this process."""
        self.chain = Chain()
        self.leaving = self.gone = False
        self.asked: set[str] = set()
        self.agreed: set[str] = set()
        self.kept_back: dict[str, list[object]] = {}
        """Neighbour that leaves → the packets that it would have been sent."""
        self.strangers: dict[str, list[object]] = {}
        """Process that will be a neighbour → what came from it."""
        self.to_publish: list[Message] = []
        """Until this process is a member."""
        if self.name in founders:
            edges = _edges(self.setup, founders)
            self.neighbours = [b if a == self.name else a for a, b in edges if self.name in (a, b)]
            self.link = towards(edges, founders[0])[self.name]

    def join(self, at: str = "") -> list[Effect]:
        """Ask a member, by default the first, to be linked."""
        [founders] = self.setup.groups.values()
        self.send(at or founders[0], Join())
        return self._finish_step()

    def leave(self) -> list[Effect]:
        """Begin to leave; it takes effect with `Halt`. The last member stays."""
        self.leaving = True
        self._go_on_leaving()
        return self._finish_step()

    def on_publish(self, message: Message) -> None:
        if self.link:
            self.on_message(message)
        else:
            self.to_publish.append(message)

    def on_receive(self, source: str, packet: object) -> None:
        if self.gone:
            return
        match packet:
            case Join():
                self.neighbours.append(source)
                held = tuple(Follows(message, predecessor) for predecessor, message in self.chain.held.items())
                self.send(source, Welcome(self.chain.last, held))
            case Welcome(last, held):
                self.neighbours, self.link, self.chain = [source], source, Chain(last)
                for follows in held:
                    self._deliver_after(follows)
                for message in self.to_publish:
                    self.on_message(message)
            case _ if source not in self.neighbours:
                self.strangers.setdefault(source, []).append(packet)
            case Lock() if not (self.leaving and self.name < source):
                self.kept_back[source] = []
                self.send(source, Locked())
            case Lock():
                pass  # this process goes first, and then the other asks the heir
            case Locked():
                self.agreed.add(source)
            case Gone():
                self._replace(source, packet)
            case Follows():
                self._flood(packet, came_from=source)
            case _:
                self.on_swap_packet(source, packet)
        self._go_on_leaving()

    @abstractmethod
    def on_message(self, message: Message) -> None:
        """A member publishes."""

    @abstractmethod
    def on_swap_packet(self, source: str, packet: object) -> None:
        """Take a packet in search of a predecessor, or one to take over from a leaving process."""

    def before_leaving(self) -> None:
        """Send on the swaps that are kept at this process."""

    def multicast(self, message: Message, *, predecessor: str) -> None:
        """Send a message and the id of its predecessor to all."""
        self._flood(Follows(message, predecessor), came_from=self.name)

    def tell(self, neighbour: str, packet: object) -> None:
        """Send to a neighbour, unless the link to it is locked: then it is kept back."""
        if neighbour in self.kept_back:
            self.kept_back[neighbour].append(packet)
        else:
            self.send(neighbour, packet)

    def _flood(self, follows: Follows, *, came_from: str) -> None:
        for neighbour in self.neighbours:
            if neighbour != came_from:
                self.tell(neighbour, follows)
        self._deliver_after(follows)

    def _deliver_after(self, follows: Follows) -> None:
        for message in self.chain.add(follows):
            self.deliver(message)

    def _go_on_leaving(self) -> None:
        """Ask the neighbours that were not asked yet; leave when all agree. One that has locked a link waits for the
        other."""
        if not self.leaving or self.gone or self.kept_back or not self.neighbours:
            return
        for neighbour in self.neighbours:
            if neighbour not in self.asked:
                self.asked.add(neighbour)
                self.send(neighbour, Lock())
        if not self.agreed.issuperset(self.neighbours):
            return
        self.before_leaving()
        was_end = self.link == self.name
        heir = self.neighbours[0] if was_end else self.link
        others = tuple(neighbour for neighbour in self.neighbours if neighbour != heir)
        self.send_all(self.neighbours, Gone(heir, others, was_end, self.value))
        self.gone = True
        self.effect(Halt("it has left"))

    def _replace(self, process: str, gone: Gone) -> None:
        """Put the heir, or this process as the heir, in the place of a neighbour that has left."""
        kept_back = self.kept_back.pop(process)
        self.neighbours.remove(process)
        new = gone.others if gone.heir == self.name else (gone.heir,)
        self.neighbours += new
        if gone.heir != self.name:
            if self.link == process:
                self.link = gone.heir
            for packet in kept_back:
                self.tell(gone.heir, packet)
        else:
            if gone.was_end and self.link == process:
                self.link = self.name
            self._inherit(process, gone, kept_back)
        for neighbour in new:
            for packet in self.strangers.pop(neighbour, ()):
                self.on_receive(neighbour, packet)

    def _inherit(self, process: str, gone: Gone, kept_back: list[object]) -> None:
        for packet in kept_back:
            if isinstance(packet, Follows):
                for neighbour in gone.others:
                    self.tell(neighbour, packet)
        swaps = [packet for packet in kept_back if not isinstance(packet, Follows)]
        if gone.was_end:
            self.take_over(gone.value, swaps)
        else:
            assert not swaps, f"{process} led here, so nothing was on its way to it from here"

    @abstractmethod
    def take_over(self, value: str, swaps: list[object]) -> None:
        """Be where swaps end: with this value, and these swaps of this process that did not get there."""


def _edges(setup: Setup, founders: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    edges = tuple(edge for edge in setup.tree if set(edge) <= set(founders))
    joined = len(towards(edges, founders[0])) == len(founders) == len(edges) + 1
    return edges if joined else tuple((founders[0], other) for other in founders[1:])
