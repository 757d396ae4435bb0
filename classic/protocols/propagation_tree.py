"""Total and causal order over overlapping groups, by propagation trees.

`metagroups` lays the metagroups out as a forest. A message to a group goes to the manager of the group's primary
metagroup, and from there down, manager to manager, to the metagroups of the group, whose managers hand it to their
members. All links are FIFO, so below any metagroup everything keeps the order in which it went through there; and of
two groups with common members, the lower primary metagroup has the messages of both go through it.

For causal order a sender numbers, for each primary metagroup, its messages that go through it, and a primary metagroup
takes a sender's messages in this order: two messages of one sender to different groups start at different places, and
the later one must not be let through where the earlier one has yet to come by. Across senders the tree does it, for
closed groups: who replies to a message is below the primary metagroup of the message and of the reply.

A finding. Rule 2b of the source buffers a message that is not its sender's next, and lets others pass it. Between
primary metagroups that undoes what FIFO links are there for: a message that was first at the upper one can be last at
the lower one, where an earlier message of its sender, which starts there, has yet to come; and then members below the
upper one only, and members below both, have the two in opposite orders, or a circle closes over several groups. The
simulator finds such runs. Here what comes from the parent stays in its order, and waits behind a message that waits;
it cannot wait for ever, as whatever that message waits for either starts here, or went through the parent before it.

Other departures from Algorithm 6.6: a manager that has children also hands the message to its own metagroup, if that is
in the group (rule 2f speaks of leaves only); and forwards it to those children only that have metagroups of the group
below them (rule 2d names all that are subsumed).

Source: Kshemkalyani 2008, §6.8, Algorithm 6.6.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass

from classic.protocols.metagroups import Forest, Metagroup, build, find_metagroups
from classic.protocols.process import CAUSALLY, TOTALLY, Message, Process, unknown
from classic.protocols.setup import NO_FAULTS, Assumption


@dataclass(frozen=True, slots=True)
class Down:
    """A message on its way through the managers; ``before``: how many of its sender's went through each of them."""

    message: Message
    before: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Hand:
    """From a manager to a member."""

    message: Message


class PropagationTree(Process):
    """Metagroups in a tree, with managers."""

    title = "total order by propagation trees"
    source = "Kshemkalyani 2008, §6.8, Algorithm 6.6"
    guarantees = CAUSALLY | TOTALLY
    assumes = NO_FAULTS | {Assumption.CLOSED_GROUPS, Assumption.FIFO_LINKS}

    def on_start(self) -> None:
        self.settle(build(find_metagroups(self.setup.groups)))
        self.sent_through: dict[str, int] = defaultdict(int)
        """SV: manager of a primary metagroup → the messages of this process that go through it."""
        self.taken: dict[str, int] = defaultdict(int)
        """RV: sender → its messages that went through here."""
        self.from_above: deque[Down] = deque()
        self.from_senders: list[Down] = []

    def settle(self, forest: Forest) -> None:
        """Use a forest of these groups; before anything is sent."""
        self.forest = forest
        self.mine = frozenset(self.setup.groups_of(self.name))
        self.is_primary = self.mine in self.forest.primary.values()

    def on_publish(self, message: Message) -> None:
        packet = Down(message, tuple(self.sent_through.items()))
        primaries = set(self.forest.primary.values())
        for metagroup in self.forest.route(message.group) & primaries:
            self.sent_through[self.forest.manager(metagroup)] += 1
        self.send(self.forest.manager(self.forest.primary[message.group]), packet)

    def on_receive(self, source: str, packet: object) -> None:
        match packet:
            case Hand(message):
                self.deliver(message)
            case Down() if self.is_primary:
                if self.forest.primary[packet.message.group] == self.mine:
                    self.from_senders.append(packet)
                else:
                    self.from_above.append(packet)
                self._take_in_order()
            case Down():
                self._pass_down(packet)
            case _:
                raise unknown(packet)

    def _take_in_order(self) -> None:
        """Let through what is its sender's next; what comes from above keeps its order."""
        while True:
            if self.from_above and self._is_next(self.from_above[0]):
                ready = self.from_above.popleft()
            elif direct := next((down for down in self.from_senders if self._is_next(down)), None):
                self.from_senders.remove(direct)
                ready = direct
            else:
                return
            self.taken[ready.message.sender] += 1
            self._pass_down(ready)

    def _is_next(self, down: Down) -> bool:
        return dict(down.before).get(self.name, 0) == self.taken[down.message.sender]

    def _pass_down(self, down: Down) -> None:
        group = down.message.group
        route: set[Metagroup] = self.forest.route(group)
        for child in self.forest.children(self.mine):
            if child in route:
                self.send(self.forest.manager(child), down)
        if group in self.mine:
            self.send_all(self.forest.members[self.mine], Hand(down.message))
