"""The actors of a world whose plan stays: sequencing nodes, and clients that publish and deliver."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

from laboratory.exploration.explorer import frozen
from laboratory.simulation.network import events_in
from sequencing.delivery import Delivery
from sequencing.frames import CARRIES_EVENTS, LinkedFrame, PublishedFrame, StampedFrame
from sequencing.node import Node
from sequencing.plan import AtomId, Plan, Step
from sequencing.publisher import Publisher
from sequencing.ready import Missing, Ready
from sequencing.steps import InstalledStep

START, JOIN = b"START", b"JOIN"

LaneRule = Literal["cut", "place", "bundle"]
"""``cut``: frames that were not read may precede those that were; ``place``: nodes' numbers are not comparable;
``bundle``: the copies of an event of several regions pass a link as one."""


@dataclass(frozen=True, slots=True)
class Say:
    """An action of a client of its own accord, each in its turn: publish an event, or a marker.

    ``after``: the events that it delivers before, because they cause it. A ``start`` marker makes the nodes begin to
    stamp its region for ``atom`` as it passes; a ``join`` marker waits until all of those have passed.
    """

    event: str
    sender: str
    region: str
    after: tuple[str, ...] = ()
    kind: Literal["event", "start", "join"] = "event"
    atom: int = 0
    also: tuple[str, ...] = ()
    """The further regions of an event. It is delivered once, at the first copy that comes; so is one that clients
    publish to each region by itself, under one name."""

    @property
    def regions(self) -> tuple[str, ...]:
        """All of its regions."""
        return self.region, *self.also


@dataclass(frozen=True)
class Cast:
    """The members of a world and their actions.

    ``faults``: how many answers may be lost, and requests repeated, in one run. ``beginning``: atoms that do not exist
    when the traffic begins. ``joiner``: a subscriber, and the region that it has from its own marker on. ``lanes``:
    whether nodes' own orders count; otherwise atoms alone order. ``without``: their rule that is left out.
    """

    plan: Plan
    regions_of: Mapping[str, tuple[str, ...]]
    says: tuple[Say, ...]
    causal: bool = False
    faults: int = 0
    beginning: frozenset[int] = frozenset()
    joiner: tuple[str, str] | None = None
    lanes: bool = False
    without: LaneRule | None = None

    @property
    def clients(self) -> list[str]:
        """All clients that publish or subscribe."""
        return sorted({*self.regions_of, *(say.sender for say in self.says)})

    def acts_upon_deliveries(self, client: str) -> bool:
        """Return whether this client's deliveries can make a difference to any other machine."""
        if self.joiner is not None and self.joiner[0] == client:
            return True
        mine = [say for say in self.says if say.sender == client]
        return any(say.after for say in mine) or (self.causal and len(mine) > 1)


class NodeView(NamedTuple):
    """The part of a node that others see."""

    heads: Mapping[str, LinkedFrame]
    """The oldest frame on each link, by the node that it leads to."""
    egress: Mapping[tuple[int, str], tuple[StampedFrame, ...]]
    requests: tuple[tuple[PublishedFrame, ...], ...]
    started: frozenset[tuple[int, str]]


class _Unbundling(Node):
    """A node that has each copy of an event pass a link by itself."""

    def _pass_on(
        self,
        copies: Sequence[tuple[InstalledStep, StampedFrame]],
        ends: Any,
        late: Sequence[StampedFrame] = (),
        said: bytes = b"",
    ) -> None:
        for copy in copies:
            super()._pass_on([copy], ends, late, said)


class NodeActor:
    """A node. It remembers the requests that it had, when they may come a second time."""

    def __init__(self, cast: Cast, name: str) -> None:
        self.node = Node(name) if cast.without != "bundle" else _Unbundling(name)
        self._plan, self._remembers = cast.plan, cast.faults > 0
        self._beginning = cast.beginning
        self.requests: list[tuple[PublishedFrame, ...]] = []
        self.started: set[tuple[int, str]] = set()
        steps = [self._step(step) for step in cast.plan.steps(name)]
        self.node.install(cast.plan.epoch, cast.plan.version, steps)

    def take(self, order: tuple[Any, ...]) -> Any:
        """Carry out ``publish frames``, ``transfer source frame`` or ``acknowledge target number``."""
        match order:
            case ("publish", frames):
                if self._remembers and frames not in self.requests:
                    self.requests.append(frames)
                for frame in frames:
                    self._begin(frame.region, frame.body)
                return tuple(self.node.publish(frames))
            case ("transfer", source, linked):
                self._begin(linked.frame.region, linked.frame.body)
                return self.node.transfer(source, [linked])
            case ("acknowledge", target, accepted):
                return self.node.acknowledge(target, accepted)
        raise ValueError(order)

    def key(self) -> Hashable:
        """Return the machine's state and the actor's memory."""
        return frozen(self.node), tuple(self.requests), frozenset(self.started)

    def view(self) -> NodeView:
        """Return the frames that are ready to be moved or read here."""
        return NodeView(
            {target: link[0] for target, link in self.node.links.items() if link},
            {stream: tuple(frames) for stream, frames in self.node.egress.items()},
            tuple(self.requests),
            frozenset(self.started),
        )

    def _step(self, step: Step) -> Step:
        here = (atom for atom in step.atoms if atom not in self._beginning or (atom, step.region) in self.started)
        return replace(step, atoms=tuple(here))

    def _begin(self, region: str, body: bytes) -> None:
        """Stamp a region for an atom from this marker on, as it passes."""
        if not body.startswith(START):
            return
        atom = AtomId(int(body.split()[1]))
        step = next(step for step in self._plan.steps(self.node.name) if step.region == region)
        if atom in step.atoms:
            self.started.add((atom, region))
            self.node.install(self._plan.epoch, self._plan.version, [self._step(step)])


class ClientView(NamedTuple):
    """The part of a client that others see."""

    say: Say | None
    """The next thing that it would say, if it were its turn."""
    ready: bool
    """Whether it has delivered what moves it to that."""
    offers: tuple[str, ...]
    """The nodes that it has a request for."""
    position: Mapping[str, int]
    """Region → the frames of it that were read."""
    delivered: tuple[str, ...]
    held: int
    past: Mapping[str, frozenset[str]]
    buffered: int


@dataclass(slots=True)
class _Story:
    """The record of a client."""

    said: int = 0
    position: dict[str, int] = field(default_factory=dict)
    delivered: list[str] = field(default_factory=list)
    past: dict[str, frozenset[str]] = field(default_factory=dict)
    unanswered: set[str] = field(default_factory=set)


class ClientActor:
    """A connection: the publisher and the delivery of one name."""

    def __init__(self, cast: Cast, name: str) -> None:
        self.says = [say for say in cast.says if say.sender == name]
        self.publisher: Publisher[str] = Publisher(name, 1, causal=cast.causal)
        self.publisher.assign(cast.plan)
        self.name, self._plan = name, cast.plan
        mine = cast.regions_of.get(name, ())
        joining = cast.joiner[1] if cast.joiner is not None and cast.joiner[0] == name else None
        lanes = cast.plan.egresses if cast.lanes else None
        if lanes and cast.without == "place":
            lanes = dict.fromkeys(lanes, "")
        there = [region for region in mine if region != joining]
        self.delivery = Delivery(cast.plan.epoch, there, cast.plan.atoms, lanes)
        if joining is not None:
            self.delivery.join({joining: JOIN}, lanes)
            self.delivery.found_end(joining)
        self.story = _Story(position=dict.fromkeys(mine, 0))
        self._keeps_past = cast.causal or any(say.after for say in cast.says)

    def take(self, order: tuple[Any, ...]) -> Any:
        """Carry out ``say``, ``offer node``, ``answered node answers`` or ``read frame whole``."""
        match order:
            case ("say",):
                self._say(self.says[self.story.said])
            case ("offer", node):
                self.story.unanswered.add(node)
                self.publisher.ask_again(node)
                return tuple(self.publisher.take(node))
            case ("answered", node, answers):
                self.story.unanswered.discard(node)
                for resolved in self.publisher.answered(node, answers):
                    assert resolved.error is None, resolved.error
            case ("read", frame, whole):
                self._read(frame, dict.fromkeys(whole, self._plan.epoch))
            case _:
                raise ValueError(order)
        return None

    def key(self) -> Hashable:
        """Return the machines' states and the record."""
        return frozen(self.publisher), frozen(self.delivery), frozen(self.story)

    def view(self) -> ClientView:
        """Return the possible moves of this client, and its deliveries."""
        story = self.story
        say = self.says[story.said] if story.said < len(self.says) else None
        nodes = {path[0] for path in self._plan.paths.values()}
        publisher = self.publisher
        return ClientView(
            say,
            say is not None and set(say.after) <= set(story.delivered),
            tuple(
                sorted(n for n in nodes if n in story.unanswered or publisher.waiting_events(n) or publisher.landing(n))
            ),
            dict(story.position),
            tuple(story.delivered),
            self.delivery.held_frames,
            dict(story.past),
            self.publisher.buffered.events,
        )

    def _say(self, say: Say) -> None:
        self.story.said += 1
        if say.kind == "event":
            if self._keeps_past:
                said = (earlier.event for earlier in self.says[: self.story.said - 1])
                self.story.past[say.event] = frozenset(self.story.delivered).union(said)
            payload = say.event.encode()
            if say.also:
                self.publisher.add_joint(say.regions, payload, True, 0, say.event)
            else:
                self.publisher.add(say.region, payload, binary=True, sent_at_ns=0, token=say.event)
        else:
            body = JOIN if say.kind == "join" else b"%b %d" % (START, say.atom)
            self.publisher.mark(say.region, body, say.event)
            self._nudge()

    def _read(self, frame: StampedFrame, whole: Mapping[str, int]) -> None:
        self.story.position[frame.region] += 1
        for item in self.delivery.receive([frame], whole):
            assert not isinstance(item, Missing), item
            if item.meta.publisher == self.name:
                self._passed(item)
            self.story.delivered += [event for event in events_of(item) if event not in self.story.delivered]
        self._nudge()

    def _nudge(self) -> None:
        unmarked = {say.region for say in self.says[self.story.said :] if say.kind == "join"}
        for region, body in self.delivery.join_probes(
            lambda: JOIN + b" again", unmarked=unmarked, is_quiet=self.delivery.regions.__contains__, request=0
        ).items():
            self.publisher.mark(region, body, "")

    def _passed(self, item: Ready) -> None:
        own = int(item.frame.meta.split(b" ", 4)[3]) + item.meta.events - 1
        self.publisher.passed(item.frame.region, own)


def events_of(item: Ready) -> list[str]:
    """The events of a frame; a marker has none."""
    return events_in(item.frame.body) if item.meta.kind in CARRIES_EVENTS else []
