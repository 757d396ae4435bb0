"""Propagation trees whose groups change while messages are in flight (exercise 6.11).

A change of groups changes metagroups, and so the tree. When only leaves come and go, the others stay where they are
(`Forest.changed`). The tree is built again when a metagroup inside it is emptied, or when a new one fits below no
branch. Either way all processes must switch from one forest to the next at the same place of the order:

1. A process that wants to join or leave groups asks the registrar, the first process. The registrar gathers such
   requests into the next *epoch* and announces its groups to all.
2. A process that receives the announcement sends nothing more in the old epoch; new messages of its application wait.
   It reports to all how many messages it has sent to which group.
3. A process that has these reports from all, and has delivered the messages to its groups, switches to the next epoch,
   and sends the waiting messages. As the manager of a metagroup it still passes on old messages.
4. When all have switched, the registrar may announce the next epoch.

So every process delivers all messages of an epoch before those of the next: two orders that agree in each epoch agree.
Everything that happened before a message of an epoch belongs to it or to earlier ones, so causal order holds as well. A
member delivers exactly the messages of the epochs in which it is one. The price is a pause, of the slowest way between
two processes and back: unlike in the trees of Herlihy 2000, §6.2, joining and leaving concern all processes.

Source: Kshemkalyani 2008, §6.8 and exercise 6.11.3, which asks for the impact on the tree only; the epochs are ours.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from classic.protocols.process import (
    CAUSALLY,
    TOTALLY,
    Addressed,
    Deliver,
    Effect,
    Message,
    Regrouping,
    Send,
    Standing,
    unknown,
)
from classic.protocols.propagation_tree import Down, Hand, PropagationTree
from classic.protocols.setup import NO_FAULTS, Assumption, Setup
from sequencing.errors import UsageError

Groups = tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True, slots=True)
class Interest:
    """To the registrar: a process' so-and-so-many-th."""

    number: int
    joins: tuple[str, ...]
    leaves: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Announce:
    """From the registrar to all: the groups of the next epoch, and each process' last wish that is fulfilled then."""

    epoch: int
    groups: Groups
    fulfilled: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Closed:
    """To all: what the sender has sent to which group in an epoch."""

    epoch: int
    sent: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Switched:
    """To the registrar: the sender has switched to an epoch."""

    epoch: int


@dataclass(frozen=True, slots=True)
class DownIn:
    """`Down` of an epoch."""

    epoch: int
    message: Message
    before: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class HandIn:
    """`Hand` of an epoch."""

    epoch: int
    message: Message


class PropagationRegrouping(Regrouping):
    """One propagation tree after the other."""

    title = "total order by propagation trees, with joining and leaving groups"
    source = "Kshemkalyani 2008, §6.8, exercise 6.11"
    guarantees = CAUSALLY | TOTALLY
    assumes = NO_FAULTS | {Assumption.CLOSED_GROUPS, Assumption.FIFO_LINKS}

    def on_start(self) -> None:
        self.registrar = self.setup.processes[0]
        self.epoch = 1
        self.trees = {1: self._tree(self.setup)}
        """This epoch's, and the one before for messages that it passes on."""
        self.next: Announce | None = None
        self.sent: Counter[str] = Counter()
        self.delivered: Counter[tuple[str, str]] = Counter()
        """In this epoch, by sender and group."""
        self.closed: dict[str, Closed] = {}
        self.to_publish: list[Message] = []
        self.early: list[tuple[str, DownIn | HandIn]] = []
        """Of the next epoch, into which this process has yet to go."""
        self.interests: list[tuple[str, Interest]] = []
        self.wished = 0
        self.outstanding: list[Interest] = []
        """The requests of this process that are not fulfilled yet."""
        self.switching: set[str] = set()
        """At the registrar: the processes that have yet to switch."""

    def regroup(self, *, joins: Iterable[str] = (), leaves: Iterable[str] = ()) -> list[Effect]:
        """See `Regrouping`."""
        self.wished += 1
        interest = Interest(self.wished, tuple(joins), tuple(leaves))
        self.outstanding.append(interest)
        self.send(self.registrar, interest)
        return self._finish_step()

    def standing(self, group: str) -> Standing:
        """The last request that names the group decides, until it is fulfilled."""
        for interest in reversed(self.outstanding):
            if group in interest.leaves:
                return Standing.OUT
            if group in interest.joins:
                return Standing.JOINING
        return Standing.IN if self.name in self.setup.members(group) else Standing.OUT

    def publish(self, message: Message) -> list[Effect]:
        """Publish, but not to a group that this process has asked to leave: in the next epoch it may be no member."""
        if any(message.group in interest.leaves for interest in self.outstanding):
            raise UsageError(f"{self.name} has asked to leave {message.group}: publish before that")
        return super().publish(message)

    def on_publish(self, message: Message) -> None:
        if self.next is not None:
            self.to_publish.append(message)
            return
        self.sent[message.group] += 1
        self.effect(Addressed(message, self.setup.members(message.group)))
        self._carry_out(self.epoch, self.trees[self.epoch].publish(message))

    def on_receive(self, source: str, packet: object) -> None:
        match packet:
            case DownIn(epoch) | HandIn(epoch) if epoch > self.epoch:
                self.early.append((source, packet))
            case DownIn(epoch, message, before):
                self._carry_out(epoch, self.trees[epoch].receive(source, Down(message, before)))
            case HandIn(epoch, message):
                self._carry_out(epoch, self.trees[epoch].receive(source, Hand(message)))
            case Interest():
                self.interests.append((source, packet))
                self._announce()
            case Announce():
                self.next = packet
                self.send_all(self.setup.processes, Closed(self.epoch, tuple(self.sent.items())))
            case Closed():
                self.closed[source] = packet
            case Switched():
                self.switching.remove(source)
                self._announce()
            case _:
                raise unknown(packet)
        self._go_on()

    def _carry_out(self, epoch: int, effects: list[Effect]) -> None:
        """Send and deliver for a tree."""
        for effect in effects:
            match effect:
                case Send(to, Down(message, before)):
                    self.send(to, DownIn(epoch, message, before))
                case Send(to, Hand(message)):
                    self.send(to, HandIn(epoch, message))
                case Deliver(message):
                    self.delivered[message.sender, message.group] += 1
                    self.deliver(message)

    def _announce(self) -> None:
        """At the registrar, if no process is switching to an epoch: announce one that fulfils the requests."""
        if not self.interests or self.switching:
            return
        groups = {group: list(members) for group, members in self.setup.groups.items()}
        for process, interest in self.interests:
            for group in interest.joins:
                groups[group] = [p for p in self.setup.processes if p in groups.get(group, ()) or p == process]
            for group in interest.leaves:
                groups[group] = [p for p in groups.get(group, ()) if p != process]
        fulfilled = {process: interest.number for process, interest in self.interests}
        self.interests = []
        self.switching = set(self.setup.processes)
        told = tuple((group, tuple(members)) for group, members in groups.items())
        self.send_all(self.setup.processes, Announce(self.epoch + 1, told, tuple(fulfilled.items())))

    def _go_on(self) -> None:
        """Go on to the next epoch, if all of this one is delivered."""
        if self.next is None or len(self.closed) < len(self.setup.processes):
            return
        mine = self.setup.groups_of(self.name)
        for sender, closed in self.closed.items():
            if any(self.delivered[sender, group] != count for group, count in closed.sent if group in mine):
                return
        announced, self.next, self.closed = self.next, None, {}
        forest = self.trees[self.epoch].forest
        self.setup = replace(self.setup, groups=dict(announced.groups))
        self.epoch = announced.epoch
        last = dict(announced.fulfilled).get(self.name, 0)
        self.outstanding = [interest for interest in self.outstanding if interest.number > last]
        tree = self._tree(self.setup)
        tree.settle(forest.changed(self.setup.groups)[0])
        self.trees = {self.epoch - 1: self.trees[self.epoch - 1], self.epoch: tree}
        self.sent.clear()
        self.delivered.clear()
        self.send(self.registrar, Switched(self.epoch))
        early, self.early = self.early, []
        for source, packet in early:
            self.on_receive(source, packet)
        waiting, self.to_publish = self.to_publish, []
        for message in waiting:
            self.on_publish(message)

    def _tree(self, setup: Setup) -> PropagationTree:
        tree = PropagationTree(self.name, setup)
        tree.start()
        return tree
