"""A whole network of the pure machines under a seeded scheduler: whatever the interleaving, the promises hold.

Publishers, nodes, links and subscribers are the real machines; only who moves next is drawn. Requests and transfers are
repeated, answers are lost, and subscribers read one region long before another. The judge knows nothing of stamps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import permutations, product
from random import Random

import pytest

from laboratory.simulation.lines import plan_along
from placement.planner import make_plan
from sequencing.checkers import DeliverySequence, Published, Verdict, judge
from sequencing.conditions import violations
from sequencing.delivery import Delivery
from sequencing.frames import LinkedFrame, PublishedFrame, StampedFrame, decode_body
from sequencing.membership import Membership
from sequencing.node import Node
from sequencing.plan import Ordering, Plan
from sequencing.publisher import Publisher
from sequencing.ready import Missing, Ready

SEEDS = range(250)


class Network:
    """A running network; each method is one step of one of its parts."""

    def __init__(self, membership: Membership, plan: Plan, publishers: str = "pq") -> None:
        self.membership, self.plan = membership, plan
        self.nodes = {name: Node(name) for name in plan.nodes}
        for node in self.nodes.values():
            node.install(plan.epoch, plan.version, plan.steps(node.name))
        self.publishers: dict[str, Publisher[str]] = {name: Publisher(name, 1) for name in publishers}
        for publisher in self.publishers.values():
            publisher.assign(plan)
        self.deliveries = {
            s: Delivery(plan.epoch, mine, plan.atoms, plan.egresses) for s, mine in membership.regions_of.items()
        }
        self.delivered: dict[str, list[Ready | Missing]] = {subscriber: [] for subscriber in self.deliveries}
        self.position: Counter[tuple[str, str]] = Counter()
        self.published: dict[str, list[str]] = {name: [] for name in publishers}
        self.requests: list[tuple[str, list[PublishedFrame]]] = []
        self.carried: dict[tuple[str, str], list[LinkedFrame]] = {link: [] for link in plan.links}
        self.receipts: dict[str, tuple[str, int, int]] = {}

    def publish(self, publisher: str, region: str) -> None:
        """An event is named after its region, its publisher and its place among the publisher's events."""
        event = f"{region}{publisher}{len(self.published[publisher])}"
        self.published[publisher].append(event)
        self.publishers[publisher].add(region, b'"%b"' % event.encode(), binary=False, sent_at_ns=0, token=event)

    def offer(self, publisher: str, node: str, *, answer_lost: bool = False) -> None:
        if frames := self.publishers[publisher].take(node):
            answers = self.nodes[node].publish(frames)
            self.requests.append((node, frames))
            if not answer_lost:
                for resolved in self.publishers[publisher].answered(node, answers):
                    assert resolved.error is None, resolved.error
                    for number, event in enumerate(resolved.tokens, resolved.first_sequence):
                        self.receipts[event] = resolved.region, resolved.epoch, number

    def relay(self, source: str, target: str, *, back: int = 0, count: int = 1_000, acknowledge: bool = True) -> None:
        """Move up to ``count`` frames, beginning ``back`` frames before the oldest one on the link, or after it."""
        carried, link = self.carried[source, target], self.nodes[source].links.get(target, [])
        carried += link[len(carried) - (link[0].sequence - 1) :] if link else []
        start = max(0, len(carried) - len(link) - back)
        answer = self.nodes[target].transfer(source, carried[start : start + count])
        if acknowledge:
            self.nodes[source].acknowledge(target, answer.accepted)

    def read(self, subscriber: str, region: str, *, back: int = 0, count: int = 1_000, skip: int = 0) -> None:
        """Read up to ``count`` frames of a region, some again; ``skip`` of them were trimmed before they were read."""
        self.look(subscriber, [region], back=back, count=count, skip=skip, leaves_out=True)

    def look(
        self,
        subscriber: str,
        regions: Sequence[str],
        *,
        back: int = 0,
        count: int = 1_000,
        skip: int = 0,
        leaves_out: bool = False,
    ) -> None:
        """Read so much of regions that end at one node, in one moment; ``leaves_out``: maybe not all there."""
        found: list[StampedFrame] = []
        whole: dict[str, int] = {}
        for region in regions:
            stream = self.nodes[self.plan.egresses[region]].egress.get((self.plan.epoch, region), [])
            position = self.position[subscriber, region]
            start = position + skip if skip else max(0, position - back)
            frames = stream[start : start + count]
            if frames:
                self.position[subscriber, region] = max(position, start + len(frames))
            if self.position[subscriber, region] >= len(stream) and not leaves_out:
                whole[region] = self.plan.epoch
            found += frames
        self.delivered[subscriber] += self.deliveries[subscriber].receive(found, whole)

    def ends(self, subscriber: str) -> dict[str, list[str]]:
        """Return node → the regions of a subscriber that end there."""
        found: dict[str, list[str]] = {}
        for region in sorted(self.membership.regions_of[subscriber]):
            found.setdefault(self.plan.egresses[region], []).append(region)
        return found

    def drain(self) -> None:
        """Let everything arrive everywhere."""
        while any(publisher.buffered.events for publisher in self.publishers.values()):
            for publisher, node in product(self.publishers, self.nodes):
                self.offer(publisher, node)
        for _ in self.nodes:
            for source, target in sorted(self.plan.links):
                self.relay(source, target)
        for subscriber in sorted(self.membership.regions_of):
            for regions in self.ends(subscriber).values():
                self.look(subscriber, regions)

    def judge(self) -> Verdict:
        sequences = []
        for subscriber, items in self.delivered.items():
            events, regions, senders = [], [], []
            for item in items:
                if isinstance(item, Missing):
                    continue
                payloads = decode_body(item.frame.body)[1]
                assert len(payloads) == item.meta.events
                for number, event in enumerate(payloads, item.frame.last - item.meta.events + 1):
                    assert self.receipts.get(event) == (item.frame.region, item.frame.epoch, number)
                events += payloads
                regions += [item.frame.region] * len(payloads)
                senders += [item.meta.publisher] * len(payloads)
            sequences.append(DeliverySequence(subscriber, events, regions, senders))
        everything = [Published(event, event[0]) for events in self.published.values() for event in events]
        return judge(
            sequences,
            published=everything,
            membership=self.membership.regions_of,
            publication_order=self.published,
        )


def random_world(random: Random, ordering: Ordering) -> Network:
    """Subscribers have regions at random, or a window of neighbouring ones, as the servers of a game world do.

    The plan is ours, or one with longer paths, more ends, and atoms that are not needed.
    """
    regions = "abcdef"[: random.choice([2, 3, 4, 5, 6, 6, 6])]
    density, width = random.choice([0.4, 0.5, 0.6]), random.choice([0, 0, 0, 0, 2, 3])
    members = {}
    for number in range(random.choice([2, 3, 4, 5, 6, 6, 6])):
        window = (regions + regions)[number % len(regions) :][: min(width, len(regions))]
        members[f"s{number}"] = window or [region for region in regions if random.random() < density] or regions[:1]
    membership = Membership.of(members, regions)
    nodes = {f"n{number}": "" for number in range(1, random.choice([1, 2, 3, 4, 4]) + 1)}
    if random.random() < 0.5:
        return Network(membership, make_plan(membership, nodes, ordering=ordering))
    places = range(len(nodes))
    plan = plan_along(
        [*nodes],
        membership,
        ordering,
        epoch=1,
        first_atom=1,
        place=lambda _: random.choice(places),
        others=lambda: random.sample(places, random.choice([0, 0, 1])),
        keeps_needless=lambda: random.random() < 0.3,
    )
    assert violations(plan, membership) == {}
    return Network(membership, plan)


def run(network: Network, random: Random, *, steps: int = 150, loss: float = 0.0) -> None:
    """Draw who moves next; everybody has a pace of its own, so that some are far behind."""
    publishers, nodes, links = [*network.publishers], [*network.nodes], sorted(network.plan.links)
    regions, regions_of = [*network.plan.paths], network.membership.regions_of
    readings = [(subscriber, region) for subscriber in regions_of for region in sorted(regions_of[subscriber])]
    pace = [random.random() ** 2 + 0.01 for _ in links]
    reading_pace = [random.random() ** 2 + 0.01 for _ in readings]
    for _ in range(steps):
        move = random.random()
        if move < 0.25:
            network.publish(random.choice(publishers), random.choice(regions))
        elif move < 0.5:
            network.offer(random.choice(publishers), random.choice(nodes), answer_lost=random.random() < 0.2)
        elif move < 0.55 and network.requests:
            node, frames = random.choice(network.requests)
            network.nodes[node].publish(frames)  # a repetition that comes late, answered to nobody
        elif move < 0.75 and links:
            [(source, target)] = random.choices(links, pace)
            back, count = random.choice([0, 0, 0, 1, 3, -1]), random.randint(1, 4)
            network.relay(source, target, back=back, count=count, acknowledge=random.random() < 0.7)
        else:
            [(subscriber, region)] = random.choices(readings, reading_pace)
            skip = random.randint(1, 3) if random.random() < loss else 0
            back, count = random.choice([0, 0, 2]), random.randint(1, 4)
            if random.random() < 0.5:
                network.read(subscriber, region, back=back, count=count, skip=skip)
            else:
                there = network.ends(subscriber)[network.plan.egresses[region]]
                network.look(subscriber, there, back=back, count=count, skip=skip)
    network.drain()


def say(verdict: Verdict) -> str:
    return verdict.first.describe() if verdict.first is not None else "fine"


@pytest.mark.parametrize("seed", SEEDS)
def test_without_cycles_every_promise_holds_for_every_schedule(seed: int) -> None:
    random = Random(seed)
    network = random_world(random, "acyclic")
    run(network, random)
    verdict = network.judge()
    assert verdict.fine, say(verdict)
    assert verdict.publishers_unchecked == ()
    assert all(delivery.held_frames == 0 for delivery in network.deliveries.values())
    assert not any(isinstance(item, Missing) for items in network.delivered.values() for item in items)
    # Receipts number each region's events without a hole.
    numbers = sorted((region, epoch, number) for region, epoch, number in network.receipts.values())
    counts = Counter(region for region, _, _ in numbers)
    assert numbers == [(region, 1, number) for region in sorted(counts) for number in range(1, counts[region] + 1)]


@pytest.mark.parametrize("seed", SEEDS)
def test_by_overlaps_alone_only_cycles_around_rings_remain_possible(seed: int) -> None:
    random = Random(seed)
    network = random_world(random, "overlap")
    run(network, random)
    verdict = network.judge()
    assert (verdict.inversions, verdict.lost, verdict.unexpected, verdict.duplicated) == (0, 0, 0, 0), say(verdict)
    assert verdict.publisher_order_violations == 0
    assert all(delivery.held_frames == 0 for delivery in network.deliveries.values())
    if verdict.cycles:
        assert verdict.first is not None
        assert len(set(verdict.first.subscribers)) >= 3, say(verdict)


@pytest.mark.parametrize("seed", SEEDS)
def test_after_losses_gaps_are_told_in_their_places_and_the_order_still_holds(seed: int) -> None:
    random = Random(seed)
    network = random_world(random, "acyclic")
    run(network, random, loss=0.15)
    verdict = network.judge()
    assert (verdict.inversions, verdict.cycles, verdict.unexpected, verdict.duplicated) == (0, 0, 0, 0), say(verdict)
    for items in network.delivered.values():
        reached: Counter[str] = Counter()
        for item in items:
            first, last, region = (
                (item.first, item.last, item.region)
                if isinstance(item, Missing)
                else (item.frame.last - item.meta.events + 1, item.frame.last, item.frame.region)
            )
            assert (first, last >= first) == (reached[region] + 1, True)
            reached[region] = last


RING = Membership.of({"s1": "ab", "s2": "bc", "s3": "ca"})
"""Three subscribers, three regions, no two subscribers with two regions in common."""


def run_ring(ordering: Ordering, nodes: int, publishing: tuple[str, ...], reading: tuple[str, ...]) -> Verdict:
    network = Network(RING, make_plan(RING, {f"n{number}": "" for number in range(nodes)}, ordering=ordering), "p")
    for region in publishing:
        network.publish("p", region)
        for node in network.nodes:
            network.offer("p", node)
    for _ in network.nodes:
        for source, target in network.plan.links:
            network.relay(source, target)
    for subscriber, regions in zip(RING.regions_of, reading, strict=True):
        for region in regions:
            network.read(subscriber, region)
    network.drain()
    return network.judge()


def test_around_a_ring_of_single_overlaps_only_the_acyclic_ordering_prevents_a_cycle() -> None:
    unlucky = "ab", "bc", "ca"
    verdict = run_ring("overlap", 3, ("a", "b", "c"), unlucky)
    assert (verdict.inversions, verdict.cycles, verdict.lost) == (0, 1, 0)
    assert verdict.first is not None
    assert verdict.first.describe() == (
        "s1 delivered ap0 (a) before bp1 (b), s2 delivered bp1 (b) before cp2 (c), s3 delivered cp2 (c) before ap0 (a)"
    )
    for nodes, publishing in product((1, 2, 3), permutations("abc")):
        for reading in product(("ab", "ba"), ("bc", "cb"), ("ca", "ac")):
            verdict = run_ring("acyclic", nodes, publishing, reading)
            assert verdict.fine, say(verdict)


def test_the_schedules_are_wild_enough_to_find_such_cycles() -> None:
    cycles = 0
    for seed in SEEDS:
        random = Random(seed)
        network = random_world(random, "overlap")
        run(network, random)
        cycles += network.judge().cycles > 0
    assert cycles >= 20
