"""Live, replaying and returning sessions beside each other, through the library itself: one order for all of them."""

from __future__ import annotations

import orjson
import pytest
from click.testing import CliRunner

from laboratory.commands.simulate import simulate
from laboratory.simulation.sessions import SessionWorld, run_sessions
from sequencing.plan import Ordering

WORLDS = 16


@pytest.mark.parametrize("ordering", ["acyclic", "causal"])
@pytest.mark.parametrize("nodes", [1, 3])
@pytest.mark.parametrize("seed", range(WORLDS))
def test_all_sessions_show_one_order(seed: int, nodes: int, ordering: Ordering) -> None:
    seen = run_sessions(SessionWorld(seed, nodes, ordering=ordering))
    assert seen.wrong == ()
    assert seen.deliveries > 0
    assert seen.refusals == 0 or nodes > 1


def test_the_worlds_have_sessions_of_every_kind() -> None:
    seen = [run_sessions(SessionWorld(seed)) for seed in range(8)]
    assert min(sum(each.replays for each in seen), sum(each.returns for each in seen)) > 0


def test_the_command_tells_what_it_saw() -> None:
    result = CliRunner().invoke(simulate, ["sessions", "--worlds", "2", "--jobs", "1", "--json"])
    assert result.exit_code == 0, result.output
    told = orjson.loads(result.stdout)
    assert (told["worlds"], told["failed"], told["failures"]) == (2, 0, [])
    assert told["deliveries"] > told["published"] > 0
