"""The gap benchmark: how far the planner is from the best plans of small worlds."""

from __future__ import annotations

import json

from click.testing import CliRunner

from laboratory.bench.arrangements import SHAPES, measure, run, small_worlds
from laboratory.commands.bench import bench
from placement.candidates import candidates
from placement.objective import objective_for, region_rates
from placement.planner import build
from placement.world import World
from sequencing.arrangement import meetings
from sequencing.conditions import violations

MEAN_GAP_MAX, GAP_MAX = 0.03, 0.15


def test_plans_are_near_the_optimum_and_the_figures_say_how_near() -> None:
    figures = run(60, seed=1)
    assert figures["gap"]["mean"] <= MEAN_GAP_MAX
    assert figures["gap"]["max"] <= GAP_MAX
    assert figures["planned_gap"]["mean"] <= figures["gap"]["mean"]
    assert figures["on_several_nodes"] > 30, "the worlds should ask for more than one node"
    assert figures["worst"]["gap"] == figures["gap"]["max"]


def test_the_same_seed_makes_the_same_worlds_in_all_shapes() -> None:
    worlds = list(small_worlds(60, 3))
    assert worlds == list(small_worlds(60, 3))
    assert worlds != list(small_worlds(60, 4))
    assert {world.shape for world in worlds} == set(SHAPES)
    assert {world.nodes for world in worlds} == {2, 3, 4, 5}
    assert all(measure(world).gap >= measure(world).planned_gap >= 0 for world in worlds[:5])


def test_every_arrangement_that_is_tried_for_them_is_sound() -> None:
    several = 0
    for small in small_worlds(40, 5):
        rates = region_rates(small.membership, small.rates)
        objective = objective_for(small.membership, rates, small.nodes, small.capacity)
        world = World(meetings(small.membership, "acyclic"), rates, objective, small.nodes)
        nodes = {f"n{number}": "" for number in range(small.nodes)}
        for candidate in candidates(world, exact=False):
            plan, _ = build(small.membership, world, candidate, nodes, epoch=1, first_atom=1, ordering="acyclic")
            assert violations(plan, small.membership) == {}, candidate.name
            several += len(plan.links) > 1
    assert several > 100


def test_the_command_prints_one_document_or_a_few_lines() -> None:
    runner = CliRunner()
    done = runner.invoke(bench, ["arrangements", "--worlds", "5", "--seed", "2", "--json"])
    assert json.loads(done.stdout)["worlds"] == 5
    shown = runner.invoke(bench, ["arrangements", "--worlds", "5", "--seed", "2"])
    assert shown.exit_code == 0
    assert "with exhaustive search, as planned: mean 0.00%" in shown.stdout
