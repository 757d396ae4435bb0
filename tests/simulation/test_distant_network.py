"""The network whose machines are far from each other: what a delivery takes, to the millisecond, and in what order."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from random import Random

import pytest

from laboratory.simulation.distant import Conditions
from laboratory.simulation.distant_network import Received, Sending, simulate
from placement.planner import make_plan
from sequencing.checkers import DeliverySequence, History, Published, judge
from sequencing.membership import Membership
from sequencing.plan import Atom, AtomId, Plan

BOTH = {"a": frozenset({"r"}), "b": frozenset({"r"})}
NEVER_MS = 1e6
"""A block that ends after everything else."""


def one_path(*nodes: str) -> Plan:
    return Plan(1, 1, "acyclic", dict.fromkeys(nodes, ""), {"r": nodes}, (Atom(AtomId(1), ("r",), nodes[-1]),))


def far(**ways_ms: float) -> Callable[[str, str], float]:
    """``a_n1=5`` is the way from a to n1; others take 100 ms."""
    return lambda source, target: ways_ms.get(f"{source}_{target}", 100.0)


def sendings(*times_ms: float, server: str = "a") -> list[Sending]:
    return [Sending(at_ms, server, "r", f"e{number}") for number, at_ms in enumerate(times_ms)]


def delays(received: list[Received]) -> list[object]:
    return [pytest.approx(each.delay_ms) for each in received]


def test_a_lonely_event_takes_the_ways_of_its_path_each_in_its_own_direction() -> None:
    trip = far(a_n1=5, n1_a=7, n1_n2=11, n2_n1=400, n2_b=13, b_n2=300, n2_a=17, a_n2=500)
    found = simulate(one_path("n1", "n2"), BOTH, sendings(2000), trip, block_ms=NEVER_MS)
    assert delays(found["b"]) == [5 + 11 + 13]
    assert delays(found["a"]) == [5 + 11 + 17]
    [received] = found["b"]
    assert (received.ingress_ms, received.egress_ms, received.sender) == (5, 16, "a")


def test_what_is_published_while_a_request_is_under_way_waits_for_its_answer() -> None:
    trip = far(a_n1=50, n1_a=70, n1_b=10, b_n1=10)
    found = simulate(one_path("n1"), BOTH, sendings(2000, 2030, 2100), trip, block_ms=NEVER_MS)
    assert delays(found["b"]) == [60, 120 - 30 + 60, 120 - 100 + 60]


def test_what_ends_while_a_subscriber_asks_again_waits_for_the_question() -> None:
    trip = far(a_n1=1, n1_a=1, n1_b=60, b_n1=80)
    found = simulate(one_path("n1"), BOTH, sendings(2000, 2010, 2139, 2500), trip, block_ms=NEVER_MS)
    # In the stream at 2001, read at once; asked again at 2001 + 60 + 80 = 2141, which fetches both that came by then.
    assert delays(found["b"]) == [61, 2141 + 60 - 2010, 2141 + 60 - 2139, 2501 + 60 - 2500]


def test_a_read_that_ends_without_a_find_leaves_a_gap_of_a_round_trip() -> None:
    trip = far(a_n1=0, n1_a=0, n1_b=100, b_n1=100)
    random = Random(1)
    times = [1000.0 * n + random.uniform(0, 800) for n in range(40)]
    short = simulate(one_path("n1"), BOTH, sendings(*times), trip, block_ms=200)
    long = simulate(one_path("n1"), BOTH, sendings(*times), trip, block_ms=NEVER_MS)
    assert delays(long["b"]) == [100] * 40
    late = [each.delay_ms - 100 for each in short["b"]]
    assert min(late) == pytest.approx(0)
    assert 150 < max(late) <= 200
    assert 25 < sum(late) / 40 < 75  # half of the time nobody asks, for 100 ms on average


@pytest.mark.parametrize("whole_reads", [False, True])
def test_a_read_that_has_waited_brings_the_one_stream_that_ended_its_wait(whole_reads: bool) -> None:
    """As Redis 7.0 does it: what the same request wrote to another stream takes another round trip."""
    plan = Plan(1, 1, "acyclic", {"n1": ""}, {"r": ("n1",), "q": ("n1",)}, ())
    members = {name: frozenset("qr") for name in "ab"}
    trip = far(a_n1=5, n1_a=5, n1_b=60, b_n1=80)
    at_once = [Sending(2000, "a", "r", "first"), Sending(2000, "a", "q", "second")]
    conditions = Conditions(whole_reads=whole_reads)
    found = simulate(plan, members, at_once, trip, block_ms=NEVER_MS, conditions=conditions)
    assert delays(found["b"]) == [65, 65 if whole_reads else 65 + 140]


def test_a_relay_that_is_under_way_keeps_what_comes_meanwhile() -> None:
    trip = far(a_n1=1, n1_a=1, n1_n2=40, n2_n1=60, n2_b=1, b_n2=1)
    found = simulate(one_path("n1", "n2"), BOTH, sendings(2000, 2010), trip, block_ms=NEVER_MS)
    # The second is linked at 2011; the relay is back at 2001 + 100.
    assert delays(found["b"]) == [42, 2101 + 41 - 2010]


def test_a_node_that_is_busy_makes_the_next_request_wait() -> None:
    members = {name: frozenset({"r"}) for name in "abc"}
    trip = far(a_n1=10, n1_a=10, b_n1=10, n1_b=10, c_n1=10, n1_c=10)
    at_once = [Sending(2000, "a", "r", "e0"), Sending(2000, "b", "r", "e1")]
    busy = simulate(one_path("n1"), members, at_once, trip, block_ms=NEVER_MS, conditions=Conditions(service_ms=5))
    assert [each.ingress_ms for each in sorted(busy["c"], key=lambda each: each.event)] == [15, 20]


def test_what_is_lost_is_sent_again_and_nothing_is_missing() -> None:
    times = [500.0 * n for n in range(200)]
    lossy = simulate(one_path("n1"), BOTH, sendings(*times), far(), conditions=Conditions(loss=0.2), seed=3)
    assert [each.event for each in lossy["b"]] == [f"e{n}" for n in range(200)]
    assert min(each.delay_ms for each in lossy["b"]) >= 200
    assert max(each.delay_ms for each in lossy["b"]) > 600


def test_the_same_arguments_give_the_same_deliveries_and_another_seed_others() -> None:
    def run(seed: int) -> dict[str, list[Received]]:
        return simulate(one_path("n1"), BOTH, sendings(0, 50, 99), far(), conditions=Conditions(loss=0.5), seed=seed)

    assert run(1) == run(1)
    assert run(1) != run(2)


@pytest.mark.parametrize("seed", range(12))
def test_in_any_world_all_is_delivered_in_one_order_and_none_is_faster_than_light(seed: int) -> None:
    random = Random(seed)
    regions, servers = "rstuv", [f"s{number}" for number in range(6)]
    members = {name: frozenset(random.sample(regions, random.randint(1, 4))) for name in servers}
    nodes = [f"n{number}" for number in range(random.randint(1, 4))]
    plan = make_plan(Membership(members), dict.fromkeys(nodes, ""), ordering=random.choice(["acyclic", "causal"]))
    ways = {(x, y): random.uniform(0, 150) for x in (*servers, *nodes) for y in (*servers, *nodes)}
    sent = [
        Sending(random.uniform(0, 5000), name, random.choice(sorted(members[name])), f"e{number}")
        for number in range(200)
        for name in [random.choice(servers)]
    ]
    sent.sort(key=lambda each: each.at_ms)
    found = simulate(plan, members, sent, lambda x, y: ways[x, y], conditions=Conditions(0.1, 0.01), seed=seed)
    verdict = judge(
        History.of(
            DeliverySequence(name, [r.event for r in seen], [r.region for r in seen], [r.sender for r in seen])
            for name, seen in found.items()
        ),
        published=[Published(each.event, each.region) for each in sent],
        membership=members,
        publication_order={name: [each.event for each in sent if each.server == name] for name in servers},
    )
    assert verdict.fine, verdict
    assert verdict.deliveries == sum(each.region in members[name] for each in sent for name in servers)
    for name, seen in found.items():
        for each in seen:
            path = plan.paths[each.region]
            least_ms = ways[each.sender, path[0]] + sum(ways[pair] for pair in pairwise(path)) + ways[path[-1], name]
            assert each.delay_ms >= least_ms - 1e-6
