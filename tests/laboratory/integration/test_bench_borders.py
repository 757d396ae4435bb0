"""The bench of events over borders, small: three nodes share what one node had, and handovers are timed on both."""

from __future__ import annotations

from itertools import pairwise

import orjson
from click.testing import CliRunner

from laboratory.bench.borders import Borders
from laboratory.commands.bench import bench


def test_servers_have_columns_and_see_beyond_them() -> None:
    world = Borders(side=3, sees=True)
    assert [world.own(server)[0] for server in range(3)] == ["cell:0:0", "cell:1:0", "cell:2:0"]
    assert [len(world.seen(server)) for server in range(3)] == [6, 9, 6]
    assert len(world.borders()) == 12
    assert all(here != there for here, there in world.borders())


def test_several_nodes_share_the_load_and_handovers_pass_between_them() -> None:
    result = CliRunner().invoke(bench, ["borders", "--side", "3", "--seconds", "0.5", "--share", "0.2", "--json"])
    assert result.exit_code == 0, result.output
    document = orjson.loads(result.stdout)
    assert document["nodes"].keys() == {"1", "3"}
    assert document["nodes"]["1"]["ingresses"] == {"n1": 9}
    several = document["nodes"]["3"]
    assert len(several["ingresses"]) > 1
    assert sum(several["ingresses"].values()) == 9
    assert several["cpu_us_per_event"].keys() >= several["ingresses"].keys()
    for where in several["handover_ms"].values():
        assert all(earlier <= later for earlier, later in pairwise([0, where["p50"], where["p99"]]))
