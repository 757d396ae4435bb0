"""What the gateway's soak counts, over clients that were made by hand: nothing that went wrong may go unseen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

pytest.importorskip("aiohttp")

from gateway.messages import Position
from laboratory.bench.gateway_clients import Client
from laboratory.bench.gateway_soak import Soak, _figures, _lost, _memory, _regions_of

PLAN = Soak(clients=2, regions=2, overlap=2, seconds=1.0, events_per_s=1.0, churn=0.0, judged=2, seed=1)
REGIONS = ("forest", "river")
PUBLISHED: dict[int, tuple[str, Position | None]] = {
    0: ("forest", (1, 1)),
    1: ("river", (1, 1)),
    2: ("forest", (1, 2)),
    3: ("river", (2, 1)),
}
ALL = (0, 1, 2, 3)


def client(
    name: str,
    seen: Sequence[int],
    *,
    published: Mapping[int, tuple[str, Position | None]] | None = None,
    begins: Mapping[str, Position] | None = None,
    regions: Sequence[str] = REGIONS,
) -> Client:
    made = Client(name, regions, cast(Any, None))
    made.seen.events.extend(seen)
    made.seen.latencies_ms.extend(float(each) for each in seen)
    made.seen.begins.update(dict.fromkeys(regions, (0, 0)) if begins is None else begins)
    made.published.update(published or {})
    return made


def figures(*clients: Client, memory: Sequence[int] = (), is_quiet: bool = True) -> dict[str, Any]:
    return _figures(PLAN, clients, memory, is_quiet)


def wrong(found: Mapping[str, Any]) -> dict[str, int]:
    """Return what went wrong, by kind."""
    kinds = ("lost", "duplicated", "out_of_place", "gaps", "refused", "unanswered", "inversions", "cycles")
    return {kind: found[kind] for kind in kinds if found[kind]}


def test_clients_that_saw_all_in_one_order_have_nothing_to_complain_about() -> None:
    found = figures(client("one", ALL, published=PUBLISHED), client("other", ALL))
    assert wrong(found) == {}
    assert (found["published"], found["deliveries"], found["is_quiet"]) == (4, 8, True)


def test_an_event_that_one_client_did_not_see_is_lost() -> None:
    assert wrong(figures(client("one", ALL, published=PUBLISHED), client("other", (0, 1, 3)))) == {"lost": 1}


def test_an_event_that_nobody_saw_is_lost_to_each() -> None:
    assert wrong(figures(client("one", (0, 1, 2), published=PUBLISHED), client("other", (0, 1, 2)))) == {"lost": 2}


def test_an_event_that_was_not_acknowledged_cannot_be_lost_but_is_unanswered() -> None:
    one = client("one", ALL[:3], published={number: PUBLISHED[number] for number in ALL[:3]})
    one.unanswered[3] = "river", "{}"
    assert wrong(figures(one, client("other", ALL[:3]))) == {"unanswered": 1}


def test_an_event_that_came_twice_is_a_duplicate() -> None:
    assert wrong(figures(client("one", ALL, published=PUBLISHED), client("other", (0, 1, 2, 3, 3)))) == {
        "duplicated": 1
    }


def test_two_events_that_clients_saw_in_two_orders_are_an_inversion() -> None:
    found = figures(client("one", ALL, published=PUBLISHED), client("other", (1, 0, 2, 3)))
    assert wrong(found) == {"inversions": 1, "cycles": 1}


def test_three_clients_that_go_round_in_a_circle_are_a_cycle() -> None:
    published: dict[int, tuple[str, Position | None]] = {n: (f"r{n}", (1, 1)) for n in range(3)}
    clients = [
        client(f"c{n}", (n, (n + 1) % 3), published=published if not n else None, regions=(f"r{n}", f"r{(n + 1) % 3}"))
        for n in range(3)
    ]
    found = _figures(replace(PLAN, clients=3, judged=3), clients, (), True)
    assert wrong(found) == {"cycles": 1}, "no two of them saw the same two events"


def test_what_was_published_before_a_client_had_joined_is_not_lost_to_it() -> None:
    one = client("one", ALL, published=PUBLISHED)
    late = client("late", (2, 3), begins={"forest": (1, 1), "river": (1, 1)})
    assert _lost([one, late]) == 0
    later = client("later", (3,), begins={"forest": (1, 1), "river": (1, 9)})
    assert _lost([one, later]) == 1, "an epoch later counts as later"


def test_regions_that_a_client_does_not_have_are_not_lost_to_it() -> None:
    assert _lost([client("one", ALL, published=PUBLISHED), client("other", (0, 2), regions=("forest",))]) == 0


def test_a_peer_without_positions_is_judged_by_all_that_it_acknowledged() -> None:
    published: dict[int, tuple[str, Position | None]] = {n: (region, None) for n, (region, _) in PUBLISHED.items()}
    assert _lost([client("one", ALL, published=published, begins={}), client("other", (0,), begins={})]) == 3


def test_gaps_refusals_and_positions_that_do_not_grow_are_added_up() -> None:
    one, other = client("one", ALL, published=PUBLISHED), client("other", ALL)
    one.seen.gaps, other.seen.gaps = 1, 2
    other.seen.refused, one.seen.out_of_place = 4, 5
    assert wrong(figures(one, other)) == {"gaps": 3, "refused": 4, "out_of_place": 5}


def test_a_soak_that_never_became_quiet_says_so() -> None:
    assert figures(client("one", ALL, published=PUBLISHED), is_quiet=False)["is_quiet"] is False


def test_latencies_are_told_by_percentile_and_are_none_where_there_are_none() -> None:
    found = figures(client("one", range(100), published={n: ("forest", (1, n + 1)) for n in range(100)}))
    assert (found["p50_ms"], found["p95_ms"], found["p99_ms"]) == (50.0, 95.0, 99.0)
    assert figures(client("one", ()))["p99_ms"] is None


def test_memory_is_compared_after_the_warm_up() -> None:
    warm_up, rest = [10_000_000] * 5, [100_000_000] * 10 + [110_000_000] * 10
    assert _memory(warm_up + rest) == {"first_mb": 100.0, "last_mb": 110.0, "change": 0.1}
    assert _memory([1, 2, 3]) is None


def test_each_client_has_as_many_regions_as_asked_for_in_a_ring() -> None:
    plan = Soak(clients=3, regions=3, overlap=2, seconds=1, events_per_s=1, churn=0, judged=2, seed=1)
    assert [_regions_of(plan, number) for number in range(3)] == [["r0", "r1"], ["r1", "r2"], ["r2", "r0"]]
