"""Worlds in which the regions of an event enter at several nodes: every promise holds, whatever fails."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest

from laboratory.simulation import server
from laboratory.simulation.faultrun import Scenario, run_faults
from sequencing.frames import LinkedFrame, StampedFrame
from sequencing.node import Node, Verdict
from sequencing.steps import InstalledStep

WORLDS = range(3_000, 3_120)


def test_every_promise_holds_for_events_that_several_nodes_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "JOINT", 0.4)
    monkeypatch.setattr(server, "KEYED", 0.5)
    seen, land = Counter[str](), Node._land

    def counted(
        node: Node,
        source: str,
        linked: LinkedFrame,
        passing: Sequence[tuple[InstalledStep, StampedFrame]],
        ends: object,
    ) -> None:
        before = set(map(id, node.outcomes.values()))
        land(node, source, linked, passing, ends)  # type: ignore[arg-type]
        for outcome in node.outcomes.values():
            if id(outcome) not in before:
                seen["accepted" if outcome.answer.verdict is Verdict.OK else "refused"] += 1

    monkeypatch.setattr(Node, "_land", counted)
    for seed in WORLDS:
        world = replace(Scenario.of(seed), scattered=True, alone_ms=0.0)
        world = replace(world, nodes=max(2, world.nodes), ordering="acyclic")
        assert run_faults(world).violations == (), seed
    assert seen["accepted"] > len(WORLDS)
    assert seen["refused"] > len(WORLDS) / 4
