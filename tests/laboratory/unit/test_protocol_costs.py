"""What each protocol's docstring says that a multicast costs: packets, and hops until everyone has delivered."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from classic.protocols.catalogue import PROTOCOLS
from classic.protocols.setup import Setup
from classic.stepping import Stepper

COSTS: dict[str, tuple[Callable[[int], int], int]] = {
    "fifo": (lambda n: n - 1, 1),
    "vector-clocks": (lambda n: n - 1, 1),
    "raynal-schiper-toueg": (lambda n: n - 1, 1),
    "kshemkalyani-singhal": (lambda n: n - 1, 1),
    "central": (lambda n: n, 2),
    "sequencer": (lambda n: 2 * (n - 1), 2),
    "fifo-total": (lambda n: 2 * (n - 1), 2),
    "causal-total": (lambda n: 2 * (n - 1), 2),
    "newtop-asymmetric": (lambda n: n, 2),
    "isis": (lambda n: 3 * (n - 1), 3),
    "isis-overlapping": (lambda n: 3 * (n - 1), 3),
    "two-phase": (lambda n: 3 * (n - 1), 3),
    "lamport": (lambda n: n * n - 1, 2),
    "propagation-tree": (lambda n: n, 2),
    "resending": (lambda n: (n - 1) ** 2, 1),
    "virtual-synchrony": (lambda n: n - 1, 1),
    "view-synchronous-total": (lambda n: 2 * (n - 1), 2),
    "viewstamped": (lambda n: n * n - 1, 3),
}


@pytest.mark.parametrize("n", [2, 3, 7])
@pytest.mark.parametrize("name", COSTS)
def test_a_broadcast_of_a_process_that_is_nothing_special_costs_what_is_said(name: str, n: int) -> None:
    packets, hops = COSTS[name]
    stepper = Stepper(PROTOCOLS[name], Setup.broadcast(f"p{i}" for i in range(n)))
    stepper.publish("p1")
    stepper.settle()
    assert len(stepper.deliveries) == n
    assert stepper.packets == packets(n)
    assert max(delivery.hops for delivery in stepper.deliveries) <= hops


@pytest.mark.parametrize("name", ["newtop-symmetric", "newtop-asymmetric"])
def test_what_asks_instead_of_sending_nulls_is_quiet_when_nobody_publishes(name: str) -> None:
    groups = {"g": "abc", "h": "bcd", "i": "ad"}
    stepper = Stepper(PROTOCOLS[name], Setup.of(groups))
    for group in groups:
        stepper.publish("a" if group != "h" else "b", group=group)
    passed = stepper.settle()
    assert len(stepper.deliveries) == sum(map(len, groups.values()))
    assert passed < 100
    assert not stepper.transit


def test_a_token_costs_nothing_while_nobody_asks_for_it() -> None:
    stepper = Stepper(PROTOCOLS["token-on-demand"], Setup.broadcast("abc"))
    assert (stepper.packets, stepper.alarms) == (0, [])
    for _ in range(3):
        stepper.publish("a")
    assert stepper.packets == 3 * 2, "a lone sender keeps the privilege"
