"""Worlds whose plan stays, explored: the possible moves, and the conditions at every end.

*Moves that need not be tried.* Two moves of different machines commute, unless one brings what the other takes: a read
of the head of a stream does not depend on later entries. Therefore, if no delivery causes any move,

- a client that has nothing else in flight may say its next item at once;
- nodes may move one after another down the paths: when nothing more can come to a node from above, the order of the
  frames that arrive there now is the only choice left. (Down the paths there must be a way down: C3.)
- subscribers may read when all is over, one after another: the streams hold no less then.

`tests/simulation/test_exhaustive.py` holds the ends of a search that uses this to those of one that does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import networkx as nx

from laboratory.exploration.actors import Cast, ClientActor, ClientView, NodeActor, NodeView
from laboratory.exploration.explorer import Label, Part, State
from sequencing.checkers import DeliverySequence, judge
from sequencing.frames import StampedFrame
from sequencing.plan import Plan

Moves = list[tuple[Label, State]]


class World:
    """A world to explore. ``reduced``: leave out what makes no difference."""

    def __init__(self, cast: Cast, *, reduced: bool = True) -> None:
        self.cast = cast
        self.names = sorted(cast.plan.nodes)
        self.clients = cast.clients
        self.nodes: list[Part[NodeView]] = [Part(lambda name=name: NodeActor(cast, name)) for name in self.names]  # type: ignore[misc]
        self.members: list[Part[ClientView]] = [
            Part(lambda name=name: ClientActor(cast, name))  # type: ignore[misc]
            for name in self.clients
        ]
        self._first_client = len(self.names)
        active = {name for name in self.clients if cast.acts_upon_deliveries(name)}
        self._patient = {i for i, name in enumerate(self.clients) if reduced and name not in active}
        # Who waits until an event of several regions is decided publishes only then, further up.
        landing = {say.sender for say in cast.says if say.also}
        waits = any(sum(say.sender == name for say in cast.says) > 1 for name in landing)
        self._downwards = _downwards(cast.plan) if reduced and not active and not cast.faults and not waits else None
        self._verdicts: dict[tuple[tuple[str, ...], ...], tuple[str, ...]] = {}
        self._starts = {(say.atom, say.region) for say in cast.says if say.kind == "start"}

    def start(self) -> State:
        """Return the state before any move."""
        return (*(0 for _ in self.names), *(0 for _ in self.clients), self.cast.faults)

    def moves(self, state: State) -> Sequence[tuple[Label, State]]:
        """Return what can happen next."""
        says: Moves = []
        for client in range(len(self.clients)):
            view = self._client(state, client)
            if view.say is not None and view.ready and self._may_join(state, view):
                moved, _ = self.members[client].order(state[self._first_client + client], ("say",))
                label = "says", self.clients[client], view.say.event
                says.append((label, self._with(state, client=client, to=moved)))
                if client in self._patient and not view.offers and not view.say.after:
                    return says[-1:]
        if self._downwards is None:
            into = [move for node in range(len(self.names)) for move in self._into(state, node)]
        else:
            into = next(filter(None, (self._into(state, node) for node in self._downwards)), [])
        reads = [move for client in self._eager() for move in self._reads(state, client)]
        found = [*says, *into, *reads]
        if found:
            return found
        return next(filter(None, (list(self._reads(state, client)) for client in sorted(self._patient))), [])

    def judge(self, state: State) -> tuple[str, ...]:
        """Return the violations: something is held for ever or missing, orders disagree, effects precede causes."""
        views = [self._client(state, client) for client in range(len(self.clients))]
        wrong = [*self._stuck(views)]
        delivered = tuple(view.delivered for view in views)
        if delivered not in self._verdicts:
            self._verdicts[delivered] = tuple(self._disorder(delivered))
        return (*wrong, *self._verdicts[delivered], *self._causality(views))

    def delivered(self, state: State) -> dict[str, tuple[str, ...]]:
        """Return the deliveries of each subscriber."""
        return {name: self._client(state, i).delivered for i, name in enumerate(self.clients) if name in self._readers}

    @property
    def _readers(self) -> Mapping[str, tuple[str, ...]]:
        return self.cast.regions_of

    def _eager(self) -> Iterator[int]:
        return (client for client in range(len(self.clients)) if client not in self._patient)

    def _client(self, state: State, client: int) -> ClientView:
        return self.members[client].views[state[self._first_client + client]]

    def _node(self, state: State, node: int) -> NodeView:
        return self.nodes[node].views[state[node]]

    def _may_join(self, state: State, view: ClientView) -> bool:
        if view.say is None or view.say.kind != "join":
            return True
        started = {start for node in range(len(self.names)) for start in self._node(state, node).started}
        return self._starts <= started

    def _with(self, state: State, *, client: int | None = None, to: int = 0, faults: int = 0) -> State:
        changed = list(state)
        if client is not None:
            changed[self._first_client + client] = to
        changed[-1] -= faults
        return tuple(changed)

    def _into(self, state: State, node: int) -> list[tuple[Label, State]]:
        """Return the arrivals at a node that change anything: requests of clients, and frames on the links towards it.

        Who asks for what is not decided yet changes nothing.
        """
        return [move for move in self._arrivals(state, node) if move[1] != state]

    def _arrivals(self, state: State, node: int) -> Iterator[tuple[Label, State]]:
        for client in range(len(self.clients)):
            if self.names[node] in self._client(state, client).offers:
                yield from self._offer(state, client, node)
        if state[-1]:
            for place, request in enumerate(self._node(state, node).requests):
                moved, _ = self.nodes[node].order(state[node], ("publish", request))
                after = self._with(state, faults=1)
                yield ("comes again", self.names[node], str(place + 1)), (*after[:node], moved, *after[node + 1 :])
        for source in range(len(self.names)):
            if self.names[node] in self._node(state, source).heads:
                yield from self._transfer(state, source, node)

    def _offer(self, state: State, client: int, node: int) -> Iterator[tuple[Label, State]]:
        name = self.names[node]
        member, local = self.members[client], state[self._first_client + client]
        offered, frames = member.order(local, ("offer", name))
        moved, answers = self.nodes[node].order(state[node], ("publish", frames))
        after = (*state[:node], moved, *state[node + 1 :])
        answered, _ = member.order(offered, ("answered", name, answers))
        yield ("offers", self.clients[client], name), self._with(after, client=client, to=answered)
        if state[-1]:
            label = "offers in vain", self.clients[client], name
            yield label, self._with(after, client=client, to=offered, faults=1)

    def _transfer(self, state: State, source: int, node: int) -> Iterator[tuple[Label, State]]:
        linked = self._node(state, source).heads[self.names[node]]
        moved, answer = self.nodes[node].order(state[node], ("transfer", self.names[source], linked))
        after = (*state[:node], moved, *state[node + 1 :])
        let_go, _ = self.nodes[source].order(state[source], ("acknowledge", self.names[node], answer.accepted))
        label = "passes", self.names[source], linked.frame.region, self.names[node]
        yield label, (*after[:source], let_go, *after[source + 1 :])
        if state[-1]:
            yield ("passes in vain", *label[1:]), self._with(after, faults=1)

    def _reads(self, state: State, client: int) -> Iterator[tuple[Label, State]]:
        """Read a node so that the next frame of one region is found, and other regions that have any are left out."""
        plan, local = self.cast.plan, state[self._first_client + client]
        left: dict[str, tuple[StampedFrame, ...]] = {}
        for region, position in self._client(state, client).position.items():
            out = self.names.index(plan.egresses[region])
            left[region] = self._node(state, out).egress.get((plan.epoch, region), ())[position:]
        for region, frames in left.items():
            if frames:
                rule = self.cast.without
                empty = (other for other, there in left.items() if len(there) == (other == region) or rule == "cut")
                whole = tuple(o for o in empty if plan.egresses[o] == plan.egresses[region] or rule == "place")
                moved, _ = self.members[client].order(local, ("read", frames[0], whole))
                yield ("reads", self.clients[client], region), self._with(state, client=client, to=moved)

    def _stuck(self, views: Sequence[ClientView]) -> Iterator[str]:
        joined = self.cast.joiner
        for name, view in zip(self.clients, views, strict=True):
            regions = set(self.cast.regions_of.get(name, ()))
            if joined is not None and joined[0] == name:
                regions.discard(joined[1])
            missing = [
                say.event
                for say in self.cast.says
                if say.kind == "event" and not regions.isdisjoint(say.regions) and say.event not in view.delivered
            ]
            if view.held:
                yield f"deadlock: {name} holds {view.held} frames for ever, and never delivers {' '.join(missing)}"
            elif missing:
                yield f"lost: {name} never delivers {' '.join(missing)}"
            if view.buffered:
                yield f"liveness: {name} can never publish what it has said"

    def _disorder(self, delivered: Sequence[tuple[str, ...]]) -> Iterator[str]:
        regions: dict[str, list[str]] = {}
        sender_of: dict[str, str] = {}
        order: dict[str, list[str]] = {}
        for say in self.cast.says:
            if say.kind == "event":
                regions.setdefault(say.event, []).extend(say.regions)
                if sender_of.setdefault(say.event, say.sender) == say.sender:
                    order.setdefault(say.sender, []).append(say.event)
        sequences = [
            DeliverySequence(name, events, ["+".join(regions[e]) for e in events], [sender_of[e] for e in events])
            for name, events in zip(self.clients, delivered, strict=True)
        ]
        for offence in judge(sequences, publication_order=order).examples:
            yield f"{offence.kind}: {offence.describe()}"

    def _causality(self, views: Sequence[ClientView]) -> Iterator[str]:
        known = {event: before for view in views for event, before in view.past.items()}
        past = {event: _transitively(event, known) for event in known}
        for name, view in zip(self.clients, views, strict=True):
            for place, event in enumerate(view.delivered):
                for late in view.delivered[place + 1 :]:
                    if late in past.get(event, ()):
                        yield f"causality: {name} delivered {event} before {late}, which moved its sender"


def _transitively(event: str, known: Mapping[str, frozenset[str]]) -> frozenset[str]:
    found: set[str] = set()
    agenda = [event]
    while agenda:
        new = known.get(agenda.pop(), frozenset()) - found
        found |= new
        agenda += new
    return frozenset(found)


def _downwards(plan: Plan) -> list[int] | None:
    """Return the nodes in an order that all paths follow, None where there is none."""
    names = sorted(plan.nodes)
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_nodes_from(names)
    graph.add_edges_from(plan.links)
    try:
        return [names.index(name) for name in nx.lexicographical_topological_sort(graph)]
    except nx.NetworkXUnfeasible:
        return None
