"""Virtual synchrony: views, which all install in one order, and multicasts that stay in the view they were sent in.

While nothing changes, a member sends its messages to the others of its view, and all deliver at once what comes (order
is a separate matter; over FIFO links each sender's is kept). A crash, a wish to join or to leave is a change of view,
and before it takes effect the view is flushed:

- A member that knows of changes stops delivering and publishing, and sends to all a Flush: the view, all changes that
  it knows of, and all messages that it has received in the view. A member that learns of more sends a new Flush.
- When a member has the Flush of every member that stays, all naming the same changes as its own, it delivers what is in
  any of them, and installs the next view.

Why two correct members agree: either needs the other's Flush with exactly its own changes. A member's changes only
grow, and once it has installed it sends no more Flushes for the view. So if p installs with changes S and q with S',
then q's last Flush says S and p's last says S', which makes S = S'. If one has installed and the other learns of more
changes, it cannot finish without the first one, which tells it of its decision instead; the new changes are made from
the next view. A decision is not taken from a process that this one wants removed: its Flush has told the others that
they need not wait for that one, so they may have decided otherwise. The messages are the same because they are taken
from the same Flushes.

A joining process takes no part in the agreement, so it cannot trust one member's word: that member may have decided,
reported, and crashed, while the others decide otherwise. It installs its first view when all earlier members of it,
except the crashed ones, have reported the same. (So its own suspicions have to be right until then.)

If crash reports overtake the views of the crashed, a joiner may know of no member any more whose report it could trust,
while another joiner has installed the view. So a process that has installed its first view reports it to those that
join with it. A joiner that learns in this way that it cannot install gives up: it says so to all, who remove it.

Two joiners may also have installed different first views, by members that have all crashed. So Flushes and decisions
name the members of the view that they end, and nothing is taken from a process that was in another view of this number.
The two tell each other, and one gives up: the one that is not in the other's view, if the other is in its own; else the
one of the smaller view.

The last messages of a removed process are delivered by all or by none. A process that was removed though it is alive
(it was too slow) learns of it from the first Flush that names it, and stops: forcible removal is how a wrong suspicion
is made true. With many wrong suspicions a group can remove itself altogether; virtual synchrony does not solve
consensus, and does not survive partitions as one group.

Flushes carry everything received in the view: stability tracking, which would keep them small, is left out.

Source: Gupta 2019, "Virtual Synchrony". n − 1 messages a multicast; about n² a change of view.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from classic.protocols.process import (
    EVERYTHING_ONCE,
    Effect,
    Guarantee,
    Halt,
    Install,
    Joinable,
    Message,
    Standing,
    unknown,
)
from classic.protocols.setup import Assumption


@dataclass(frozen=True, slots=True)
class Data:
    """A message, the view that it is sent in, and its number among its sender's in the view."""

    view: int
    number: int
    message: Message


@dataclass(frozen=True, slots=True)
class Flush:
    """The state of a member at the end of a view."""

    view: int
    members: tuple[str, ...]
    leaving: tuple[str, ...]
    joining: tuple[str, ...]
    received: tuple[Data, ...]
    order: tuple[tuple[str, int], ...] = ()
    """Senders and numbers of messages of the view, as far as they have an order; `view_synchronous_total` has."""


@dataclass(frozen=True, slots=True)
class Decided:
    """The view that follows one, the processes that asked to join, and the deliveries at the end of the one before."""

    view: int
    members: tuple[str, ...]
    joining: tuple[str, ...]
    received: tuple[Data, ...]
    before: tuple[str, ...] = ()
    """The members of the view that it follows."""


@dataclass(frozen=True, slots=True)
class Join:
    """The sender wants to be a member."""


@dataclass(frozen=True, slots=True)
class GivenUp:
    """The sender will not install the view that it is to join in."""


class VirtualSynchrony(Joinable):
    """Views and flushes; the first view is the group, and other processes may `join`."""

    title = "virtual synchrony"
    source = "Gupta 2019, Virtual Synchrony"
    guarantees = EVERYTHING_ONCE | {Guarantee.FIFO, Guarantee.VIEWS, Guarantee.VIEW_SYNCHRONY}
    assumes = frozenset(
        {Assumption.RELIABLE_LINKS, Assumption.FIFO_LINKS, Assumption.ONE_GROUP, Assumption.CRASHES_REPORTED}
    )

    comes_back = False

    def on_start(self) -> None:
        [self.founders] = self.setup.groups.values()
        self.view, self.members_now = 0, tuple[str, ...]()
        self.halted = False
        self.leaving: set[str] = set()
        self.joining: set[str] = set()
        self.flushes: dict[str, Flush] = {}
        self.received: dict[tuple[str, int], Data] = {}
        self.delivered: set[str] = set()
        self.sent = 0
        self.to_publish: deque[Message] = deque()
        self.ahead: list[tuple[str, object]] = []
        """Packets that belong to views that are not installed yet."""
        self.decisions: dict[int, Decided] = {}
        self.offers: dict[str, Decided] = {}
        """While this process is joining: the first view that each member offers."""
        if self.name in self.founders:
            self._install(Decided(1, self.founders, (), ()))

    def join(self, at: str = "") -> list[Effect]:
        """Ask to become a member."""
        self.send_all((p for p in self.setup.processes if p != self.name), Join())
        return self._finish_step()

    @property
    def standing(self) -> Standing:
        """A process that was removed never comes back."""
        if self.halted:
            return Standing.OUT
        return Standing.IN if self.view else Standing.JOINING

    def leave(self) -> list[Effect]:
        """Leave, and stop."""
        if self.view:
            self._learn(leaving=[self.name])
            self._give_up("left")
        else:
            self._give_up("left before its first view")
        return self._finish_step()

    def on_publish(self, message: Message) -> None:
        self.to_publish.append(message)
        self._publish_waiting()

    def on_suspicion(self, process: str) -> None:
        if not self.halted:
            self._learn(leaving=[process])
            self._accept_offer()

    def on_receive(self, source: str, packet: object) -> None:
        if self.halted:
            return
        match packet:
            case Flush(view, _, leaving) if self.name in leaving and source != self.name:
                self._halt(f"removed from view {view + 1} by {source}")
            case Data(view) | Flush(view) if view > self.view:
                self.ahead.append((source, packet))
            case Data(view) | Flush(view) if view == self.view and source not in self.members_now:
                self.send(source, self.decisions[view])  # it was removed, and has continued without knowing it yet
            case Flush(view, members) if view == self.view and members != self.members_now:
                self._differ(source, view, members)
            case Data(view, number) if view == self.view:
                self.received[source, number] = packet
                if not self._is_flushing():
                    self.on_data(packet)
            case Flush(view) if view < self.view:
                if view + 1 in self.decisions:
                    self.send(source, self.decisions[view + 1])
            case Flush(_, _, leaving, joining):
                self.flushes[source] = packet
                self._learn(leaving=leaving, joining=joining)
                self._finish_flush()
            case Decided() if self.view == 0:
                self.offers[source] = packet
                self._accept_offer()
            case Decided(view, members) if view in self.decisions and self.decisions[view].members != members:
                self._differ(source, view, members)
            case Decided(view, before=before) if (
                view - 1 in self.decisions and self.decisions[view - 1].members != before
            ):
                self._differ(source, view - 1, before)
            case Decided(view) if view == self.view + 1 and source in set(self.members_now) - self.leaving:
                self._install(packet)
            case Join():
                self._learn(joining=[source])
            case GivenUp():
                self._learn(leaving=[source])
                self._accept_offer()
            case Data() | Decided():
                pass  # of an earlier view, or decided by one that is removed or that it has promised others to remove
            case _:
                raise unknown(packet)

    def on_data(self, data: Data) -> None:
        """A message of this view, which is not being flushed, has been received."""
        self._deliver_once(data.message)

    def on_view(self) -> None:
        """A view is installed, and everything of the one before is delivered."""

    def order(self) -> tuple[tuple[str, int], ...]:
        """Return senders and numbers of messages of this view, as far as this process knows their order."""
        return ()

    def _changes(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The changes from this view to the next: processes that leave and that join; one in both is not let in."""
        joining = self.joining - set(self.members_now)
        return tuple(sorted(self.leaving & (joining | set(self.members_now)))), tuple(sorted(joining))

    def _is_flushing(self) -> bool:
        return any(self._changes())

    def _learn(self, *, leaving: Iterable[str] = (), joining: Iterable[str] = ()) -> None:
        """Add to the changes that are known, and flush if there is any news for this view."""
        before = self._changes()
        self.leaving.update(leaving)
        self.joining.update(joining)
        if self._changes() != before and self.members_now:
            self._flush()

    def _flush(self) -> None:
        flush = Flush(self.view, self.members_now, *self._changes(), tuple(self.received.values()), self.order())
        self.send_all(self.members_now, flush)  # to those who leave as well: they may not know it

    def _finish_flush(self) -> None:
        leaving, joining = self._changes()
        staying = [m for m in self.members_now if m not in leaving]
        flushes = [self.flushes.get(m) for m in staying]
        if not all(flush and (flush.leaving, flush.joining) == (leaving, joining) for flush in flushes):
            return
        received = {(data.message.sender, data.number): data for f in flushes if f for data in f.received}
        longest: tuple[tuple[str, int], ...] = max((f.order for f in flushes if f), key=len)
        order = dict.fromkeys((*longest, *sorted(received)))
        last = tuple(received[key] for key in order if key in received)
        members = tuple(p for p in self.setup.processes if p in staying or (p in joining and p not in leaving))
        self._install(Decided(self.view + 1, members, joining, last, self.members_now))

    def _accept_offer(self) -> None:
        for offer in self.offers.values() if self.view == 0 else ():
            asked = set(offer.members) - set(offer.joining) - self.leaving
            if asked and all(m in self.offers and self.offers[m].members == offer.members for m in asked):
                self._install(offer)
                return
        if any(self._is_out_of_reach(source, offer) for source, offer in self.offers.items()):
            self._give_up("all members that could confirm its first view have crashed: join under another name")

    def _is_out_of_reach(self, source: str, offer: Decided) -> bool:
        """Whether a joiner has installed a view with this process, and all that could confirm it have crashed."""
        asked = set(offer.members) - set(offer.joining) - self.leaving
        return self.view == 0 and not asked and source in offer.joining and source not in self.leaving

    def _differ(self, source: str, view: int, members: tuple[str, ...]) -> None:
        """Another process has installed another view of this number: give up, or tell it, if it is counted on."""
        mine = self.decisions[view]
        if source not in self.members_now or source in self.leaving:
            return
        is_in, has_in = self.name in members, source in mine.members
        is_smaller = (len(members), members) > (len(mine.members), mine.members)
        if is_smaller if is_in == has_in else has_in:
            self._give_up(f"{source} has installed another view {view}: join under another name")
        else:
            self.send(source, mine)

    def _install(self, decided: Decided) -> None:
        if self.name not in decided.members:
            self._halt(f"removed from view {decided.view}")
            return
        self.send_all((p for p in decided.joining if p != self.name), decided)
        self.send_all((p for p in self.members_now if p not in decided.members), decided)
        if self.view:
            for data in decided.received:
                self._deliver_once(data.message)
        self.view, self.members_now = decided.view, decided.members
        self.on_view()
        self.decisions[self.view] = decided
        self.joining -= self.leaving | set(self.members_now)
        self.flushes.clear()
        self.received.clear()
        self.sent = 0
        self.effect(Install(self.view, self.members_now))
        if self._is_flushing():
            self._flush()
        self._publish_waiting()
        ahead, self.ahead = self.ahead, []
        for source, packet in ahead:
            self.on_receive(source, packet)

    def _publish_waiting(self) -> None:
        while self.to_publish and self.members_now and not self._is_flushing() and not self.halted:
            self.sent += 1
            data = Data(self.view, self.sent, self.to_publish.popleft())
            self.send_all((m for m in self.members_now if m != self.name), data)
            # Not by way of a packet to itself: a Flush of the same step has to hold it already.
            self.received[self.name, self.sent] = data
            self.on_data(data)

    def _deliver_once(self, message: Message) -> None:
        if message.id not in self.delivered:
            self.delivered.add(message.id)
            self.deliver(message)

    def _give_up(self, reason: str) -> None:
        self.send_all((p for p in self.setup.processes if p != self.name), GivenUp())
        self._halt(reason)

    def _halt(self, reason: str) -> None:
        self.halted = True
        self.effect(Halt(reason))
