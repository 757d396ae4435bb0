"""Total and causal order over overlapping groups by one clock for all of them (Newtop, symmetric).

Lamport's algorithm (`lamport`) with several groups: a process has one logical clock, and stamps what it sends to any of
its groups with it. It delivers in the order of (stamp, sender), the first message once it has heard, in every group
that it is a member of and from every member of it, a stamp that is no smaller. Two processes with two groups in common
thus have one order for the messages of both, and stamps order everything, so there are no cycles either.

A silent member must be heard nevertheless. Newtop has silent members send null messages from time to time. Here nulls
are requested, so that a quiet system is quiet. A member that receives a message sends a null to all of its groups,
which says up to which stamp every member should be heard from. A member that has not sent that much answers with a
null.

Source: Kshemkalyani 2008, §6.9 (Newtop; the symmetric variant is named there, its rules are Lamport's).
"""

from __future__ import annotations

from dataclasses import dataclass

from classic.protocols.process import CAUSALLY, TOTALLY, Message, Process, unknown
from classic.protocols.setup import NO_FAULTS, Assumption


@dataclass(frozen=True, slots=True)
class Data:
    """A message and its stamp."""

    message: Message
    stamp: int


@dataclass(frozen=True, slots=True)
class Null:
    """Only a stamp, for the members of a group, which are asked to answer if not heard from up to the stamp
    ``wanted``."""

    group: str
    stamp: int
    wanted: int


class NewtopSymmetric(Process):
    """One clock, any groups."""

    title = "total order over overlapping groups (Newtop, symmetric)"
    source = "Kshemkalyani 2008, §6.9, Newtop"
    guarantees = CAUSALLY | TOTALLY
    assumes = NO_FAULTS | {Assumption.CLOSED_GROUPS, Assumption.FIFO_LINKS}

    def on_start(self) -> None:
        self.clock = 0
        self.groups = self.setup.groups_of(self.name)
        self.heard = {(group, member): 0 for group in self.groups for member in self.setup.members(group)}
        """The last stamp of each member in each group; for this process: the last that it sent."""
        self.asked = dict.fromkeys(self.groups, 0)
        """The stamps up to which the members of each group know that all members are to be heard from."""
        self.held: dict[tuple[int, str], Message] = {}

    def on_publish(self, message: Message) -> None:
        self.clock += 1
        self.heard[message.group, self.name] = self.clock
        self.send_all(self.members(message), Data(message, self.clock))

    def on_receive(self, source: str, packet: object) -> None:
        match packet:
            case Data(message, stamp):
                self._hear(message.group, source, stamp, wanted=stamp)
                self.held[stamp, source] = message
                for group in self.groups:
                    self._speak_up_to(stamp, group)
            case Null(group, stamp, wanted):
                self._hear(group, source, stamp, wanted=wanted)
                self._speak_up_to(wanted, group)
            case _:
                raise unknown(packet)
        while self.held and min(self.held)[0] <= min(self.heard.values()):
            self.deliver(self.held.pop(min(self.held)))

    def _hear(self, group: str, member: str, stamp: int, *, wanted: int) -> None:
        self.clock = max(self.clock, stamp)
        self.asked[group] = max(wanted, self.asked[group])
        self.heard[group, member] = max(stamp, self.heard[group, member])

    def _speak_up_to(self, stamp: int, group: str) -> None:
        """Let the group hear a stamp that is no smaller, and ask for the others', unless that is done already."""
        if min(self.heard[group, self.name], self.asked[group]) < stamp:
            self.clock += 1
            self.asked[group] = max(stamp, self.asked[group])
            self.heard[group, self.name] = self.clock
            self.send_all(self.setup.members(group), Null(group, self.clock, stamp))
