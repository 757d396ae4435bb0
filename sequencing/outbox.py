"""The outbox: the events of one region on their way to its ingress, and whether their fate is known.

Frames are numbered when they are sent and not changed any more: what is sent again after a broken connection is the
same frame, and the ingress answers it with the numbers that it drew the first time. Whatever else it is answered then,
here or where its region has moved to, it may have been accepted that first time: its fate stays unknown, and its
numbers are not used again. An ingress that was reset has forgotten what it accepted: what was under way there may
have been delivered to some, so it is not sent again, and its fate stays unknown, too.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from sequencing.errors import GamecastError, PublishUncertain
from sequencing.frames import FrameKind, PublishedFrame, encode_binary_body, encode_json_body

Token = TypeVar("Token")
"""What the caller recognises an event by when its fate is known (in the live client a future, as a rule)."""


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
    """For so many events more. A marker has a frame of its own."""


@dataclass(slots=True)
class Outbox(Generic[Token]):
    """What one connection publishes to one region. One frame at a time is under way."""

    name: str
    incarnation: int
    node: str | None = None
    epoch: int = 0
    next: int = 1
    frames: deque[OpenFrame[Token]] = field(default_factory=deque)
    taken: OpenFrame[Token] | None = None
    """What is under way."""
    sent: PublishedFrame | None = None
    """What ``taken`` was sent as last."""
    unanswered: PublishedFrame | None = None
    """What ``taken`` became. It was answered with "not here, not now", so it is offered again where the plan says."""
    is_uncertain: bool = False
    """Whether an answer to ``taken`` was lost: it may have been accepted, whatever it is answered from then on."""
    is_forgotten: bool = False
    """Whether a node that the region was at was reset while ``taken`` was under way elsewhere: if an answer to it
    is lost, no node knows any more that it was accepted."""
    been_at: set[str] = field(default_factory=set)
    """Where the region has been while ``taken`` had no answer, once it has moved. Each node was told what the one
    before had accepted."""

    def send(self, publisher: str) -> PublishedFrame:
        """Return the frame to send now: the same again that was not answered for good, or the next one."""
        if self.unanswered is not None:
            self.sent, self.unanswered = replace(self.unanswered, epoch=self.epoch), None
            return self.sent
        frame = self.taken = self.frames.popleft()
        if frame.kind is FrameKind.EVENTS:
            encode = encode_binary_body if frame.binary else encode_json_body
            body = encode(frame.sent_at_ns, frame.payloads)
        else:
            [body] = frame.payloads
        self.sent = PublishedFrame(
            self.name, self.epoch, publisher, self.incarnation, self.next, len(frame.tokens), body, frame.kind
        )
        return self.sent

    def move(self, node: str, epoch: int) -> None:
        """Go on at another ingress, or in another epoch."""
        if self.node is not None and self.taken is not None:
            self.been_at |= {self.node, node}
        self.node, self.epoch = node, epoch

    def put_off(self, frame: PublishedFrame) -> bool:
        """Take "not here, not now" for an answer; return False if the frame may have been accepted all the same, and
        the node that knew was reset."""
        if self.is_forgotten and self.is_uncertain:
            return False
        self.is_forgotten = False
        self.unanswered = frame
        return True

    def abandon(self, node: str | None, *, is_asked: bool) -> bool:
        """Note that a node was reset, None: any; return whether it may have accepted, and forgotten, ``taken``.

        Also what another node may have accepted before the region came to this one: it was told what was accepted
        there, and has forgotten that, too. ``is_asked``: whether ``taken`` is under way to the node.
        """
        if self.taken is None:
            return False
        was_here = node is None or node == self.node or node in self.been_at
        if is_asked or (was_here and self.is_uncertain):
            return True
        if was_here and self.unanswered is None:
            self.is_forgotten = True
        return False

    def settle(self) -> OpenFrame[Token]:
        """Return ``taken``, whose fate is told now, and forget it."""
        taken, self.taken, self.sent, self.is_uncertain = self.taken, None, None, False
        assert taken is not None
        self.is_forgotten = False
        self.been_at.clear()
        return taken

    def fail(self, error: GamecastError) -> tuple[OpenFrame[Token], GamecastError]:
        """Give up ``taken``: for certain only if all answers to it have come. Return it, and with which error."""
        if self.is_uncertain and error.definite:
            error = PublishUncertain(f"{error}; and before that, an answer was lost")
        taken = self.settle()
        self.unanswered = None
        return taken, error

    def renew(self, incarnation: int) -> None:
        """Go on as another incarnation, with numbers that were not used: so each is that of one event for good."""
        self.incarnation = incarnation
        if self.unanswered is not None:
            self.unanswered = replace(self.unanswered, incarnation=incarnation)
