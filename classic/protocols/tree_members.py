"""Members of a tree that join and leave it, which concerns their neighbours only.

No process knows the members of the group, not even a publisher: a message goes from neighbour to neighbour over the
whole tree, so an edge that comes or goes is all that there is to know.

*Join.* A process asks any member, which makes it a leaf of its own. The member sends it the last message that it has
delivered and those that it holds, and passes on all messages that it receives later. So the joiner delivers everything
after that message, in the common order. A process that has left hands the request on to its heir; one that was never a
member hands it on to the first founder. Each heir leaves later than the process that named it, and one process always
remains, so every request reaches a member.

*Leave.* A process asks its neighbours to lock the links to it: from then on they keep back their packets for it, and
their answer is the last that they send. Meanwhile it continues as a member. When all have answered, its links are
quiet. It names to them its heir, one of themselves, and ends. The others link themselves to the heir and send it the
packets that they have kept back. The heir passes on those that it has kept back, and takes over the protocol's state of
this process (`deliver`, `take_over`). A packet from a process that is no neighbour yet waits until it is one.

*Neighbours that both leave.* A process that has locked its link to another waits until that one has left. If both ask
at once, the lesser name goes first. In a tree no circle of waiting arises. One process remains: it cannot leave.

*Come back.* A process that has left may join again. It first asks its former neighbours whether they have handled its
last packet; otherwise one of them could become its neighbour a second time. Members count the messages that they have
delivered. The member that it asks may be behind, and then it delivers nothing a second time. A process leaves only when
it has delivered its own messages: elsewhere in the tree, its next message could overtake them. Messages published after
its links are being locked wait until it comes back.

Source: Herlihy 2000, §6.2, which says what to do and leaves open how the links become quiet, and how messages get to
all.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

from classic.protocols.process import Effect, Enter, Halt, Joinable, Message, Standing
from classic.protocols.setup import Setup
from classic.protocols.swap import NOTHING, Chain, Follows, towards
from sequencing.errors import UsageError


@dataclass(frozen=True, slots=True)
class Join:
    """To a member: link this process. To a process that is none: hand it on."""

    process: str


@dataclass(frozen=True, slots=True)
class Welcome:
    """To a new leaf: the last message that was delivered, its number in the order, and those that are held."""

    last: str
    number: int
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


@dataclass(frozen=True, slots=True)
class Return:
    """From a process that wants to come back to a former neighbour: answer when my `Gone` is handled."""


@dataclass(frozen=True, slots=True)
class Cleared:
    """The answer to `Return`. Links are FIFO, so the former neighbour can answer at once."""


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
        self.number = self.delivered = 0
        """The place of the chain's last message in the order, and that of the last message that was delivered."""
        self.heir = founders[0]
        """The process to hand joins on to while this one is outside."""
        self.at = ""
        """The process that this one asks to be linked; not empty while it joins."""
        self.leaving = False
        self.asked: set[str] = set()
        self.agreed: set[str] = set()
        self.uncleared: set[str] = set()
        """Former neighbours that have yet to answer `Return`."""
        self.former: tuple[str, ...] = ()
        """Neighbours at the time of leaving."""
        self.kept_back: dict[str, list[object]] = {}
        """Neighbour that leaves → the packets that it would have been sent."""
        self.strangers: dict[str, list[object]] = {}
        """Process that will be a neighbour → what came from it."""
        self.to_publish: list[Message] = []
        """Until this process is a member."""
        self.unheard = 0
        """Messages of this process that it has yet to deliver."""
        if self.name in founders:
            edges = _edges(self.setup, founders)
            self.neighbours = [b if a == self.name else a for a, b in edges if self.name in (a, b)]
            self.link = towards(edges, founders[0])[self.name]

    def join(self, at: str = "") -> list[Effect]:
        """Ask to be linked; it takes effect with `Enter`. A process that is leaving comes back when it has left.

        ``at``: any process that is or was a member; by default this process's heir, or the first founder. A member, or
        a process that is joining, does nothing. Raises `UsageError` for an unknown process.
        """
        if at and at not in self.setup.processes:
            raise UsageError(f"cannot join at {at!r}: the processes are {', '.join(self.setup.processes)}")
        if not self.link and self.at:
            self.leaving = False  # as it asked since then
        elif self.link and not self.neighbours:
            self.leaving = False  # the last member could not leave
        elif self.leaving or not self.link:
            self.at = at if at and at != self.name else self.heir
            if not self.link:
                self._return()
        return self._finish_step()

    @property
    def standing(self) -> Standing:
        """A process that is to come back is joining already while it leaves."""
        if self.at:
            return Standing.OUT if self.leaving and not self.link else Standing.JOINING
        return Standing.IN if self.link and not self.leaving else Standing.OUT

    def leave(self) -> list[Effect]:
        """Begin to leave; it takes effect with `Halt`. The last member stays. Outside it takes effect at once."""
        if not self.link and not self.at:
            self.effect(Halt("it is no member", left=True))
        elif self.link:
            self.at = ""
        self.leaving = bool(self.link or self.at)
        self._go_on_leaving()
        return self._finish_step()

    def on_publish(self, message: Message) -> None:
        self.to_publish.append(message)
        self._publish_waiting()

    def on_receive(self, source: str, packet: object) -> None:
        match packet:
            case Join(process) if self.link:
                self.neighbours.append(process)
                held = tuple(Follows(message, predecessor) for predecessor, message in self.chain.held.items())
                self.send(process, Welcome(self.chain.last, self.number, held))
            case Join():
                self.send(self.heir, packet)
            case Return():
                self.send(source, Cleared())
            case Cleared():
                self.uncleared.remove(source)
                if not self.uncleared:
                    self.send(self.at, Join(self.name))
            case Welcome():
                self._enter(source, packet)
            case _ if source not in self.neighbours:
                self.strangers.setdefault(source, []).append(packet)
            case Lock() if not (source in self.asked and self.name < source):
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

    def _return(self) -> None:
        """Ask for a link, at once or when the former neighbours have handled the last packet of this process."""
        self.uncleared = set(self.former)
        self.send_all(self.former, Return())
        if not self.former:
            self.send(self.at, Join(self.name))

    def _enter(self, host: str, welcome: Welcome) -> None:
        self.neighbours, self.link, self.at = [host], host, ""
        self.chain, self.number = Chain(welcome.last), welcome.number
        self.effect(Enter())
        for follows in welcome.held:
            self._deliver_after(follows)
        self._publish_waiting()

    def _publish_waiting(self) -> None:
        """Publish, unless this process is outside or its links are being locked."""
        while self.to_publish and self.link and not self.asked:
            self.unheard += 1
            self.on_message(self.to_publish.pop(0))

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
            self.number += 1
            if self.number > self.delivered:  # else this process has delivered it before it left
                self.delivered = self.number
                self.unheard -= message.sender == self.name
                self.deliver(message)

    def _go_on_leaving(self) -> None:
        """Ask the neighbours that were not asked yet; leave when all agree. One that has locked a link waits for the
        other, and one whose own messages are in flight waits for them."""
        if not self.neighbours:
            self._publish_waiting()  # the last member stays
        if not self.leaving or not self.link or self.kept_back or not self.neighbours or self.unheard:
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
        self.heir, self.former = heir, tuple(self.neighbours)
        self.neighbours, self.link, self.leaving = [], "", False
        self.asked.clear()
        self.agreed.clear()
        self.effect(Halt("it has left", left=True))
        if self.at:
            self._return()

    def _replace(self, process: str, gone: Gone) -> None:
        """Put the heir, or this process as the heir, in the place of a neighbour that has left."""
        kept_back = self.kept_back.pop(process)
        self.neighbours.remove(process)
        self.asked.discard(process)  # it may come back
        self.agreed.discard(process)
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
