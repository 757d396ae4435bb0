"""Worlds whose plan changes, explored: joins in place and new epochs, in every way with the traffic of a few events.

All machines are those of the product: publishers and listeners follow the plans as these are announced, the manager
brings each `Transition` from task to task, nodes prepare, close, open and forget. A world begins settled: the initial
listeners have all of their regions. Then everything that can happen happens in every order.

Only listeners that want nothing new are left to the end, one after another (see `laboratory.exploration.worlds`):
neither their reads nor the times at which they receive a plan make a difference to any other machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from laboratory.exploration.explorer import Label, Part, State
from laboratory.exploration.roamers import (
    Archive,
    ManagerActor,
    ManagerView,
    PlannedNode,
    PlannedNodeView,
    Roamer,
    RoamerView,
)
from laboratory.simulation.judging import Drawn, Run, violations
from laboratory.simulation.server import Delivered, Diary
from sequencing.frames import StampedFrame
from sequencing.plan import Ordering
from sequencing.record import Pair


@dataclass(frozen=True)
class Change:
    """The description of a changing world.

    ``acts``: the actions of each client of its own accord, in this order: ``say``, ``join`` or ``leave`` with a region;
    or ``answer`` with an event, which waits until that event is delivered. An event is named after the region, the
    client that says it, and its place among the client's events: ``a.p.1``. ``failovers``: how often another manager
    may restart a transition.
    """

    ordering: Ordering
    nodes: int
    listeners: Mapping[str, str]
    acts: Mapping[str, tuple[tuple[str, str], ...]]
    failovers: int = 0
    causal: bool = False
    expected: frozenset[Pair] = frozenset()
    """Overlaps that are expected. Then each pair meets on a node of its own, along a line: paths are long."""
    apart: bool = False
    """Whether regions end at nodes of their own, as far as there are nodes, so that atoms have to order them."""
    crossing: bool = False
    """Whether every other region ends in the middle of the line where the others begin."""


class ChangingWorld:
    """A changing world to explore."""

    def __init__(self, change: Change) -> None:
        self.change = change
        names = [f"n{number}" for number in range(1, change.nodes + 1)]
        self.archive = Archive(
            change.ordering, names, expected=change.expected, apart=change.apart, crossing=change.crossing
        )
        self.names = self.archive.nodes
        self.clients = sorted({*change.listeners, *change.acts})
        self.nodes: list[Part[PlannedNodeView]] = [
            Part(lambda name=name: PlannedNode(self.archive, name))  # type: ignore[misc]
            for name in self.names
        ]
        self.members: list[Part[RoamerView]] = [
            Part(lambda name=name: Roamer(self.archive, name, change.acts.get(name, ()), change.causal))  # type: ignore[misc]
            for name in self.clients
        ]
        self.manager: Part[ManagerView] = Part(lambda: ManagerActor(self.archive))
        self._first_client = len(self.names)
        self._manager = self._first_client + len(self.clients)
        self._patient = [i for i, name in enumerate(self.clients) if not change.acts.get(name)]

    def start(self) -> State:
        """Return the state in which those who listen from the beginning have joined, and nothing else has happened."""
        everybody = range(len(self.clients))
        state: State = (*(0 for _ in self.names), *(0 for _ in self.clients), 0, 0)
        for client, name in enumerate(self.clients):
            for region in self.change.listeners.get(name, ""):
                state = self._ordered(state, self._first_client + client, ("want", region))
        while True:
            moves = [*self._moves(state, everybody, acting=False)]
            changed = [after for _, after in moves if after != state]
            if not changed:
                return (*state[:-1], self.change.failovers)
            state = changed[0]

    def moves(self, state: State) -> Sequence[tuple[Label, State]]:
        """Return what can happen next."""
        eager = [client for client in range(len(self.clients)) if client not in self._patient]
        found = [move for move in self._moves(state, eager, acting=True) if move[1] != state]
        if found:
            return found
        listening = ([move for move in self._listens(state, client) if move[1] != state] for client in self._patient)
        return next(filter(None, listening), [])

    def judge(self, state: State) -> tuple[str, ...]:
        """Return the violations, by the checkers that judge the simulation."""
        manager = self._managed(state)
        unrest = "" if manager.settled else "a transition does not end"
        sessions: list[Diary] = []
        published: dict[str, float] = {}
        for client, name in enumerate(self.clients):
            view = self._client(state, client)
            if view.held or view.buffered or view.joined != view.wanted or view.acts_left:
                unrest = (
                    f"{name}: {view.held} held, {view.buffered} unpublished, {view.acts_left} to do, "
                    f"wants {sorted(view.wanted)}, joined {sorted(view.joined)}"
                )
            session = Diary(f"{name}#1")
            session.published = list(view.published)
            published |= {event: 0.0 for event, _ in view.published}
            session.deliveries = [Delivered(*delivered) for delivered in view.delivered]
            session.joined = list(view.sessions)
            early = set(self.change.listeners.get(name, ""))
            for region, _, _ in view.sessions:
                # Whether an event was published after a later join is not known: time passes for each by itself.
                session.joined_ms.append(-1.0 if region in early else inf)
                early.discard(region)
            session.past = dict(view.past)
            sessions.append(session)
        drawn = self._drawn(state)
        kept = {(region, each.event) for region, events in drawn.items() for each in events}
        run = Run(sessions, drawn, kept, published, unrest, self.change.causal, self.change.ordering != "overlap")
        return tuple(violations(run))

    def _moves(self, state: State, clients: Sequence[int], *, acting: bool) -> Iterator[tuple[Label, State]]:
        yield from self._manages(state)
        for client in clients:
            view = self._client(state, client)
            if acting and view.may_act:
                yield ("acts", self.clients[client], view.next_act), self._acts(state, client)
            for name in view.offers:
                yield ("offers", self.clients[client], name), self._offer(state, client, name)
            yield from self._listens(state, client)
        for source, name in enumerate(self.names):
            for target, linked in self._node(state, source).heads.items():
                node = self.names.index(target)
                moved, answer = self.nodes[node].order(state[node], ("transfer", name, linked))
                after = _with(state, node, moved)
                label = "passes", name, linked.frame.region, target
                yield label, self._ordered(after, source, ("acknowledge", target, answer.accepted))

    def _acts(self, state: State, client: int) -> State:
        return self._ordered(state, self._first_client + client, ("act",))

    def _offer(self, state: State, client: int, name: str) -> State:
        place, node = self._first_client + client, self.names.index(name)
        offered, frames = self.members[client].order(state[place], ("offer", name))
        moved, answers = self.nodes[node].order(state[node], ("publish", frames))
        answered, _ = self.members[client].order(offered, ("answered", name, answers))
        return _with(_with(state, node, moved), place, answered)

    def _listens(self, state: State, client: int) -> Iterator[tuple[Label, State]]:
        """Have a client receive the next plan, or read a node: all of it, or the next frame of a region."""
        view, place, name = self._client(state, client), self._first_client + client, self.clients[client]
        announced = self._managed(state).announced
        if view.heard < len(announced):
            record = announced[view.heard]
            yield ("hears", name), self._ordered(state, place, ("hear", record))
        left: dict[str, dict[tuple[str, int], tuple[StampedFrame, ...]]] = {}
        for region, node, epoch, after in view.reads:
            stream = self._node(state, self.names.index(node)).egress.get((epoch, region), ())
            if after is None:
                order = "found_end", region, epoch, stream[-1] if stream else None
                yield ("finds the end of", name, region), self._ordered(state, place, order)
                continue
            there = tuple(frame for frame in stream if frame.last > after)
            left.setdefault(node, {})[region, epoch] = there
        for node, streams in left.items():
            everything = tuple(frame for there in streams.values() for frame in there)
            yield ("reads all", name, node), self._ordered(state, place, ("read", everything, tuple(streams)))
            for key, there in streams.items():
                if there and len(everything) > 1:
                    whole = tuple(other for other in streams if len(streams[other]) == (other == key))
                    yield ("reads", name, key[0]), self._ordered(state, place, ("read", there[:1], whole))

    def _manages(self, state: State) -> Iterator[tuple[Label, State]]:
        view = self._managed(state)
        if view.settled:
            told = tuple(
                (name, self._client(state, client).interest, self._client(state, client).unplaced)
                for client, name in enumerate(self.clients)
            )
            yield ("decides", "manager"), self._ordered(state, self._manager, ("decide", told))
        for task in view.tasks:
            node = self.names.index(self.archive.tasks[task].node)
            moved, answer = self.nodes[node].order(state[node], ("perform", task))
            after = _with(state, node, moved)
            label = "has done", "manager", self.names[node], type(self.archive.tasks[task]).__name__.lower()
            yield label, self._ordered(after, self._manager, ("done", task, answer))
        if view.to_announce:
            yield ("announces", "manager"), self._ordered(state, self._manager, ("announce",))
        if state[-1] and not view.settled:
            after = self._ordered(state, self._manager, ("anew",))
            yield ("begins anew", "manager"), (*after[:-1], state[-1] - 1)

    def _ordered(self, state: State, place: int, order: tuple[object, ...]) -> State:
        if place == self._manager:
            part: Part[ManagerView] | Part[PlannedNodeView] | Part[RoamerView] = self.manager
        elif place >= self._first_client:
            part = self.members[place - self._first_client]
        else:
            part = self.nodes[place]
        return _with(state, place, part.order(state[place], order)[0])

    def _node(self, state: State, node: int) -> PlannedNodeView:
        return self.nodes[node].views[state[node]]

    def _client(self, state: State, client: int) -> RoamerView:
        return self.members[client].views[state[self._first_client + client]]

    def _managed(self, state: State) -> ManagerView:
        return self.manager.views[state[self._manager]]

    def _drawn(self, state: State) -> dict[str, list[Drawn]]:
        found: dict[str, list[Drawn]] = {}
        for node in range(len(self.names)):
            for (epoch, region), events in self._node(state, node).events.items():
                found.setdefault(region, []).extend(Drawn(epoch, n, event) for n, event in enumerate(events))
        return {region: sorted(events) for region, events in found.items()}


def _with(state: State, place: int, to: int) -> State:
    return (*state[:place], to, *state[place + 1 :])
