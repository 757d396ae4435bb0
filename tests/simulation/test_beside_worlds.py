"""Worlds in which plans take long, and servers leave and return while they are made: what is announced orders all."""

from __future__ import annotations

from dataclasses import replace

import pytest

from laboratory.simulation import faultrun, leading, server
from laboratory.simulation.faultrun import Scenario, run_faults

WORLDS = range(4_110, 4_120)
PLACES = 14
"""As many servers as regions, which lie on a ring; each server has two neighbours of it."""


def test_plans_that_are_made_while_servers_leave_and_return_order_what_they_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def on_a_ring(regions: str, scenario: Scenario) -> list[str]:
        return [(regions * 2)[number : number + 2] for number in range(scenario.servers)]

    monkeypatch.setattr(faultrun, "_parts", on_a_ring)
    monkeypatch.setattr(leading, "PLANNING_MS_MAX", (60.0,))
    monkeypatch.setattr(server, "RETURNS", 0.9)
    monkeypatch.setattr(server, "JOINT", 0.0)
    epochs = 0
    for seed in WORLDS:
        nodes = max(2, Scenario.of(seed).nodes)
        calm = replace(Scenario.of(seed), losses=0, crashes=0, pauses=0, cuts=0, alone_ms=0.0, give_up_ms=0.0)
        ring = replace(calm, regions=PLACES, servers=PLACES, nodes=nodes, managers=1, proposals=0, reach=0)
        world = replace(ring, ordering="acyclic", is_copied=False, restless=0.6, busy_ms=1_500.0, is_apart=True)
        outcome = run_faults(world)
        assert outcome.violations == (), seed
        epochs += outcome.epochs
    assert epochs > 2 * len(WORLDS)
