"""A publisher among ingresses that move, lose requests and answers, and begin anew: each event's fate is told once, and
nothing is published twice of which the application does not know that it may have been."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import orjson
import pytest

from sequencing.errors import GamecastError, OutOfMemory, PublishUncertain, Unreachable
from sequencing.frames import PublishedFrame
from sequencing.node import Accepted, Answer, Verdict
from sequencing.plan import Plan
from sequencing.publisher import Publisher
from sequencing.resolved import Resolved

REGIONS = "a", "b", "c"
NODES = "n1", "n2", "n3"
LOSSY = NODES[:2]
"""Those that begin anew without what they had."""

STEPS = 260
SEEDS = 1_000


@dataclass(slots=True)
class Request:
    """Frames on their way; ``answers`` once the ingress has answered, and that is on its way back."""

    node: str
    run: int
    frames: Sequence[PublishedFrame]
    answers: Sequence[Answer] | None = None


@dataclass(slots=True)
class Ingresses:
    """All nodes. What one had accepted, the next one knows, unless it was gone before it could tell."""

    epoch: int = 1
    runs: dict[str, int] = field(default_factory=lambda: dict.fromkeys(LOSSY, 0))
    places: dict[str, tuple[str, int]] = field(default_factory=dict)
    accepted: Counter[str] = field(default_factory=Counter)
    """Token → how often it was published."""
    _known: dict[str, Accepted] = field(default_factory=dict)
    _last: Counter[tuple[str, int]] = field(default_factory=Counter)

    def plan(self) -> Plan:
        epochs = {region: epoch for region, (_, epoch) in self.places.items() if epoch != self.epoch}
        paths = {region: (node,) for region, (node, _) in self.places.items()}
        runs = {node: str(run) for node, run in self.runs.items()}
        return Plan(self.epoch, 1, "acyclic", dict.fromkeys(NODES, ""), paths, (), epochs, runs)

    def move(self, regions: Sequence[str], draw: random.Random) -> None:
        self.epoch += 1
        for region in regions:
            self.places[region] = draw.choice(NODES), self.epoch

    def begin_anew(self, node: str, draw: random.Random) -> None:
        self.runs[node] += 1
        there = [region for region, (place, _) in self.places.items() if place == node]
        self.move(there, draw)
        for region in there:
            self._known.pop(region, None)

    def is_gone(self, request: Request) -> bool:
        return self.runs.get(request.node, 0) != request.run

    def publish(self, request: Request) -> list[Answer]:
        return [self._publish(request.node, frame) for frame in request.frames]

    def _publish(self, node: str, frame: PublishedFrame) -> Answer:
        if self.places[frame.region] != (node, frame.epoch):
            return Answer(Verdict.STALE, (self.epoch,))
        known = self._known.get(frame.region)
        if known is not None and frame.incarnation < known.incarnation:
            return Answer(Verdict.FENCED, (known.incarnation,))
        last = known.last if known is not None and known.incarnation == frame.incarnation else 0
        end = frame.first + frame.count - 1
        if known is not None and last == end:
            return Answer(Verdict.SEEN, (known.epoch, known.region_last))
        if frame.first <= last:
            return Answer(Verdict.PAST, (last,))
        if known is not None and last and known.epoch == frame.epoch and frame.first > last + 1:
            return Answer(Verdict.GAP, (last,))
        stream = frame.region, frame.epoch
        self._last[stream] += frame.count
        self._known[frame.region] = Accepted(frame.incarnation, end, frame.epoch, self._last[stream])
        self.accepted.update(orjson.loads(frame.body)[2])
        return Answer(Verdict.OK, (frame.epoch, self._last[stream]))


class World:
    """The publisher, its requests, and plans that it has not heard of yet."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.ingresses = Ingresses(places={region: (self.draw.choice(NODES), 1) for region in REGIONS})
        self.publisher: Publisher[str] = Publisher("p", 1)
        self.told: dict[str, GamecastError | None] = {}
        self.added = 0
        self._plans: list[tuple[Plan, dict[str, int]]] = []
        self._runs: dict[str, int] = {}
        self._requests: dict[str, Request] = {}
        self._late: list[Request] = []
        self._incarnation = 1
        self._announce()
        self.follow()

    def step(self) -> None:
        """Let one thing happen."""
        draw, publisher, ingresses = self.draw, self.publisher, self.ingresses
        match draw.choices(["add", "move", "begin anew", "follow", "skip", "renew", "give up", "request"],
                           [25, 7, 4, 6, 1, 3, 2, 52])[0]:  # fmt: skip
            case "add":
                region = draw.choice(REGIONS)
                self.added += 1
                token = f"{region}{self.added}"
                publisher.add(region, orjson.dumps(token), binary=False, sent_at_ns=0, token=token)
            case "move":
                ingresses.move([region for region in REGIONS if draw.random() < 0.5], draw)
                self._announce()
            case "begin anew":
                ingresses.begin_anew(draw.choice(LOSSY), draw)
                self._announce()
            case "follow":
                self.follow()
            case "skip":
                del self._plans[:-1]
                self.follow()
            case "renew":
                self._renew()
            case "give up":
                self._give_up(draw.choice(NODES))
            case "request":
                self._request(draw.choice(NODES))

    def settle(self) -> None:
        """Let nothing go wrong any more."""
        for _ in range(200):
            self.follow()
            self._renew()
            for node in NODES:
                self._take(node)
                if request := self._requests.pop(node, None):
                    self._tell(self.publisher.answered(node, request.answers or self.ingresses.publish(request)))
        for request in self._late:
            if not self.ingresses.is_gone(request):
                self.ingresses.publish(request)

    def follow(self) -> None:
        for plan, runs in self._plans:
            self._runs = runs
            self.publisher.assign(plan)
            self._tell(self.publisher.abandoned())
        self._plans.clear()

    def _announce(self) -> None:
        self._plans.append((self.ingresses.plan(), dict(self.ingresses.runs)))

    def _renew(self) -> None:
        if doubtful := self.publisher.doubtful():
            self._incarnation += 1
            self.publisher.renew(doubtful, self._incarnation)

    def _give_up(self, node: str) -> None:
        request = self._requests.pop(node, None)
        if request is None:
            return
        error: GamecastError = OutOfMemory("full")
        if request.answers is not None or self.draw.random() < 0.5:
            self._lose(request)
            self.publisher.unanswered(node)
            error = PublishUncertain("no answer")
        waiting = Unreachable("full, or not there")
        self._tell(self.publisher.give_up(node, under_way=error, waiting=waiting))

    def _request(self, node: str) -> None:
        if node not in self._requests:
            self._take(node)
            return
        request = self._requests[node]
        if self._late and self.draw.random() < 0.2:
            late = self._late.pop(self.draw.randrange(len(self._late)))
            if not self.ingresses.is_gone(late):
                self.ingresses.publish(late)
        if self.ingresses.is_gone(request) or self.draw.random() < 0.35:
            del self._requests[node]
            self._lose(request)
            self.publisher.unanswered(node)
            self._take(node)
        elif request.answers is None:
            request.answers = self.ingresses.publish(request)
        else:
            del self._requests[node]
            self._tell(self.publisher.answered(node, request.answers))

    def _lose(self, request: Request) -> None:
        """Lose the answer, if there is one; if not, the request, or it comes late."""
        if request.answers is None and not self.ingresses.is_gone(request) and self.draw.random() < 0.5:
            self._late.append(request)

    def _take(self, node: str) -> None:
        if node not in self._requests and (frames := self.publisher.take(node)):
            self._requests[node] = Request(node, self._runs.get(node, 0), frames)

    def _tell(self, resolved: Sequence[Resolved[str]]) -> None:
        for fate in resolved:
            for token in fate.tokens:
                assert token not in self.told, f"{token} is told twice"
                self.told[token] = fate.error


@pytest.mark.parametrize("first", range(0, SEEDS, 100))
def test_each_event_has_one_fate_and_it_is_true(first: int) -> None:
    fates: Counter[str] = Counter()
    for seed in range(first, first + 100):
        world = World(seed)
        for _ in range(STEPS):
            world.step()
        world.settle()
        assert len(world.told) == world.added, f"seed {seed}: {world.added - len(world.told)} events were told nothing"
        for token, error in world.told.items():
            times = world.ingresses.accepted[token]
            match error:
                case None:
                    assert times == 1, f"seed {seed}: {token} has a receipt and was published {times} times"
                case GamecastError(definite=True):
                    assert times == 0, f"seed {seed}: {token} failed for certain and was published: {error}"
            fates[type(error).__name__] += 1
        assert world.publisher.buffered.events == 0
    assert fates.keys() >= {"NoneType", "PublishUncertain", "OutOfMemory"}
