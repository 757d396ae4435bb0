"""The outbox: the events of one region on their way to its ingress, and whether their fate is known.

Frames are numbered when they are sent and not changed any more: what is sent again after a broken connection is the
same frame, and the ingress answers it with the numbers that it drew the first time. Whatever else it is answered then,
here or where its region has moved to, it may have been accepted that first time: its fate stays unknown, and its
numbers are not used again. An ingress that was reset has forgotten what it accepted: what was under way there may
have been delivered to some, so it is not sent again, and its fate stays unknown, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Generic, TypeVar

from sequencing.errors import Conflict, GamecastError, PublishUncertain
from sequencing.frames import FrameKind, PublishedFrame, encode_binary_body, encode_json_body, payload_starts
from sequencing.keyed import NO_EXTRAS, Condition, Extras, Named, Part, sent_text
from sequencing.states import after

Token = TypeVar("Token")
"""What the caller recognises an event by when its fate is known (in the live client a future, as a rule)."""


class Fate(StrEnum):
    """What is known of the frame that an outbox has taken. A frame has at most one request in flight."""

    NONE = "no frame is taken"
    SENT = "in flight, and not accepted before"
    UNCERTAIN = "in flight, and an earlier answer was lost"
    SENT_PAST_RESET = "in flight, and a node that the region was at was reset"
    LOST_TRACK = "in flight past a reset, and an earlier answer was lost"
    LANDING = "accepted where it entered, and not decided by all of its regions"
    REFUSED = "refused (not here, or not now), and not accepted before"
    REFUSED_UNCERTAIN = "refused (not here, or not now), and an earlier answer was lost"


class Turn(StrEnum):
    """What happens to the frame."""

    SEND = "it is sent"
    LOSE_ANSWER = "its answer is lost"
    REFUSE = "the node answers: not here, or not now"
    LAND = "the node answers: accepted, and other nodes are yet to decide"
    DECIDE = "the last of them tells what became of it"
    RESET = "a node that the region was at is reset"
    SETTLE = "its fate is reported"


FATES: Mapping[tuple[Fate, Turn], Fate] = MappingProxyType(
    {
        (Fate.NONE, Turn.SEND): Fate.SENT,
        (Fate.REFUSED, Turn.SEND): Fate.SENT,
        (Fate.REFUSED_UNCERTAIN, Turn.SEND): Fate.UNCERTAIN,
        (Fate.SENT, Turn.LOSE_ANSWER): Fate.UNCERTAIN,
        (Fate.UNCERTAIN, Turn.LOSE_ANSWER): Fate.UNCERTAIN,
        (Fate.SENT_PAST_RESET, Turn.LOSE_ANSWER): Fate.LOST_TRACK,
        (Fate.LOST_TRACK, Turn.LOSE_ANSWER): Fate.LOST_TRACK,
        (Fate.SENT, Turn.REFUSE): Fate.REFUSED,
        (Fate.SENT_PAST_RESET, Turn.REFUSE): Fate.REFUSED,
        (Fate.UNCERTAIN, Turn.REFUSE): Fate.REFUSED_UNCERTAIN,
        (Fate.SENT, Turn.LAND): Fate.LANDING,
        (Fate.UNCERTAIN, Turn.LAND): Fate.LANDING,
        (Fate.LANDING, Turn.DECIDE): Fate.SENT,
        (Fate.SENT, Turn.RESET): Fate.SENT_PAST_RESET,
        (Fate.SENT_PAST_RESET, Turn.RESET): Fate.SENT_PAST_RESET,
        **{(fate, Turn.SETTLE): Fate.NONE for fate in Fate if fate is not Fate.NONE},
    }
)
"""The table of transitions. Where it has no row for a refusal or a reset, the outbox gives the frame up: whether it was
accepted can no longer be known."""

_UNCERTAIN = frozenset({Fate.UNCERTAIN, Fate.LOST_TRACK, Fate.REFUSED_UNCERTAIN, Fate.LANDING})


@dataclass(slots=True)
class OpenFrame(Generic[Token]):
    """Events that go together, and may become more until they are sent."""

    binary: bool
    kind: FrameKind = FrameKind.EVENTS
    run: int = 0
    payloads: list[bytes] = field(default_factory=list)
    sent_at_ns: list[int] = field(default_factory=list)
    tokens: list[Token] = field(default_factory=list)
    payload_bytes: int = 0
    room: int = 0
    """For so many events more. A marker has a frame of its own, and an event with conditions."""
    regions: tuple[str, ...] = ()
    """The regions that its events go to, if they are several: it waits in the outbox of each, and goes when it is the
    next in all of them."""
    names: Sequence[Named] = ()
    """The keys that its events name."""
    conditions: tuple[Condition, ...] = ()
    way: tuple[str, ...] = ()
    """The nodes that it visits until it is decided, as it was sent last; of several regions only."""

    def body(self) -> bytes:
        """Return the events as they are sent."""
        encode = encode_binary_body if self.binary else encode_json_body
        if not self.names:
            return encode(self.sent_at_ns, self.payloads)
        keys: list[str | None] = [None] * len(self.payloads)
        for named in self.names:
            keys[named.place] = named.key
        return encode(self.sent_at_ns, self.payloads, keys)

    def extras(
        self,
        body: bytes,
        also: tuple[Part, ...] = (),
        elsewhere: tuple[tuple[int, str], ...] = (),
        way: tuple[str, ...] = (),
    ) -> Extras:
        """Return what the frame says of keys, and of the regions beside its first."""
        if not (self.names or self.conditions or also):
            return NO_EXTRAS
        names = self.names and tuple(self._placed(body))
        return Extras(tuple(names), self.conditions, also, elsewhere, way)

    def _placed(self, body: bytes) -> Iterator[Named]:
        """Yield the named events with the places of their payloads in the body."""
        starts = payload_starts(body, self.payloads, binary=self.binary)
        for named in self.names:
            start, sent_at_ns = starts[named.place], self.sent_at_ns[named.place]
            end, sent = start + len(self.payloads[named.place]), sent_text(sent_at_ns, binary=self.binary)
            yield named._replace(start=start, end=end, sent=sent)


@dataclass(slots=True)
class Outbox(Generic[Token]):
    """What one connection publishes to one region. One frame at a time is under way."""

    name: str
    incarnation: int
    node: str | None = None
    epoch: int = 0
    next: int = 1
    frames: list[OpenFrame[Token]] = field(default_factory=list)
    """Those that are not taken. A list: it is short, and an empty deque takes ten times as much memory."""
    fate: Fate = Fate.NONE
    taken: OpenFrame[Token] | None = None
    """The frame whose fate is not reported yet."""
    sent: PublishedFrame | None = None
    """What ``taken`` was sent as last; None if that was refused."""
    refused: PublishedFrame | None = None
    """What ``taken`` was sent as, if that was refused. It is offered again where the plan says."""
    accepted: tuple[int, int] = (0, 0)
    """Epoch and number of the last event that an ingress has acknowledged."""
    been_at: frozenset[str] = frozenset()
    """Where the region has been while ``taken`` had no answer, once it has moved. Each node was told what the one
    before had accepted."""
    ready_at: str | None = None
    """The node where it is noted to be taken from."""

    @property
    def is_uncertain(self) -> bool:
        """Whether ``taken`` may have been accepted, whatever its node answers from then on: an answer was lost, or
        other nodes decide it."""
        return self.fate in _UNCERTAIN

    def send(self, publisher: str) -> PublishedFrame:
        """Return the frame to send now: the same again that was refused, or the next one."""
        self.fate = after(FATES, self.fate, Turn.SEND)
        if self.refused is not None:
            self.sent, self.refused = replace(self.refused, epoch=self.epoch), None
            return self.sent
        frame = self.taken = self.frames.pop(0)
        if frame.kind is FrameKind.EVENTS:
            body = frame.body()
        else:
            [body] = frame.payloads
        of_publisher = publisher, self.incarnation, self.next, len(frame.tokens)
        self.sent = PublishedFrame(self.name, self.epoch, *of_publisher, body, frame.kind, frame.extras(body))
        return self.sent

    def send_lone(self, publisher: str, opened: OpenFrame[Token]) -> PublishedFrame:
        """Take a plain frame that is not in ``frames``, where nothing else is, and return it to be sent now."""
        self.fate = after(FATES, self.fate, Turn.SEND)
        self.taken = opened
        of_publisher = publisher, self.incarnation, self.next, len(opened.tokens)
        self.sent = PublishedFrame(self.name, self.epoch, *of_publisher, opened.body())
        return self.sent

    def lose_answer(self) -> None:
        """Note that the answer to the frame in flight was lost."""
        self.fate = after(FATES, self.fate, Turn.LOSE_ANSWER)

    def move(self, node: str, epoch: int) -> None:
        """Go on at another ingress, or in another epoch."""
        if self.taken is not None and (self.node is not None or self.been_at):
            self.been_at |= {node} if self.node is None else {self.node, node}
        self.node, self.epoch = node, epoch

    def unplace(self) -> None:
        """Wait for a place again."""
        if self.node is not None and self.taken is not None:
            self.been_at |= {self.node}
        self.node = None

    def refuse(self, frame: PublishedFrame) -> bool:
        """Take "not here, not now" for an answer; return False if the frame may have been accepted all the same, and
        the node that knew was reset."""
        if self.fate is Fate.LOST_TRACK:
            return False
        self.fate = after(FATES, self.fate, Turn.REFUSE)
        self.sent, self.refused = None, frame
        return True

    def reset(self, node: str | None, *, is_asked: bool) -> bool:
        """Note that a node was reset, None: any; return whether it may have accepted, and forgotten, ``taken``.

        Also what another node on the way of an event of several regions was to decide; and what another node may have
        accepted before the region came to this one: it was told what was accepted there, and has forgotten that, too.
        ``is_asked``: whether ``taken`` is in flight to the node.
        """
        if self.taken is None:
            return False
        if self.fate is Fate.LANDING:
            return is_asked or node is None or node in self.taken.way
        was_here = node is None or node == self.node or node in self.been_at or node in self.taken.way
        if is_asked or (was_here and self.is_uncertain):
            return True
        if was_here and self.refused is None:
            self.fate = after(FATES, self.fate, Turn.RESET)
        return False

    def settle(self) -> OpenFrame[Token]:
        """Return ``taken``, whose fate is reported now, and forget it."""
        self.fate = after(FATES, self.fate, Turn.SETTLE)
        taken, self.taken, self.sent, self.refused = self.taken, None, None, None
        assert taken is not None
        if self.been_at:
            self.been_at = frozenset()
        return taken

    def fail(self, error: GamecastError) -> tuple[OpenFrame[Token], GamecastError]:
        """Give up ``taken``: for certain only if all answers to it have come. Return it, and with which error.

        But a condition that cannot hold again is refused for certain, whatever answer was lost: the ingress would have
        said if it had accepted the frame before, and a copy that is late is refused, too.
        """
        assert self.taken is not None
        never_holds = not any(each.may_hold_again for each in self.taken.conditions)
        is_settled = self.fate is Fate.UNCERTAIN and isinstance(error, Conflict) and never_holds
        if self.is_uncertain and error.definite and not is_settled:
            error = PublishUncertain(f"{error}; and before that, an answer was lost")
        return self.settle(), error

    def renew(self, incarnation: int) -> None:
        """Go on as another incarnation, with numbers that were not used: so each is that of one event for good."""
        self.incarnation = incarnation
        if self.refused is not None:
            self.refused = replace(self.refused, incarnation=incarnation)
