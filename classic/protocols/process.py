"""An ordering protocol: one pure state machine per process, and, as data, its guarantees and its assumptions.

The inputs of a process are: its application publishes, a packet arrives, an alarm rings, another process has failed. It
answers with effects: packets to send, messages to deliver, alarms to set. It never reads a clock, draws a number or
touches a network, so the same class runs under the adversarial simulator and over real mailboxes.

To receive is not to deliver: a protocol holds received messages back until delivering them cannot break the order that
it promises.

A packet that a process sends to itself arrives at once, when the step that sent it is done, and costs nothing. So a
protocol can be written as its source has it ("to all members"), and the messages of the network are counted as its
source counts them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from classic.protocols.setup import Assumption, Setup
from sequencing.errors import UsageError


class Guarantee(StrEnum):
    """The guarantees that a protocol can promise; `classic.executions.guarantees` has one checker for each."""

    VALIDITY = "validity"
    """Each message of a correct process is delivered by every correct member of its group."""
    AGREEMENT = "agreement"
    """Each message that one correct process delivers is delivered by all correct members of its group."""
    INTEGRITY = "integrity"
    """Each message is delivered at most once, only to members of its group, and only if it was published."""
    FIFO = "fifo"
    """The messages of one sender to one group are delivered in the order in which it published them."""
    CAUSAL = "causal"
    """Messages whose publishing is related by happened-before are delivered in this order, whatever their groups."""
    TOTAL = "total"
    """Any two processes deliver the messages that they both deliver in one order, whatever their groups."""
    ACYCLIC = "acyclic"
    """The union of all delivery orders has no cycle: total, and more where groups overlap in a ring."""
    UNIFORM_AGREEMENT = "uniform agreement"
    UNIFORM_INTEGRITY = "uniform integrity"
    UNIFORM_FIFO = "uniform fifo"
    UNIFORM_CAUSAL = "uniform causal"
    UNIFORM_TOTAL = "uniform total"
    """The uniform ones bind the processes that crash later as well."""
    GAPS = "total order with gaps"
    """One order; where something may be missing between two deliveries, the application is told so in its place."""
    SYNCHRONOUS = "synchronous"
    """The execution has no crown: it could have run on instantaneous messages."""
    VIEWS = "views"
    """All correct processes install the same views in the same order, from the first that each is a member of."""
    VIEW_SYNCHRONY = "view synchrony"
    """Correct processes that go from a view to the next deliver the same messages in it, all sent by its members."""


EVERYTHING_ONCE = frozenset({Guarantee.VALIDITY, Guarantee.AGREEMENT, Guarantee.INTEGRITY})
CAUSALLY = EVERYTHING_ONCE | {Guarantee.FIFO, Guarantee.CAUSAL}
TOTALLY = EVERYTHING_ONCE | {Guarantee.TOTAL, Guarantee.ACYCLIC}


@dataclass(frozen=True, slots=True)
class Message:
    """A message that an application publishes to a group; ``id`` is unique in the whole system."""

    id: str
    sender: str
    group: str
    payload: str = ""


@dataclass(frozen=True, slots=True)
class Send:
    """Send a packet; ``lossy`` ones may be lost where the set-up has lossy links."""

    to: str
    packet: object
    lossy: bool = False


@dataclass(frozen=True, slots=True)
class Deliver:
    """Hand a message to the application."""

    message: Message


@dataclass(frozen=True, slots=True)
class Scheduled:
    """The send event of a message takes place now, later than the application's call (synchronous protocols)."""

    message: Message


@dataclass(frozen=True, slots=True)
class Addressed:
    """The message is for these processes: where groups change, the members when it is sent."""

    message: Message
    members: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Alarm:
    """Call ``ring(name)`` after so long. Alarms are not cancelled: one that is out of date is to be ignored."""

    name: str
    after_ms: float


@dataclass(frozen=True, slots=True)
class Gap:
    """Messages may be missing here, between what was delivered last and what is delivered next."""


@dataclass(frozen=True, slots=True)
class Install:
    """A new view: from now on the group has these members."""

    number: int
    members: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Enter:
    """The process has become a member; protocols with views have `Install` for it."""


@dataclass(frozen=True, slots=True)
class Halt:
    """The process is a member no longer, and stops: it was removed, or has left in good order (``left``)."""

    reason: str
    left: bool = False


Effect = Send | Deliver | Scheduled | Addressed | Alarm | Gap | Install | Enter | Halt


class Process(ABC):
    """One process of a protocol; subclasses fill in the ``on_…`` methods, drivers call the others.

    Every call returns the effects of the step, to be carried out in their order; a process that crashes has carried out
    the first few of them.
    """

    title: ClassVar[str]
    source: ClassVar[str]
    guarantees: ClassVar[frozenset[Guarantee]]
    assumes: ClassVar[frozenset[Assumption]]

    def __init__(self, name: str, setup: Setup) -> None:
        self.name = name
        self.setup = setup
        self._effects: list[Effect] = []
        self._own: deque[object] = deque()

    def start(self) -> list[Effect]:
        """Begin; called once, before anything else."""
        self.on_start()
        return self._finish_step()

    def publish(self, message: Message) -> list[Effect]:
        """Publish for the application. Raises `UsageError` for a group that the sender may not publish to."""
        if Assumption.CLOSED_GROUPS in self.assumes and self.name not in self.setup.members(message.group):
            raise UsageError(
                f"{self.name} is no member of {message.group}, and {self.title} works in closed groups only: "
                "let the sender join, or take a protocol for open groups"
            )
        self.on_publish(message)
        return self._finish_step()

    def receive(self, source: str, packet: object) -> list[Effect]:
        """Take a packet from another process."""
        self.on_receive(source, packet)
        return self._finish_step()

    def ring(self, alarm: str) -> list[Effect]:
        """An alarm that this process set has rung."""
        self.on_alarm(alarm)
        return self._finish_step()

    def suspect(self, process: str) -> list[Effect]:
        """The failure detector says that another process has crashed."""
        self.on_suspicion(process)
        return self._finish_step()

    def on_start(self) -> None:  # noqa: B027 — most have nothing to begin with
        """Begin."""

    @abstractmethod
    def on_publish(self, message: Message) -> None:
        """The application publishes."""

    @abstractmethod
    def on_receive(self, source: str, packet: object) -> None:
        """Take a packet; ``source`` is this process itself for a packet that it sent to itself."""

    def on_alarm(self, alarm: str) -> None:  # noqa: B027 — most set none
        """An alarm rings."""

    def on_suspicion(self, process: str) -> None:  # noqa: B027 — most assume that no process crashes
        """Another process is said to have crashed."""

    def send(self, to: str, packet: object, *, lossy: bool = False) -> None:
        """Send a packet to one process, which may be this one."""
        if to == self.name:
            self._own.append(packet)
        else:
            self._effects.append(Send(to, packet, lossy))

    def send_all(self, to: Iterable[str], packet: object, *, lossy: bool = False) -> None:
        """Send a packet to each of some processes."""
        for process in to:
            self.send(process, packet, lossy=lossy)

    def deliver(self, message: Message) -> None:
        """Hand a message to the application."""
        self._effects.append(Deliver(message))

    def effect(self, effect: Effect) -> None:
        """Have another effect carried out."""
        self._effects.append(effect)

    def members(self, message: Message) -> tuple[str, ...]:
        """The processes that a message is for."""
        return self.setup.members(message.group)

    def _finish_step(self) -> list[Effect]:
        while self._own:
            self.on_receive(self.name, self._own.popleft())
        effects, self._effects = self._effects, []
        return effects


class Standing(StrEnum):
    """Where a process stands to a group that it may join and leave."""

    IN = "in"
    JOINING = "joining"
    OUT = "out"
    """Outside, or about to be."""


class Joinable(Process):
    """A process of a protocol whose groups change: others than the group's members, which begin, may join, and any
    may leave.
    """

    comes_back: ClassVar[bool] = True
    """Whether a process that has left may join again."""

    @abstractmethod
    def join(self, at: str = "") -> list[Effect]:
        """Ask to become a member; ``at``: of which member, for protocols in which that matters."""

    @abstractmethod
    def leave(self) -> list[Effect]:
        """Leave; it has taken effect with `Halt`."""

    @property
    @abstractmethod
    def standing(self) -> Standing:
        """Where this process stands, by all that it was asked for."""


class Regrouping(Process):
    """A process of a protocol for several groups, which processes join and leave."""

    @abstractmethod
    def regroup(self, *, joins: Iterable[str] = (), leaves: Iterable[str] = ()) -> list[Effect]:
        """Ask to become a member of groups, also of new ones, and to be none any more of others.

        It takes effect later, between two messages. Until then this process may publish to the groups that it has, but
        for those that it has asked to leave.
        """

    @abstractmethod
    def standing(self, group: str) -> Standing:
        """Where this process stands to a group, by all that it was asked for."""


def unknown(packet: object) -> AssertionError:
    """The error of a packet that the protocol does not have: a bug of ours."""
    return AssertionError(f"no such packet in this protocol: {packet!r}")
