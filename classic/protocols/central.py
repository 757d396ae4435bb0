"""Total and causal order through one coordinator that relays everything.

A sender sends its message to the coordinator, which forwards it to the members over FIFO links; each member delivers
messages as they arrive. All members have the coordinator's order, so the order is total, also across groups. It is
causal as well: a process publishes after its deliveries, hence after the coordinator has forwarded these. Its own
messages reach the coordinator in order, over a FIFO link.

Source: Kshemkalyani 2008, §6.6.1, Algorithm 6.4. Two hops; with n processes, one of them the coordinator, exactly n
messages for a broadcast of any other (and n − 1 for one of its own). All load and all trust is on one process.
"""

from __future__ import annotations

from dataclasses import dataclass

from classic.protocols.process import CAUSALLY, TOTALLY, Message, Process, unknown
from classic.protocols.setup import NO_FAULTS, Assumption


@dataclass(frozen=True, slots=True)
class Request:
    """To the coordinator."""

    message: Message


@dataclass(frozen=True, slots=True)
class Relay:
    """From the coordinator."""

    message: Message


class Central(Process):
    """The first process relays everything."""

    title = "total order through a coordinator"
    source = "Kshemkalyani 2008, §6.6.1, Algorithm 6.4"
    guarantees = CAUSALLY | TOTALLY
    assumes = NO_FAULTS | {Assumption.FIFO_LINKS}

    def on_publish(self, message: Message) -> None:
        self.send(self.setup.processes[0], Request(message))

    def on_receive(self, source: str, packet: object) -> None:
        match packet:
            case Request(message):
                self.send_all(self.members(message), Relay(message))
            case Relay(message):
                self.deliver(message)
            case _:
                raise unknown(packet)
