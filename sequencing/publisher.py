"""The publisher: events join frames, frames wait for their turn, answers become receipts.

Batching is self-clocked. Each ingress has at most one request under way; meanwhile new events join the open frames of
their regions, so that frames grow with load and an idle publisher pays no delay. A request carries at most one frame
a region, so that a node needs to remember only the last frame of each publisher in each region to recognise a repeat.

Frames are numbered when they are taken and not changed any more: what is sent again after a broken connection is the
same frame, and the ingress answers it with the numbers that it drew the first time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from sequencing.errors import GamecastError, Refused, Superseded
from sequencing.frames import PublishedFrame, encode_binary_body, encode_json_body
from sequencing.node import Answer, Verdict
from sequencing.roster import superseded_message

Token = TypeVar("Token")
"""What the caller recognises an event by when its fate is known (a future, in the live client)."""

FRAME_EVENTS_MAX = 64
"""Enough to spread the cost of a frame thin. More only makes subscribers decode more at a time than Python's garbage
collector lets pass."""

REQUEST_FILL_BYTES = 4 * 1024 * 1024
"""A request takes no more frames beyond this: Redis does nothing else while it works through one."""

FRAME_FILL_BYTES = 256 * 1024
"""An open frame takes no more events beyond this; it may be larger if a single event is."""


@dataclass(frozen=True, slots=True)
class Resolved(Generic[Token]):
    """The fate of the events of one frame: numbered ``first_sequence`` … in ``epoch``, or failed with ``error``."""

    region: str
    tokens: Sequence[Token]
    epoch: int = 0
    first_sequence: int = 0
    error: GamecastError | None = None


@dataclass(slots=True)
class _OpenFrame(Generic[Token]):
    binary: bool
    payloads: list[bytes] = field(default_factory=list)
    sent_at_ns: list[int] = field(default_factory=list)
    tokens: list[Token] = field(default_factory=list)
    payload_bytes: int = 0


@dataclass(slots=True)
class _Region(Generic[Token]):
    name: str
    incarnation: int
    node: str | None = None
    epoch: int = 0
    next: int = 1
    frames: deque[_OpenFrame[Token]] = field(default_factory=deque)
    taken: _OpenFrame[Token] | None = None


class Publisher(Generic[Token]):
    """One connection's outgoing events. Not bound to a clock or a transport."""

    def __init__(self, name: str, incarnation: int) -> None:
        """``incarnation`` must grow with each connection of the same name: nodes fence off older ones."""
        self.name = name
        self.incarnation = incarnation
        self.buffered_events = 0
        self.buffered_bytes = 0
        self._regions: dict[str, _Region[Token]] = {}
        self._ready: dict[str, dict[str, _Region[Token]]] = {}
        self._in_flight: dict[str, list[PublishedFrame]] = {}

    def add(self, region: str, payload: bytes, binary: bool, sent_at_ns: int, token: Token) -> str | None:
        """Buffer an event; return the ingress node it waits for, None while its region has no place in the plan."""
        state = self._regions.get(region)
        if state is None:
            state = self._regions[region] = _Region(region, self.incarnation)
        frames = state.frames
        frame = frames[-1] if frames else None
        if (
            frame is None
            or frame.binary is not binary
            or len(frame.tokens) >= FRAME_EVENTS_MAX
            or frame.payload_bytes + len(payload) > FRAME_FILL_BYTES
        ):
            frame = _OpenFrame(binary)
            frames.append(frame)
            if state.node is not None and state.taken is None:
                self._ready[state.node][region] = state
        frame.payloads.append(payload)
        frame.sent_at_ns.append(sent_at_ns)
        frame.tokens.append(token)
        frame.payload_bytes += len(payload)
        self.buffered_events += 1
        self.buffered_bytes += len(payload)
        return state.node

    def assign(self, ingresses: Mapping[str, str], epoch: int) -> set[str]:
        """Tell where regions enter the network; return the nodes that now have something to take."""
        nodes: set[str] = set()
        for region, node in ingresses.items():
            state = self._regions.setdefault(region, _Region(region, self.incarnation))
            if state.node is not None and state.node != node:
                self._ready[state.node].pop(region, None)
            state.node, state.epoch = node, epoch
            ready = self._ready.setdefault(node, {})
            if state.frames and state.taken is None:
                ready[region] = state
                nodes.add(node)
        return nodes

    def unassigned(self) -> list[str]:
        """Return the regions that have events but no place in the plan."""
        return [state.name for state in self._regions.values() if state.node is None and state.frames]

    def waiting_events(self, node: str) -> int:
        """Return how many events a request to this node would carry now."""
        return sum(len(state.frames[0].tokens) for state in self._ready.get(node, {}).values())

    def take(self, node: str) -> list[PublishedFrame]:
        """Return the frames of the next request to a node, at most one a region; the same again until answered."""
        if node in self._in_flight:
            return self._in_flight[node]
        ready = self._ready.get(node)
        if not ready:
            return []
        frames: list[PublishedFrame] = []
        frame_bytes = 0
        while ready and frame_bytes < REQUEST_FILL_BYTES:
            frames.append(self._close_frame(ready.pop(next(iter(ready)))))
            frame_bytes += len(frames[-1].body)
        self._in_flight[node] = frames
        return frames

    def answered(self, node: str, answers: Sequence[Answer]) -> list[Resolved[Token]]:
        """Take a node's answers to the frames under way; return what became of their events."""
        frames = self._in_flight.pop(node)
        return [self._resolve(frame, answer) for frame, answer in zip(frames, answers, strict=True)]

    def failed(
        self, regions: Iterable[str], *, under_way: GamecastError, waiting: GamecastError
    ) -> Iterator[Resolved[Token]]:
        """Give up all events of some regions: with one error what was under way, with another what still waited.

        ``regions``: all of a node's, for a request is given up as a whole, or some that are not assigned yet.
        """
        for region in regions:
            state = self._regions[region]
            if state.node is not None:
                self._in_flight.pop(state.node, None)
                self._ready[state.node].pop(region, None)
            taken, state.taken = state.taken, None
            if taken is not None:
                self._forget(taken)
                yield Resolved(region, taken.tokens, error=under_way)
            while state.frames:
                frame = state.frames.popleft()
                self._forget(frame)
                yield Resolved(region, frame.tokens, error=waiting)

    def renew(self, regions: Iterable[str], incarnation: int) -> None:
        """Number some regions' events anew, after a failure that left open whether a frame was accepted.

        Going on with the old numbers could let a later frame pass for a repeat of the one whose fate is unknown.
        """
        self.incarnation = max(self.incarnation, incarnation)
        for region in regions:
            self._regions[region].incarnation = incarnation
            self._regions[region].next = 1

    def regions(self) -> list[str]:
        """Return all regions that events were ever added for, or that were assigned."""
        return list(self._regions)

    def regions_at(self, node: str) -> list[str]:
        """Return the regions whose events enter at a node."""
        return [state.name for state in self._regions.values() if state.node == node]

    def _close_frame(self, state: _Region[Token]) -> PublishedFrame:
        frame = state.taken = state.frames.popleft()
        encode = encode_binary_body if frame.binary else encode_json_body
        body = encode(frame.sent_at_ns, frame.payloads)
        count = len(frame.tokens)
        return PublishedFrame(state.name, state.epoch, self.name, state.incarnation, state.next, count, body)

    def _resolve(self, frame: PublishedFrame, answer: Answer) -> Resolved[Token]:
        state = self._regions[frame.region]
        taken = state.taken
        assert taken is not None
        state.taken = None
        self._forget(taken)
        if state.frames and state.node is not None:
            self._ready[state.node][state.name] = state
        if answer.verdict in (Verdict.OK, Verdict.SEEN):
            state.next = frame.first + frame.count
            epoch, last = answer.numbers
            return Resolved(frame.region, taken.tokens, epoch, last - frame.count + 1)
        return Resolved(frame.region, taken.tokens, error=_refusal(frame, answer))

    def _forget(self, frame: _OpenFrame[Token]) -> None:
        self.buffered_events -= len(frame.tokens)
        self.buffered_bytes -= frame.payload_bytes


def _refusal(frame: PublishedFrame, answer: Answer) -> GamecastError:
    if answer.verdict is Verdict.FENCED:
        return Superseded(superseded_message(frame.publisher))
    if answer.verdict is Verdict.STALE and answer.numbers[0] > frame.epoch:
        return Superseded(
            f"{frame.publisher!r} publishes in epoch {frame.epoch}, and the network went on to epoch "
            f"{answer.numbers[0]} without it: open a new connection"
        )
    return Refused(
        f"the ingress of region {frame.region!r} refused events {frame.first}…{frame.first + frame.count - 1} of "
        f"{frame.publisher!r}: {answer.encode().decode()} (sent in epoch {frame.epoch})"
    )
