"""The bench's memory figures, small: frames that are held and kept, and a crowd whose deliveries are judged."""

from __future__ import annotations

import resource
from typing import Any

import orjson
import pytest
from click.testing import CliRunner

from laboratory.bench import crowd
from laboratory.bench.crowd import World
from laboratory.bench.memory import held_bytes, measure_frames
from laboratory.commands.bench import bench
from sequencing.errors import UsageError
from sequencing.frames import StampedFrame
from tests.patience import besides_waiting

SMALL = ["memory", "--regions", "12", "--subscribers", "4", "--events", "200"]


def test_each_subscriber_has_its_part_of_the_regions_and_two_of_its_neighbours() -> None:
    world = World(regions=12, subscribers=4)
    assert world.regions_of(0) == [f"region-0000{number}" for number in range(5)]
    assert world.regions_of(3) == ["region-00009", "region-00010", "region-00011", "region-00000", "region-00001"]
    assert {region for number in range(4) for region in world.regions_of(number)} == set(map(world.name_of, range(12)))
    assert World(regions=3, subscribers=1).regions_of(0) == ["region-00000", "region-00001", "region-00002"]


@pytest.mark.parametrize(("regions", "subscribers"), [(3, 4), (2, 1)])
def test_a_world_needs_a_region_for_each_subscriber(regions: int, subscribers: int) -> None:
    with pytest.raises(UsageError, match="need a region each"):
        World(regions, subscribers)


def test_a_held_frame_takes_its_body_and_some_more() -> None:
    body = 5_000
    frames = [StampedFrame("forest", 1, n, b"0 1 1 %d p" % n, b"", bytes([n]) * body) for n in range(1, 101)]
    assert body + 100 < held_bytes(frames) < body + 2_000


async def test_kept_frames_are_measured_beside_a_plain_stream() -> None:
    one, sixteen = await measure_frames(frames=200)
    assert (one.events, sixteen.events) == (1, 16)
    assert one.body_bytes < one.kept_bytes < 2 * one.body_bytes
    assert one.body_bytes < one.held_bytes
    # Sixteen events share the cost of a frame: each takes less than one by itself, and about what a plain entry takes.
    assert sixteen.kept_bytes / 16 < one.kept_bytes
    assert sixteen.plain_bytes == pytest.approx(16 * one.plain_bytes, rel=0.2)


def test_the_command_prints_what_a_crowd_takes_and_that_it_delivered_all() -> None:
    result = CliRunner().invoke(bench, [*SMALL, "--json"])
    assert result.exit_code == 0, result.output
    figures = orjson.loads(result.stdout)["crowd"]
    assert (figures["regions"], figures["subscribers"], figures["subscriptions"]) == (12, 4, 20)
    assert figures["atoms"] == 0, "all regions end at one node"
    assert figures["deliveries"] > figures["events"] == 200
    assert figures["lost"] == figures["duplicated"] == figures["inversions"] == figures["cycles"] == 0
    assert figures["connections"] > 4
    assert figures["a_region"]["redis_bytes"] == 0, "a region begins when it is published to"
    assert figures["a_subscriber"]["redis_bytes"] > figures["a_plain_subscriber"]["redis_bytes"] > 0
    assert figures["ratios"]["redis_bytes"] > 1
    assert {"rows", "said", "state"} <= figures["redis_bytes_by_key"].keys()
    assert besides_waiting(result.stderr) == ""


def test_the_command_fails_when_deliveries_are_out_of_order(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = crowd._Crowd.do

    def lie(self: crowd._Crowd, what: str) -> dict[Any, Any]:
        answer = honest(self, what)
        if what == "deliveries":
            ids, regions = answer[0]
            answer[0] = ids[::-1], regions[::-1]
        return answer

    monkeypatch.setattr(crowd._Crowd, "do", lie)
    result = CliRunner().invoke(bench, SMALL, env={"COLUMNS": "80"})
    assert result.exit_code == 1
    assert "publisher order violations" in result.stderr
    assert "a subscriber" in result.stdout


def test_too_few_open_files_are_said_before_anything_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1_024, 1_024))
    with pytest.raises(UsageError, match="ulimit -n"):
        crowd.measure_crowd(World(10_000, 1_000), events=1, seed=1)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--regions", "2"], "--regions"),
        (["--subscribers", "0"], "--subscribers"),
        (["--events", "0"], "--events"),
        (["--regions", "10", "--subscribers", "11"], "need a region each"),
    ],
)
def test_wrong_use_is_said_before_anything_is_started(arguments: list[str], complaint: str) -> None:
    result = CliRunner().invoke(bench, ["memory", *arguments])
    assert result.exit_code == 2 or isinstance(result.exception, UsageError)  # of which main() makes a 2
    assert complaint in result.stderr or complaint in str(result.exception)
