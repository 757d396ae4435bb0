"""Gamecast's own protocol as one more process of the comparison: atoms on sequencing nodes.

The nodes, the plan and the delivery are the product's own (`sequencing.node`, `placement`, `sequencing.delivery`); only
what carries frames between them is here. A real sequencing node is a server beside the game servers. In the comparison
each is at a process, so that all protocols have the same machines, and the load of both counts for one; a machine may
have several.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from classic.protocols.process import TOTALLY, Guarantee, Message, Process, unknown
from classic.protocols.setup import NO_FAULTS, Assumption, Setup
from sequencing.delivery import Delivery
from sequencing.frames import LinkedFrame, PublishedFrame, StampedFrame
from sequencing.node import Node
from sequencing.plan import Plan
from sequencing.ready import Ready


@dataclass(frozen=True, slots=True)
class Enter:
    """A frame in flight to its region's ingress."""

    message: Message
    frame: PublishedFrame

    @property
    def metadata_bytes(self) -> int:
        """The frame's bytes beyond its payload."""
        return len(self.frame.meta) + len(self.frame.region)


@dataclass(frozen=True, slots=True)
class Forward:
    """A frame between two nodes."""

    message: Message
    source: str
    target: str
    linked: LinkedFrame

    @property
    def metadata_bytes(self) -> int:
        """The frame's bytes beyond its payload."""
        return _weight(self.linked.frame)


@dataclass(frozen=True, slots=True)
class Leave:
    """A finished frame in flight to a subscriber."""

    message: Message
    frame: StampedFrame

    @property
    def metadata_bytes(self) -> int:
        """The frame's bytes beyond its payload."""
        return _weight(self.frame)


class Atoms(Process):
    """Ours: a path of sequencing nodes for each region, atoms for what overlaps."""

    title = "atoms on a sequencing network (gamecast)"
    source = "Lumezanu 2006"
    guarantees = TOTALLY | {Guarantee.FIFO}
    assumes = NO_FAULTS | {Assumption.FIFO_LINKS, Assumption.CLOSED_GROUPS}

    def __init__(self, name: str, setup: Setup, placed: tuple[Plan, Mapping[str, str]]) -> None:
        """``placed``: the plan, and each node's process."""
        super().__init__(name, setup)
        self.plan, self.hosts = placed

    def on_start(self) -> None:
        self.nodes = {name: Node(name) for name, host in self.hosts.items() if host == self.name}
        for node in self.nodes.values():
            node.install(self.plan.epoch, self.plan.version, self.plan.steps(node.name))
        self.delivery = Delivery(self.plan.epoch, self.setup.groups_of(self.name), self.plan.atoms)
        self.published: dict[str, int] = defaultdict(int)
        self.on_its_way: dict[bytes, Message] = {}
        """Body of a frame → the message, at nodes and subscribers of this process."""
        self.handed_out: dict[tuple[int, str], int] = defaultdict(int)

    def on_publish(self, message: Message) -> None:
        self.published[message.group] += 1
        number = self.published[message.group]
        frame = PublishedFrame(message.group, self.plan.epoch, self.name, 1, number, 1, message.id.encode())
        self.send(self.hosts[self.plan.paths[message.group][0]], Enter(message, frame))

    def on_receive(self, source: str, packet: object) -> None:
        match packet:
            case Enter(message, frame):
                self.on_its_way[frame.body] = message
                node = self.nodes[self.plan.paths[frame.region][0]]
                node.publish([frame])
                self._pass_on(node)
            case Forward(message, from_node, target, linked):
                self.on_its_way[linked.frame.body] = message
                self.nodes[target].transfer(from_node, [linked])
                self._pass_on(self.nodes[target])
            case Leave(message, stamped):
                self.on_its_way[stamped.body] = message
                for ready in self.delivery.receive([stamped]):
                    if isinstance(ready, Ready):
                        self.deliver(self.on_its_way.pop(ready.frame.body))
            case _:
                raise unknown(packet)

    def _pass_on(self, node: Node) -> None:
        """Send the contents of a node's links, and its finished frames to subscribers."""
        for target, link in node.links.items():
            for linked in link:
                message = self.on_its_way[linked.frame.body]
                self.send(self.hosts[target], Forward(message, node.name, target, linked))
            link.clear()
        for key, finished in node.egress.items():
            new, self.handed_out[key] = finished[self.handed_out[key] :], len(finished)
            for stamped in new:
                self.send_all(self.setup.members(stamped.region), Leave(self.on_its_way[stamped.body], stamped))


def _weight(frame: StampedFrame) -> int:
    return len(frame.region) + len(frame.meta) + len(frame.stamp) + len(str(frame.epoch)) + len(str(frame.last)) + 4
