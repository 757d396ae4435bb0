"""A protocol played by hand, packet by packet: for scenarios, for the sources' examples, and for counting."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from classic.executions.journal import Journal
from classic.executions.record import Record
from classic.protocols.catalogue import make_processes
from classic.protocols.process import Alarm, Deliver, Effect, Message, Process, Send
from classic.protocols.setup import Setup
from sequencing.errors import UsageError

PACKETS_MAX = 100_000
"""A protocol that never finishes, such as a circulating token, is not awaited beyond this."""


@dataclass(frozen=True, slots=True)
class InTransit:
    """A packet in flight. ``hops``: how many packets had to go before it since a publish, itself included."""

    source: str
    to: str
    packet: object
    hops: int


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message at a process, and after how many hops."""

    process: str
    message: Message
    hops: int


class Stepper:
    """The processes of a protocol, with the packets in transit between them; nothing moves by itself.

    Raises `UsageError` if the set-up breaks an assumption of the protocol.
    """

    def __init__(self, protocol: type[Process], setup: Setup) -> None:
        self.processes = make_processes(protocol, setup)
        self.setup = setup
        self.transit: list[InTransit] = []
        self.alarms: list[tuple[str, str]] = []
        """Process and name of the alarms that are set."""
        self.deliveries: list[Delivery] = []
        self.packets = 0
        self.passed: list[InTransit] = []
        self._journal = Journal(protocol, setup)
        self._dead: set[str] = set()
        self._published = dict.fromkeys(setup.processes, 0)
        for name, process in self.processes.items():
            self.carry_out(name, process.start(), hops=0)

    @property
    def record(self) -> Record:
        """The record of the run so far."""
        return self._journal.record()

    def delivered(self, process: str) -> list[str]:
        """The messages that a process has delivered."""
        return [delivery.message.id for delivery in self.deliveries if delivery.process == process]

    def publish(self, process: str, *, group: str = "", message_id: str = "") -> list[Effect]:
        """Have a process publish; a single group need not be named, and ids are made if not given."""
        self._named(process)
        self._published[process] += 1
        group = group or next(iter(self.setup.groups))
        message = Message(message_id or f"{process}{self._published[process]}", process, group)
        effects = self.processes[process].publish(message)
        self._journal.published(message)
        return self.carry_out(process, effects, hops=0)

    def receive(self, to: str, source: str, *, number: int = 1) -> list[Effect]:
        """Have a process receive a packet in transit from another, counted by ``number`` from 1.

        Raises `UsageError` if there are fewer packets, or if it would overtake another where links are FIFO.
        """
        link = [packet for packet in self.transit if (packet.source, packet.to) == (source, to)]
        if number > len(link):
            raise UsageError(f"{len(link)} packets are on their way from {source} to {to}, there is no number {number}")
        if number > 1 and self.setup.fifo_links:
            raise UsageError(f"links are FIFO here: packet {number} from {source} to {to} cannot overtake")
        return self._pass(link[number - 1])

    def ring(self, process: str) -> list[Effect]:
        """Have the first alarm that a process has set ring."""
        alarm = next((alarm for alarm in self.alarms if alarm[0] == process), None)
        if alarm is None:
            raise UsageError(f"{process} has set no alarm")
        self.alarms.remove(alarm)
        return self.carry_out(process, self.processes[process].ring(alarm[1]), hops=0)

    def suspect(self, process: str, other: str) -> list[Effect]:
        """Report to a process that another has crashed."""
        self._named(process)
        return self.carry_out(process, self.processes[process].suspect(other), hops=0)

    def settle(self, *, alarms: bool = False, until: Callable[[], bool] = lambda: False) -> int:
        """Pass on the packets in transit, first sent first, until none is left; return their number.

        ``alarms``: also ring alarms when nothing is in transit. ``until``: stop earlier.
        """
        for passed in range(PACKETS_MAX):
            if until() or self.advance(alarms=alarms) is None:
                return passed
        raise UsageError(f"not settled after {PACKETS_MAX:,} packets: this protocol is never done; say until when")

    def advance(self, *, alarms: bool = False) -> tuple[str, list[Effect]] | None:
        """Pass on the packet that was sent first, or ring the alarm that was set first; None if there is neither."""
        if self.transit:
            packet = self.transit[0]
            return packet.to, self._pass(packet)
        if alarms and self.alarms:
            process = self.alarms[0][0]
            return process, self.ring(process)
        return None

    def crash(self, process: str) -> None:
        """Have a process crash; its packets in transit count as not sent yet, and are lost with it."""
        self._named(process)
        self._journal.crashed(process)
        self._dead.add(process)
        self.transit = [packet for packet in self.transit if process not in (packet.source, packet.to)]
        self.alarms = [alarm for alarm in self.alarms if alarm[0] != process]

    def carry_out(self, process: str, effects: list[Effect], *, hops: int = 0) -> list[Effect]:
        """Carry out a process's effects, and return them; for calls that only some protocols have, such as `join`."""
        for effect in effects:
            match effect:
                case Send(to) if to in self._dead:
                    self.packets += 1
                case Send(to, packet):
                    self.packets += 1
                    self.transit.append(InTransit(process, to, packet, hops + 1))
                case Alarm(name):
                    self.alarms.append((process, name))
                case Deliver(message):
                    self.deliveries.append(Delivery(process, message, hops))
            self._journal.carried_out(process, effect)
        return effects

    def _pass(self, packet: InTransit) -> list[Effect]:
        self.transit.remove(packet)
        self.passed.append(packet)
        effects = self.processes[packet.to].receive(packet.source, packet.packet)
        return self.carry_out(packet.to, effects, hops=packet.hops)

    def _named(self, process: str) -> None:
        if process not in self.processes:
            raise UsageError(f"there is no process {process}: there are {', '.join(self.processes)}")
        if process in self._dead:
            raise UsageError(f"{process} has crashed")
