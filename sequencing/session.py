"""The session: one connection's publisher and subscriber, and everything that passes between them. No input or output.

A host (the asyncio client, the simulator, the explorer) calls a method for each thing that happened. The method returns
`Effects`: what the host carries out, in the order that `Effects` states. So every host runs the same glue:

- A region is joined with a marker that this connection publishes itself.
- In causal order, an event waits until this connection has delivered its own earlier events elsewhere. The subscriber
  notices that, and the publisher acts on it.
- After each plan, the publisher learns the new ingresses before the subscriber marks anything there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from types import MappingProxyType
from typing import TYPE_CHECKING, Generic, NamedTuple

from sequencing.cut import ReadResult
from sequencing.errors import GamecastError, Superseded
from sequencing.followed import Read
from sequencing.frames import PublishedFrame, StampedFrame
from sequencing.node import Answer
from sequencing.outbox import Token
from sequencing.publisher import Publisher, Question
from sequencing.ready import Missing, Ready
from sequencing.record import Interest, Record, Request
from sequencing.resolved import Resolved
from sequencing.subscriber import Subscriber

if TYPE_CHECKING:
    from sequencing.updates import OwnEvents

Marker = tuple[str, bytes]
"""A region, and the body of a marker for it."""


class Effects(NamedTuple, Generic[Token]):
    """What a host carries out after a call of a session, in this order.

    1. ``deliver``: hand these events and gaps to the application. They come first: what follows may tell it that a
       region is joined or left, and that refers to the deliveries so far.
    2. ``resolve``: tell the publishers of these events their fate.
    3. ``mark_again``: markers whose fate is unknown. Call `Session.mark` with each after a pause: a join waits for it,
       and the node may be unreachable now.
    4. ``publish``: at these nodes there are frames to offer: call `Session.take`, send them, and pass the answers to
       `Session.answered`. They follow the deliveries that they causally depend on.
    5. ``reads_changed``: read the streams that `Session.reads` names from now on; break off reads that wait for others.
       This is after publishing, because a new stream may have to show a marker that is published here.
    6. ``interest_changed``: tell the control store `Session.interest`.
    """

    deliver: Sequence[Ready | Missing] = ()
    resolve: Sequence[Resolved[Token]] = ()
    mark_again: Sequence[Marker] = ()
    publish: AbstractSet[str] = frozenset()
    reads_changed: bool = False
    interest_changed: bool = False
    is_plain: bool = False
    """Whether only deliveries can have changed: the joined and followed regions are certainly as before."""
    joined: Sequence[str] = ()
    """Regions whose events are delivered from now on."""
    left: Sequence[str] = ()
    """Regions that are not wanted any more."""
    ended: Mapping[str, int] = MappingProxyType({})
    """Region → the epoch that this connection has followed to its end, delivered or not; for a host's own books."""


class Session(Generic[Token]):
    """One connection of a network, from its introduction to its end."""

    def __init__(self, name: str, incarnation: int, *, causal: bool = False) -> None:
        """``incarnation``: see `Publisher`; ``causal``: whether the network orders causally."""
        self.name = name
        self.incarnation = incarnation
        """The one that the connection was introduced with; see also `renew`."""
        self.is_causal = causal
        self._publisher: Publisher[Token | None] = Publisher(name, incarnation, causal=causal)
        self._subscriber = Subscriber(name, incarnation)
        self.publish = self._publisher.add
        """Buffer an event; return the node where there is a frame to offer now, None while the region has no place.

        It returns the node instead of `Effects` that name it in ``publish``, and is bound here without a method of its
        own: a game server calls this far more often than anything else.
        """
        self.publish_lone = self._publisher.take_lone
        """Publish an event that nothing is in the way of: return its node, and the frame to send there; else None."""
        self.publish_keyed = self._publisher.add_keyed
        """The same for an event that names a key, or has conditions."""
        self.publish_joint = self._publisher.add_joint
        """The same for an event of several regions."""
        self.can_be_together = self._publisher.can_be_together
        self.own_events: OwnEvents = self._publisher
        """What updates must know of the events that were published before them."""
        self.buffered = self._publisher.buffered
        """How much waits without a fate."""
        self._generation = 0
        self._was_settled = False

    # What the host may ask at any time.

    @property
    def wanted(self) -> AbstractSet[str]:
        """The regions that the application asked for."""
        return self._subscriber.wanted

    @property
    def joined(self) -> AbstractSet[str]:
        """The regions whose events are delivered."""
        return self._subscriber.joined

    @property
    def held_frames(self) -> int:
        """Frames that are received and wait for others."""
        return self._subscriber.held_frames

    @property
    def stale(self) -> Mapping[str, int]:
        """See `Publisher.stale`."""
        return self._publisher.stale

    @property
    def forgotten(self) -> int:
        """See `Publisher.forgotten`."""
        return self._publisher.forgotten

    @property
    def last_incarnation(self) -> int:
        """The newest one that its events have had; see `renew`."""
        return self._publisher.incarnation

    @property
    def generation(self) -> int:
        """Grows with each ``reads_changed``, so that a reader can tell whether its own streams may have changed."""
        return self._subscriber.generation

    def reads(self, node: str | None = None) -> dict[str, Read]:
        """Return the streams to read, at one node or everywhere: region → stream and position."""
        return self._subscriber.reads(node)

    def changed_reads(self, node: str) -> dict[str, Read | None]:
        """Return what of `reads` at a node is not as at the last call; None: it is not read there any more."""
        return self._subscriber.changed_reads(node)

    def turned(self) -> list[str]:
        """Return the nodes where another stream is to be read than at the last call."""
        return self._subscriber.turned()

    def interest(self) -> Interest:
        """Return all that is wanted."""
        return self._subscriber.interest()

    def request(self, *, whole: bool = False) -> Request | None:
        """Return what to ask the network for; see `Grants.request`."""
        return self._subscriber.request(whole=whole)

    def begin(self, region: str) -> tuple[int, int]:
        """Return (epoch, region sequence) after which a region is delivered, once it is joined."""
        return self._subscriber.begin(region)

    def epoch(self, region: str) -> int:
        """Return the epoch that a joined region is followed in; of epochs before, all that there was is delivered."""
        return self._subscriber.epoch(region)

    def delivers_after(self, region: str) -> tuple[int, int] | None:
        """Return (epoch, region sequence) after which a region is delivered, joined or not yet; None if it is not."""
        return self._subscriber.delivers_after(region)

    def held(self, region: str) -> int:
        """Return how many frames of a region that is being read are received and wait for others."""
        return self._subscriber.held(region)

    def unassigned(self) -> list[str]:
        """Return the regions that have events but no place in the plan, and the sets that wait for a plan."""
        return self._publisher.unassigned()

    def published_regions(self) -> list[str]:
        """Return all regions that events were ever published to."""
        return self._publisher.regions()

    def awaits_own(self, regions: AbstractSet[str]) -> bool:
        """Return whether own events of some regions must be delivered before others go out: in causal order."""
        return not self._publisher.awaited().isdisjoint(regions)

    def doubtful(self) -> list[str]:
        """Return the regions that publish nothing before `renew`."""
        return self._publisher.doubtful()

    def waiting_events(self, node: str) -> int:
        """Return how many events a request to a node would carry now."""
        return self._publisher.waiting_events(node)

    def landing(self, node: str) -> Sequence[Question]:
        """See `Publisher.landing`."""
        return self._publisher.landing(node)

    def in_flight(self, node: str) -> Sequence[PublishedFrame]:
        """Return the frames of the request to a node that waits for its answers; none if none does."""
        return self._publisher.under_way(node)

    # What the application does.

    def subscribe(self, regions: Iterable[str], floor: int = 0, *, returns: bool = False) -> Effects[Token]:
        """Ask for regions; see `Subscriber.subscribe`."""
        return self._effects(self._subscriber.subscribe(regions, floor, returns=returns), interest_changed=True)

    def unsubscribe(self, regions: Iterable[str]) -> Effects[Token]:
        """Give regions up."""
        left = sorted(self._subscriber.wanted.intersection(regions))
        return self._effects(self._subscriber.unsubscribe(left), interest_changed=True, left=left)

    # What the network does.

    def changed(self, record: Record) -> Effects[Token]:
        """Follow the next record, each in its turn. Raises `SessionExpired` or `Superseded`; see `Subscriber.update`.

        When it raises, the host ends the session: `failed` resolves what is buffered.
        """
        self._publisher.assign(record.plan)
        return self._effects(self._subscriber.update(record), self._publisher.abandoned())

    def granted(self, request: Request) -> Effects[Token]:
        """Take that a network of one node has granted a request."""
        return self._effects(self._subscriber.granted(request))

    def noted(self, request: Request) -> None:
        """Take that the network knows a request, which a plan is to grant."""
        self._subscriber.noted(request)

    def found_ends(self, ends: Iterable[tuple[str, int, StampedFrame | None]]) -> Effects[Token]:
        """Take the newest frames, None of empty streams, where `Read` has no position: (region, epoch, frame) each."""
        return self._effects(self._subscriber.found_ends(ends))

    def read(self, result: ReadResult) -> Effects[Token]:
        """Take what was read at a node."""
        return self._effects(self._subscriber.receive(*result))

    def read_next(self, frame: StampedFrame, whole: Mapping[str, int] | None) -> Ready | None:
        """Take a frame that was read alone, if it is what is expected next of its region: deliver what is returned.

        None: pass it to `read`, which would do the same, with effects. ``whole``: see `sequencing.cut.ReadResult`.
        """
        if self.is_causal or not self._was_settled or self._publisher.woken_nodes:
            return None
        return self._subscriber.receive_next(frame, whole)

    # Publishing, node by node.

    def mark(self, region: str, body: bytes) -> Effects[Token]:
        """Publish a marker of ``mark_again``."""
        self._publisher.mark(region, body, None)
        return self._published([])

    def take(self, node: str) -> list[PublishedFrame]:
        """Return the frames of the next request to a node; the same again until they are answered or given up."""
        return self._publisher.take(node)

    def unanswered(self, node: str) -> None:
        """Note that the answers to the last request to a node were lost: the node may have accepted its frames."""
        self._publisher.unanswered(node)

    def answered(self, node: str, answers: Sequence[Answer]) -> Effects[Token]:
        """Take a node's answers to the last request."""
        return self._published(self._publisher.answered(node, answers))

    def answered_lone(self, node: str, answer: Answer) -> Resolved[Token] | None:
        """As `answered`, of a request of one frame of events, if it was accepted and nothing else follows from that.

        None: pass it to `answered`.
        """
        return self._publisher.answered_lone(node, answer)  # type: ignore[return-value] # of events, not of a marker

    def ask_again(self, node: str) -> None:
        """See `Publisher.ask_again`."""
        self._publisher.ask_again(node)

    def give_up_landing(self, node: str, landing: Iterable[Question], error: GamecastError) -> Effects[Token]:
        """Fail what a node is to decide; see `Publisher.give_up_landing`."""
        return self._published(self._publisher.give_up_landing(node, landing, error))

    def give_up(self, node: str, *, in_flight: GamecastError, waiting: GamecastError) -> Effects[Token]:
        """Fail what is buffered for a node; see `Publisher.give_up`."""
        return self._published(self._publisher.give_up(node, under_way=in_flight, waiting=waiting))

    def failed(self, regions: Iterable[str], *, in_flight: GamecastError, waiting: GamecastError) -> Effects[Token]:
        """Fail all events of some regions; see `Publisher.failed`."""
        return self._published(self._publisher.failed(regions, under_way=in_flight, waiting=waiting))

    def renew(self, regions: Iterable[str], incarnation: int) -> Effects[Token]:
        """Go on publishing in `doubtful` regions under a new incarnation."""
        self._publisher.renew(regions, incarnation)
        return self._published([])

    # The glue.

    def _effects(
        self,
        ready: list[Ready | Missing],
        resolved: Sequence[Resolved[Token | None]] = (),
        *,
        interest_changed: bool = False,
        left: Sequence[str] = (),
    ) -> Effects[Token]:
        """Pass on between the two machines what one of them has learnt."""
        subscriber, publisher = self._subscriber, self._publisher
        was_settled, self._was_settled = self._was_settled, subscriber.is_settled
        is_plain = was_settled and subscriber.is_settled and self._generation == subscriber.generation and not left
        own = subscriber.returns
        if own.has_news:
            for region, number in own.passed().items():
                publisher.passed(region, number)
            for region, (epoch, last) in own.gone().items():
                publisher.gone(region, epoch, last)
        if is_plain and not resolved:  # as nearly always: nothing ends, joins or moves
            return Effects(ready, (), (), publisher.woken(), False, interest_changed, True)
        ended = own.over()
        for region, epoch in ended.items():
            publisher.ended(region, epoch)
        for region, body in subscriber.marks():
            publisher.mark(region, body, None)
        reads_changed, self._generation = self._generation != subscriber.generation, subscriber.generation
        events, again = _without_markers(resolved)
        joined, subscriber.joined_now = subscriber.joined_now, []
        return Effects(
            ready,
            events,
            again,
            publisher.woken(),
            reads_changed,
            interest_changed,
            joined=joined,
            left=left,
            ended=ended,
        )

    def _published(self, resolved: Sequence[Resolved[Token | None]]) -> Effects[Token]:
        # Abandoned events remain here when `changed` raises.
        events, again = _without_markers([*self._publisher.abandoned(), *resolved])
        return Effects((), events, again, self._publisher.woken())


def _without_markers(
    resolved: Sequence[Resolved[Token | None]],
) -> tuple[Sequence[Resolved[Token]], Sequence[Marker]]:
    """Return the fates of events, and the markers to publish again: all that failed, unless this is superseded."""
    if not resolved:
        return (), ()
    events: list[Resolved[Token]] = []
    again: list[Marker] = []
    for each in resolved:
        if each.tokens[0] is not None:
            events.append(each)  # type: ignore[arg-type] # a marker has a frame of its own
        elif each.error is not None and not isinstance(each.error, Superseded):
            again.append((each.region, each.payloads[0]))
    return events, again
