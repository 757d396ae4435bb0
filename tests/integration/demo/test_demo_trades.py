"""``gamecast demo --joint``: one event in two regions tears no trade, and two messages do."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.patience import scaled


def demo(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gamecast", "demo", "--joint", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=scaled(90), check=False)


def test_only_one_event_in_both_regions_tears_no_trade() -> None:
    done = demo("--json", "--seed", "2")
    assert done.returncode == 0, done.stderr
    plain, apart, joint = json.loads(done.stdout)
    assert plain["torn"] > 0
    assert apart["torn"] > 0
    assert (joint["torn"], joint["differing"], apart["differing"]) == (0, 0, 0)
    assert plain["trades"] == apart["trades"] == joint["trades"] > 0


def test_the_table_has_a_row_for_each_way() -> None:
    done = demo()
    assert done.returncode == 0, done.stderr
    for said in ("plain Pub/Sub", "each of two regions", "one event in both regions", "Torn:"):
        assert said in done.stdout


@pytest.mark.parametrize("options", [("--roam",), ("--nodes", "1"), ("match",), ("--record", "x")])
def test_it_replays_no_match(options: tuple[str, ...]) -> None:
    done = demo(*options)
    assert done.returncode == 2
    assert "--joint replays no match: leave out" in done.stderr
