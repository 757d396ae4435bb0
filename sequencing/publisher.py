"""The publisher: events join frames, frames wait for their turn, answers become receipts.

Batching is self-clocked. Each ingress has at most one request under way; meanwhile new events join the open frames of
their regions, so that frames grow with load and an idle publisher pays no delay. A request carries at most one frame
a region, so that a node needs to remember only the last frame of each publisher in each region to recognise a repeat.

What becomes of a frame, and when that is not known, is told in `sequencing.outbox`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic

from sequencing import together
from sequencing.causal_wait import CausalWait
from sequencing.errors import GamecastError, PublishUncertain
from sequencing.frames import CARRIES_EVENTS, FrameKind, PublishedFrame
from sequencing.joint import is_set, set_name, way_of
from sequencing.keyed import Condition, Named
from sequencing.landing import asking
from sequencing.node import Answer, Verdict
from sequencing.outbox import Fate, OpenFrame, Outbox, Token
from sequencing.plan import Plan
from sequencing.resolved import Resolved, failed, refusal
from sequencing.together import not_together

FRAME_EVENTS_MAX = 64
"""Enough to spread the cost of a frame thin. More only makes subscribers decode more at a time than Python's garbage
collector lets pass."""

REQUEST_FILL_BYTES = 4 * 1024 * 1024
"""A request takes no more frames beyond this: Redis does nothing else while it works through one."""

FRAME_FILL_BYTES = 256 * 1024
"""An open frame takes no more events beyond this; it may be larger if a single event is."""


_LATER = frozenset({Verdict.STALE, Verdict.WAIT, Verdict.PENDING})
"""After these a frame goes out again."""


@dataclass(slots=True)
class Buffered:
    """How much waits without a fate: an object, because a caller compares it with limits at each event."""

    events: int = 0
    bytes: int = 0
    """Of their payloads."""


Question = tuple[int, bytes]
"""A frame whose fate is asked for: the incarnation of its publisher, and `sequencing.landing.which`."""


@dataclass(frozen=True, slots=True)
class _Landing(Generic[Token]):
    """A frame of several regions that other nodes than its first decide: its last node is asked."""

    taken: OpenFrame[Token]
    frame: PublishedFrame
    question: PublishedFrame


class Publisher(Generic[Token]):
    """One connection's outgoing events. Not bound to a clock or a transport."""

    def __init__(self, name: str, incarnation: int, *, causal: bool = False) -> None:
        """``incarnation`` must grow with each connection of the same name: nodes fence off older ones.

        ``causal``: an event waits until this connection has itself delivered what it published before to other
        regions (see `passed`), so that each subscriber of both delivers them in this order.
        """
        self.name = name
        self.incarnation = incarnation
        self.forgotten = 0
        """The highest incarnation up to which a node has said that it has forgotten publishers; 0 if none has."""
        self.buffered = Buffered()
        self.stale: dict[str, int] = {}
        """Region → the epoch in which it was refused where the plan puts it: there must be a later plan."""
        self._regions: dict[str, Outbox[Token]] = {}
        self._ready: dict[str, dict[str, Outbox[Token]]] = {}
        self._in_flight: dict[str, list[PublishedFrame]] = {}
        self._wait: CausalWait | None = CausalWait() if causal else None
        self._plan: Plan | None = None
        self._unplaced: dict[str, None] = {}
        """Regions that have no place in the plan."""
        self._doubtful: set[str] = set()
        """Regions where a frame was given up that may have been accepted, or whose node no longer accepts such an old
        incarnation. Nothing is sent to them before `renew`."""
        self._joint: dict[int, OpenFrame[Token]] = {}
        """The frames of several regions whose fate is not reported yet, by their identity."""
        self._landing: dict[str, dict[Question, _Landing[Token]]] = {}
        """Node → the frames that it decides, by the question."""
        self._to_ask: set[str] = set()
        """The nodes that are asked for that by the next request; others only where there is one anyhow."""
        self.woken_nodes: set[str] = set()
        """What `woken` returns next."""
        self._abandoned: list[Resolved[Token]] = []

    def add(self, region: str, payload: bytes, binary: bool, sent_at_ns: int, token: Token) -> str | None:
        """Buffer an event; return the ingress node it waits for, None while its region has no place in the plan."""
        state = self._regions.get(region)
        if state is None:
            state = self._begin(region)
        wait, frames, size = self._wait, state.frames, len(payload)
        run = wait.add(region) if wait is not None else 0
        frame = frames[-1] if frames else None
        if (
            frame is None
            or frame.binary is not binary
            or frame.room <= 0
            or frame.payload_bytes + size > FRAME_FILL_BYTES
            or frame.run != run
        ):
            frame = OpenFrame(binary, run=run, room=FRAME_EVENTS_MAX)
            frames.append(frame)
            self._note(state)
        frame.room -= 1
        frame.payload_bytes += size
        frame.payloads.append(payload)
        frame.sent_at_ns.append(sent_at_ns)
        frame.tokens.append(token)
        buffered = self.buffered
        buffered.events += 1
        buffered.bytes += size
        return state.node

    def add_keyed(
        self,
        region: str,
        payload: bytes,
        binary: bool,
        sent_at_ns: int,
        token: Token,
        *,
        key: str | None,
        deletes: bool,
        conditions: tuple[Condition, ...],
    ) -> str | None:
        """As `add`, for an event that names a key, or has conditions, or both; ``deletes``: the key ends with it.

        An event with conditions has a frame of its own.
        """
        state = self._regions.get(region) or self._begin(region)
        if conditions and state.frames:
            state.frames[-1].room = 0
        node = self.add(region, payload, binary, sent_at_ns, token)
        frame = state.frames[-1]
        if key is not None:
            frame.names = (*frame.names, Named(len(frame.payloads) - 1, key, deletes))
        if conditions:
            frame.conditions, frame.room = conditions, 0
        return node

    def add_joint(
        self,
        regions: tuple[str, ...],
        payload: bytes,
        binary: bool,
        sent_at_ns: int,
        token: Token,
        *,
        key: str | None = None,
        deletes: bool = False,
        conditions: tuple[Condition, ...] = (),
    ) -> str | None:
        """As `add_keyed`, for an event of several regions, each named once; it names its key in all of them.

        Raises `NotTogether` if no event can be in all of them; until the plan has them together, it waits.
        """
        states = [self._regions.get(region) or self._begin(region) for region in regions]
        if self._have_parted(states):
            raise not_together(regions)
        lead, size = states[0], len(payload)
        frame = lead.frames[-1] if lead.frames and not conditions else None
        if (
            frame is None
            or frame.regions != regions
            or frame.binary is not binary
            or frame.conditions
            or len(frame.tokens) >= FRAME_EVENTS_MAX
            or frame.payload_bytes + size > FRAME_FILL_BYTES
            or any(state.frames[-1] is not frame for state in states)
        ):
            # Without room: what is added to one of its regions alone goes behind it.
            frame = OpenFrame(binary, FrameKind.JOINT, regions=regions, conditions=conditions)
            self._joint[id(frame)] = frame
            for state in states:
                state.frames.append(frame)
            self._note(lead)
        if key is not None:
            frame.names = (*frame.names, Named(len(frame.payloads), key, deletes))
        frame.payload_bytes += size
        frame.payloads.append(payload)
        frame.sent_at_ns.append(sent_at_ns)
        frame.tokens.append(token)
        self.buffered.events += 1
        self.buffered.bytes += size
        return next(iter(self._way(states)), None)

    def mark(self, region: str, body: bytes, token: Token) -> str | None:
        """Buffer a JOIN marker, to go before the events that wait; return the ingress node, as `add` does."""
        state = self._regions.get(region) or self._begin(region)
        marker: OpenFrame[Token] = OpenFrame(
            True, FrameKind.JOIN, payloads=[body], tokens=[token], payload_bytes=len(body)
        )
        state.frames.insert(0, marker)
        self.buffered.events += 1
        self.buffered.bytes += len(body)
        self._note(state)
        return state.node

    def assign(self, plan: Plan) -> None:
        """Follow the next plan.

        A frame in flight to a region's former ingress is not lost: if that node answers "not here", it is offered again
        where the new plan says. The exception is a node that was reset: see `abandoned`.
        """
        before, self._plan = self._plan, plan
        if before is not None:
            # A node that the plan names a run for from now on has lost something, too.
            for node in before.runs.keys() | (plan.runs.keys() & before.nodes.keys()):
                if plan.runs.get(node) != before.runs.get(node):
                    self._abandon(node)
            if (before.runs or plan.runs) and plan.epoch > before.epoch + 1:
                self._abandon(None)
        moved: Iterable[str] = ()
        if before is not None and before.epoch < plan.epoch:
            moved = sorted(plan.begun_after(before.epoch, self._regions.keys() - self._unplaced.keys()))
        for region in (*moved, *[region for region in self._unplaced if region in plan.paths]):
            state = self._regions[region]
            self._unready(state)
            if region not in plan.paths:
                # Nothing was published there, in a network that listed no region and does now.
                state.unplace()
                self.stale.pop(region, None)
                self._unplaced[region] = None
                continue
            self._unplaced.pop(region, None)
            state.move(plan.paths[region][0], plan.epoch_of(region))
            self.stale.pop(region, None)
            self._note(state)
        if before is not None and before.sole and not plan.sole:
            # The node may have begun a region after it had refused it: where the listing was interrupted, and repeated.
            for region in [region for region in self.stale if region in plan.paths]:
                del self.stale[region]
                self._note(self._regions[region])
        for joint in [*self._joint.values()]:
            self._follow(joint)

    def can_be_together(self, regions: Iterable[str]) -> bool:
        """Return whether an event can be published to these regions at once, now or by a later plan."""
        return not self._have_parted([self._regions.get(region) or self._begin(region) for region in regions])

    def _have_parted(self, states: Sequence[Outbox[Token]]) -> bool:
        """Return whether all of some regions have a place, and no event can ever be in all of them."""
        plan = self._plan
        if plan is None or plan.ordering != "overlap":
            return False
        return all(state.node is not None for state in states) and not self._way(states)

    def _follow(self, joint: OpenFrame[Token]) -> None:
        """Offer a frame of several regions where they are now, or give it up if they are together no more."""
        states = self._states(joint)
        lead = states[0]
        if lead.sent is not None and lead.taken is joint:
            return  # its answer comes
        if any(state.node is None for state in states):
            return
        if self._have_parted(states):
            error = not_together(joint.regions)
            self._abandoned.append(
                self._fail_taken(lead, error) if lead.taken is joint else self._fail_joint(joint, error)
            )
        elif lead.taken is joint:
            for state in states:
                self.stale.pop(state.name, None)  # one of them has moved
        self._unready(lead)  # the plan may have them together no more
        self._note(lead)

    def _way(self, states: Sequence[Outbox[Token]]) -> tuple[str, ...]:
        """Return the nodes that an event of these regions visits until all have numbered it.

        Empty unless the plan orders all that it orders against such an event as one.
        """
        plan, first = self._plan, states[0]
        if plan is None or any(state.node is None or state.epoch != first.epoch for state in states):
            return ()
        regions = [state.name for state in states]
        if len(plan.nodes) > 1 and set_name(regions) not in plan.joint:
            return ()
        return way_of(plan.paths, regions)

    def _states(self, frame: OpenFrame[Token]) -> list[Outbox[Token]]:
        return [self._regions[region] for region in frame.regions]

    def passed(self, region: str, number: int) -> None:
        """Note that this connection has delivered its own events in a region up to a number: of use when causal."""
        if self._wait is not None:
            self._go_on(self._wait.passed(region, number))

    def ended(self, region: str, epoch: int) -> None:
        """Note that this connection has delivered all that is left of a region up to the end of an epoch."""
        if self._wait is not None:
            self._go_on(self._wait.ended(region, epoch))

    def gone(self, region: str, epoch: int, last: int) -> None:
        """Note that this connection was told that events up to a region sequence are missing: of use when causal."""
        if self._wait is not None:
            self._go_on(self._wait.gone(region, epoch, last))

    def awaited(self) -> set[str]:
        """Return the regions in which this connection has yet to deliver its own events: of use when causal."""
        return self._wait.awaited() if self._wait is not None else set()

    def woken(self) -> set[str]:
        """Return the nodes that have got something to take since the last call."""
        woken = set(self.woken_nodes)
        self.woken_nodes.clear()
        return woken

    def abandoned(self) -> list[Resolved[Token]]:
        """Return the events, since the last call, whose fate is unknown because their ingress was reset."""
        abandoned, self._abandoned = self._abandoned, []
        return abandoned

    def _go_on(self, freed: Iterable[str]) -> None:
        for name in freed:
            self._note(self._regions[name])

    def unassigned(self) -> list[str]:
        """Return the regions that have events but no place in the plan, and the sets that wait for a plan."""
        regions = self._regions
        unplaced = [region for region in self._unplaced if regions[region].frames or regions[region].taken is not None]
        waiting = (self._states(frame) for frame in self._joint.values())
        if self._plan is not None and self._plan.ordering == "overlap":
            return unplaced
        apart = (states for states in waiting if not self._way(states))
        return [*unplaced, *dict.fromkeys(set_name(state.name for state in states) for states in apart)]

    def waiting_events(self, node: str) -> int:
        """Return how many events a request to this node would carry now."""
        ready = self._ready.get(node)
        return sum(len((state.taken or state.frames[0]).tokens) for state in ready.values()) if ready else 0

    def under_way(self, node: str) -> Sequence[PublishedFrame]:
        """Return the frames of the request to a node that waits for its answers still."""
        return self._in_flight.get(node, ())

    def take(self, node: str) -> list[PublishedFrame]:
        """Return the frames of the next request to a node, at most one a region; the same again until answered."""
        if node in self._in_flight:
            self.unanswered(node)
            return self._in_flight[node]
        ready = self._ready.get(node, {})
        if not ready and node not in self._to_ask:
            return []
        frames: list[PublishedFrame] = []
        frame_bytes = 0
        while ready and frame_bytes < REQUEST_FILL_BYTES:
            state = ready.pop(next(iter(ready)))
            state.ready_at = None
            is_new = state.refused is None
            joint = state.frames[0] if is_new else state.taken
            if joint is not None and joint.regions:
                states = self._states(joint)
                if state is not states[0] or not self._may_go_together(joint, states):
                    continue  # it is noted again when it may
                frame = together.send(states, self.name, self._way(states))
            else:
                frame = state.send(self.name)
            if self._wait is not None and is_new and frame.kind is FrameKind.EVENTS:
                assert state.taken is not None
                self._wait.numbered(state.name, state.taken.run, frame.first + frame.count - 1, frame.count)
            frames.append(frame)
            frame_bytes += len(frame.body) * (1 + len(frame.extras.also))
        if (landing := self._landing.get(node)) and (frames or node in self._to_ask):
            frames += [each.question for each in landing.values()]
        self._to_ask.discard(node)
        if frames:
            self._in_flight[node] = frames
        self.woken_nodes.discard(node)
        return frames

    def landing(self, node: str) -> Sequence[Question]:
        """Return what stands for the frames of several regions that a node is to decide, and has not yet.

        The host calls `ask_again` for them, again and again.
        """
        return tuple(self._landing.get(node, ()))

    def ask_again(self, node: str) -> None:
        """Have the next request to a node ask what became of the frames that it decides."""
        if self._landing.get(node):
            self._to_ask.add(node)

    def give_up_landing(self, node: str, landing: Iterable[Question], error: GamecastError) -> list[Resolved[Token]]:
        """Give up frames of `landing`."""
        known = self._landing.get(node, {})
        given_up: list[Resolved[Token]] = []
        for taken in [known[each].taken for each in landing if each in known]:
            state = self._states(taken)[0]
            given_up.append(self._fail_taken(state, error))
            self._note(state)
        return given_up

    def take_lone(
        self,
        region: str,
        payload: bytes,
        binary: bool,
        sent_at_ns: int,
        token: Token,
        may_go: Callable[[str], bool],
    ) -> tuple[str, PublishedFrame] | None:
        """`add` and `take` in one, of an event that nothing is in the way of; return its node and its frame.

        None leaves all as it is: where something waits or is under way to its node, or if ``may_go``, asked with the
        node, says no.
        """
        state = self._regions.get(region)
        if state is None or state.node is None or state.fate is not Fate.NONE or state.frames or self._wait is not None:
            return None
        node = state.node
        if node in self._in_flight or self._ready.get(node) or region in self.stale or region in self._doubtful:
            return None
        if not may_go(node):
            return None
        opened = OpenFrame(binary, payloads=[payload], sent_at_ns=[sent_at_ns], tokens=[token])
        opened.payload_bytes = len(payload)
        frame = state.send_lone(self.name, opened)
        self._in_flight[node] = [frame]
        self.buffered.events += 1
        self.buffered.bytes += len(payload)
        return node, frame

    def answered_lone(self, node: str, answer: Answer) -> Resolved[Token] | None:
        """As `answered`, of one frame of events that was accepted, where nothing follows from that; None leaves all."""
        frames = self._in_flight.get(node, ())
        if len(frames) != 1 or answer.verdict is not Verdict.OK or self._wait is not None:
            return None
        frame = frames[0]
        state = self._regions[frame.region]
        if state.sent is not frame or state.frames or frame.kind is not FrameKind.EVENTS or frame.extras.also:
            return None
        del self._in_flight[node]
        return self._accepted(state, frame, answer)

    def unanswered(self, node: str) -> None:
        """Note that the answer to the frames under way to a node was lost: they may have been accepted."""
        for frame in self._in_flight.get(node, ()):
            for region, _ in frame.parts:
                if self._regions[region].sent is frame:
                    self._regions[region].lose_answer()

    def answered(self, node: str, answers: Sequence[Answer]) -> list[Resolved[Token]]:
        """Take a node's answers to the frames under way; return what became of their events.

        Nothing is said of events that were refused as too early or too late for the plan: they go out again. Nor when
        nothing is under way: the node was reset while it answered.
        """
        frames = self._in_flight.pop(node, [])
        if not frames:
            return []
        if len(frames) == len(answers) == 1:
            lone = self._resolve(node, frames[0], answers[0])
            return [lone] if lone is not None else []
        resolved = (self._resolve(node, frame, answer) for frame, answer in zip(frames, answers, strict=True))
        return [each for each in resolved if each is not None]

    def give_up(self, node: str, *, under_way: GamecastError, waiting: GamecastError) -> list[Resolved[Token]]:
        """Give up a node: with one error what is under way there, with another what waits for it.

        Of a region that has moved meanwhile, what is under way elsewhere goes its way.
        """
        asked = self._asked(node)
        self._ready.pop(node, None)
        failed: list[Resolved[Token]] = []
        for state in self._regions.values():
            again = state.node == node and state.refused is not None
            if state.taken is not None and (state.name in asked or again):
                failed.append(self._fail_taken(state, under_way))
            if state.node == node:
                failed += self._fail_waiting(state, waiting)
            self._unready(state)
            self._note(state)
        return failed

    def doubtful(self) -> list[str]:
        """Return the regions that need a new incarnation (`renew`)."""
        return sorted(self._doubtful)

    def failed(
        self, regions: Iterable[str], *, under_way: GamecastError, waiting: GamecastError
    ) -> list[Resolved[Token]]:
        """Give up all events of some regions, or sets: with one error what may have been accepted, with another what
        was not.

        What is answered about them later is ignored.
        """
        failed: list[Resolved[Token]] = []
        for region in regions:
            if is_set(region):
                failed += self._fail_set(region, under_way=under_way, waiting=waiting)
                continue
            state = self._regions[region]
            if state.taken is not None:
                is_refused = state.refused is not None and not state.is_uncertain
                failed.append(self._fail_taken(state, waiting if is_refused else under_way))
            failed += self._fail_waiting(state, waiting)
            self._unready(state)
        return failed

    def _fail_set(self, name: str, *, under_way: GamecastError, waiting: GamecastError) -> Iterator[Resolved[Token]]:
        for frame in [frame for frame in self._joint.values() if set_name(frame.regions) == name]:
            lead = self._regions[frame.regions[0]]
            if lead.taken is not frame:
                yield self._fail_joint(frame, waiting)
                continue
            is_refused = lead.refused is not None and not lead.is_uncertain
            yield self._fail_taken(lead, waiting if is_refused else under_way)
            self._note(lead)

    def renew(self, regions: Iterable[str], incarnation: int) -> None:
        """Go on publishing in some regions under a new incarnation.

        It is needed where a frame may have been accepted: under the old one, the node could take a later frame for a
        repeat of it. It is also needed where the old one is too old.
        """
        self.incarnation = max(self.incarnation, incarnation)
        for region in regions:
            state = self._regions[region]
            state.renew(incarnation)
            self._doubtful.discard(region)
            self._note(state)

    def _fail_taken(self, state: Outbox[Token], error: GamecastError, *, is_reset: bool = False) -> Resolved[Token]:
        """Give up ``taken``, in all of its regions; where it may have been accepted, they need a new incarnation.

        Unless the node that may have accepted it was reset: then it knows none.
        """
        assert state.taken is not None
        states = self._states(state.taken) or [state]
        taken, error = together.fail(states, error)
        self._joint.pop(id(taken), None)
        self._has_landed(taken)
        self._give_up(state, taken, numbered=True)
        for each in states:
            self.stale.pop(each.name, None)
            if not error.definite:
                each.next += len(taken.tokens)
                if not is_reset:
                    self._doubtful.add(each.name)
        for each in states:
            self._unready(each)  # it may have been ready for this
            if each is not state:
                self._note(each)
        return failed(states[0].name, taken, error)

    def _fail_waiting(self, state: Outbox[Token], error: GamecastError) -> Iterator[Resolved[Token]]:
        while state.frames:
            frame = state.frames[0]
            if frame.regions:
                yield self._fail_joint(frame, error)
            else:
                state.frames.pop(0)
                self._give_up(state, frame, numbered=False)
                yield failed(state.name, frame, error)

    def _fail_joint(self, frame: OpenFrame[Token], error: GamecastError) -> Resolved[Token]:
        """Give up a frame of several regions that was not sent."""
        states = self._states(frame)
        for state in states:
            state.frames = [each for each in state.frames if each is not frame]
        self._joint.pop(id(frame), None)
        self._give_up(states[0], frame, numbered=False)
        for state in states:
            self._unready(state)  # it may have been ready for this
            self._note(state)
        return failed(states[0].name, frame, error)

    def last_own(self, region: str) -> Sequence[OpenFrame[Token]] | None:
        """Return what stands for the events of a region that have no answer; None if there are none."""
        state = self._regions.get(region)
        return _unanswered(state) or None if state is not None else None

    def is_answered(self, region: str, events: Sequence[OpenFrame[Token]]) -> bool:
        """Return whether what `last_own` has returned has its answers by now.

        All of it: one of several regions may be given up before those that were published earlier.
        """
        waiting = {*map(id, _unanswered(self._regions[region]))}
        return waiting.isdisjoint(map(id, events))

    def accepted_up_to(self, region: str) -> tuple[int, int]:
        """Return (epoch, number) of the last event of a region that its ingress has acknowledged, (0, 0) for none."""
        state = self._regions.get(region)
        return state.accepted if state is not None else (0, 0)

    def regions(self) -> list[str]:
        """Return all regions that events were ever added for."""
        return list(self._regions)

    def _abandon(self, node: str | None) -> None:
        """Give up what a node that was reset may have accepted and forgotten.

        None: any node may have been reset between two plans that this connection knows.
        """
        asked = self._asked(node) if node is not None else set()
        for state in self._regions.values():
            if state.reset(node, is_asked=state.name in asked):
                self._abandoned.append(self._forget(state))

    def _forget(self, state: Outbox[Token]) -> Resolved[Token]:
        """Give up ``taken``: it may have been accepted, and the node that knew was reset."""
        assert state.taken is not None
        self._unready(state)
        error = PublishUncertain(
            f"a node on the path of {state.name!r} was reset. It may have accepted {len(state.taken.tokens)} event(s) "
            "and lost them; some subscribers may have delivered them"
        )
        forgotten = self._fail_taken(state, error, is_reset=True)
        self._note(state)
        return forgotten

    def _asked(self, node: str) -> set[str]:
        """Stop waiting for a node's answers, and return the regions whose frames were in flight to it.

        Regions whose frame was given up before, and that may have another one in flight elsewhere, are left out.
        """
        frames: list[PublishedFrame] = []
        for frame in self._in_flight.pop(node, ()):
            landing = self._asked_by(node, frame)
            frames.append(landing.frame if landing is not None else frame)
        return {region for frame in frames for region, _ in frame.parts if self._regions[region].sent is frame}

    def _asked_by(self, node: str, frame: PublishedFrame) -> _Landing[Token] | None:
        """Return what a frame asks about, None if it is no question, or answered."""
        return self._landing.get(node, {}).get(_question(frame)) if frame.kind is FrameKind.ASK else None

    def _begin(self, region: str) -> Outbox[Token]:
        state = self._regions[region] = Outbox(region, self.incarnation)
        if self._plan is not None and region in self._plan.paths:
            state.node, state.epoch = self._plan.paths[region][0], self._plan.epoch_of(region)
        else:
            self._unplaced[region] = None
        return state

    def _note(self, state: Outbox[Token]) -> None:
        """Note that a region can be taken from, if it can."""
        if state.node is None or state.name in self.stale or state.name in self._doubtful:
            return
        if state.refused is None:
            if state.taken is not None or not state.frames:
                return
            first = state.frames[0]
            if self._wait is not None and first.kind is FrameKind.EVENTS and not self._wait.may_go(first.run):
                return
        else:
            assert state.taken is not None
            first = state.taken
        node = state.node
        if first.regions:
            states = self._states(first)
            if not self._may_go_together(first, states):
                return
            state, node = states[0], self._way(states)[0]
        self._unready(state)
        state.ready_at = node
        self._ready.setdefault(node, {})[state.name] = state
        self.woken_nodes.add(node)

    def _may_go_together(self, frame: OpenFrame[Token], states: Sequence[Outbox[Token]]) -> bool:
        """Return whether a frame of several regions can be taken."""
        blocked = any(state.name in self.stale or state.name in self._doubtful for state in states)
        return not blocked and bool(self._way(states)) and together.is_next(frame, states)

    def _unready(self, state: Outbox[Token]) -> None:
        """Remove a region from those to take from, until `_note` adds it again.

        Giving one frame up may already have made another ready, and that one is given up next.
        """
        if state.ready_at is not None:
            self._ready.get(state.ready_at, {}).pop(state.name, None)
            state.ready_at = None

    def _resolve(self, node: str, frame: PublishedFrame, answer: Answer) -> Resolved[Token] | None:
        if frame.kind is FrameKind.ASK:
            landing = self._asked_by(node, frame)
            if landing is None or answer.verdict is Verdict.LANDING:
                return None
            return self._decided(landing, answer)
        state = self._regions[frame.region]
        if state.sent is not frame:
            return None  # given up meanwhile
        states = [state, *(self._regions[part.region] for part in frame.extras.also)]
        if answer.verdict in _LATER:
            if not together.refuse(states, frame):
                return self._forget(state)
            if answer.verdict is Verdict.STALE:
                self.stale.update({each.name: frame.epoch for each in states if frame.epoch == each.epoch})
            return self._offer_again(states)
        if answer.verdict is Verdict.FORGOTTEN and not any(each.is_uncertain for each in states):
            # No node has it, so it may go out again, as another incarnation.
            together.refuse(states, frame)
            self._doubtful.update(each.name for each in states)
            self.forgotten = max(self.forgotten, answer.numbers[0])
            return self._offer_again(states)
        if answer.verdict not in (Verdict.OK, Verdict.SEEN):
            resolved = self._fail_taken(state, refusal(frame, answer))
            self._note(state)
            return resolved
        if 0 in answer.numbers[1:]:
            if not together.land(states):
                return self._forget(state)
            assert state.taken is not None
            landing, decider = _Landing(state.taken, frame, asking(frame)), state.taken.way[-1]
            self._landing.setdefault(decider, {})[_question(landing.question)] = landing
            self._to_ask.add(decider)
            self.woken_nodes.add(decider)
            return None
        return self._settle(states, frame, answer)

    def _decided(self, landing: _Landing[Token], answer: Answer) -> Resolved[Token] | None:
        """Take what the last node on its way says of a frame of several regions."""
        taken, frame = landing.taken, landing.frame
        states = self._states(taken)
        self._has_landed(taken)
        if answer.verdict is Verdict.OK:
            return self._settle(states, frame, answer)
        if answer.verdict is Verdict.FORGOTTEN:
            self.forgotten = max(self.forgotten, answer.numbers[0])
        if not answer.drawn:  # what became of it is not known there any more
            resolved = self._fail_taken(states[0], refusal(frame, answer))
            self._note(states[0])
            return resolved
        together.refused_on_its_way(states, frame, answer.drawn)
        if answer.verdict in _LATER or answer.verdict is Verdict.FORGOTTEN:
            together.put_back(states)
            if answer.verdict is Verdict.FORGOTTEN:
                self._doubtful.update(each.name for each in states)
            elif answer.verdict is Verdict.STALE:
                self.stale.update({each.name: frame.epoch for each in states if frame.epoch == each.epoch})
            self._note(states[0])
            return None
        resolved = self._fail_taken(states[0], refusal(frame, answer))
        self._note(states[0])
        return resolved

    def _has_landed(self, taken: OpenFrame[Token]) -> None:
        """Ask no more what becomes of a frame."""
        for node in taken.way[-1:]:
            asked = self._landing.get(node, {})
            for question in [number for number, landing in asked.items() if landing.taken is taken]:
                del asked[question]

    def _settle(self, states: Sequence[Outbox[Token]], frame: PublishedFrame, answer: Answer) -> Resolved[Token]:
        """Report a frame that all of its regions have accepted."""
        state = states[0]
        taken = state.settle()
        if taken.regions:
            for each in states[1:]:
                each.settle()
            del self._joint[id(taken)]
        self.buffered.events -= len(taken.tokens)
        self.buffered.bytes -= taken.payload_bytes
        epoch, *lasts = answer.numbers
        state.next = frame.first + frame.count
        if frame.kind in CARRIES_EVENTS:
            state.accepted = epoch, lasts[0]
        for each, part, last in zip(states[1:], frame.extras.also, lasts[1:], strict=True):
            each.next = part.first + frame.count
            each.accepted = epoch, last
        if self._wait is not None and frame.kind is FrameKind.EVENTS:
            self._go_on(self._wait.answered(frame.region, frame.first + frame.count - 1, epoch, lasts[0]))
        first, *others = [last - frame.count + 1 for last in lasts]
        also = [(each.name, number) for each, number in zip(states[1:], others, strict=True)] if others else ()
        for each in states:
            self._note(each)
        of_events = frame.region, taken.tokens, epoch, first
        return Resolved(*of_events, also=also, sent_at_ns=taken.sent_at_ns, payloads=taken.payloads)

    def _accepted(self, state: Outbox[Token], frame: PublishedFrame, answer: Answer) -> Resolved[Token]:
        """Report a frame of one region, with nothing behind it, that its ingress has accepted."""
        taken = state.settle()
        events = len(taken.tokens)
        self.buffered.events -= events
        self.buffered.bytes -= taken.payload_bytes
        epoch, last = answer.numbers
        state.next = frame.first + events
        state.accepted = epoch, last
        told = taken.sent_at_ns, taken.payloads
        return Resolved(frame.region, taken.tokens, epoch, last - events + 1, None, (), *told)

    def _offer_again(self, states: Sequence[Outbox[Token]]) -> Resolved[Token] | None:
        """Offer a refused frame where the plan says; give it up if its regions have parted meanwhile."""
        resolved = None
        if len(states) > 1 and self._have_parted(states):
            resolved = self._fail_taken(states[0], not_together([each.name for each in states]))
        self._note(states[0])
        return resolved

    def _give_up(self, state: Outbox[Token], frame: OpenFrame[Token], *, numbered: bool) -> None:
        self.buffered.events -= len(frame.tokens)
        self.buffered.bytes -= frame.payload_bytes
        if self._wait is not None and frame.kind is FrameKind.EVENTS:
            events = len(frame.tokens)
            if numbered:
                freed = self._wait.lost(state.name, state.next + events - 1)
            else:
                freed = self._wait.given_up(frame.run, events)
            self._go_on(freed)


def _question(frame: PublishedFrame) -> Question:
    return frame.incarnation, frame.body


def _unanswered(state: Outbox[Token]) -> list[OpenFrame[Token]]:
    return [*([state.taken] if state.taken is not None else ()), *state.frames]
