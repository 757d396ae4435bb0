"""Grid worlds: seeded, local, and about two and a half regions a subscriber."""

from __future__ import annotations

import pytest

from placement.planning.grid import grid_world
from sequencing.errors import UsageError
from sequencing.overlaps import count_double_overlaps


def test_the_same_seed_makes_the_same_world() -> None:
    assert grid_world(300, 30, seed=4) == grid_world(300, 30, seed=4)
    assert grid_world(300, 30, seed=4) != grid_world(300, 30, seed=5)


def test_subscribers_have_about_two_and_a_half_neighbouring_regions() -> None:
    world = grid_world(20_000, 2_000)
    assert 2.3 < world.incidence.nnz / 20_000 < 2.6
    for subscriber in world.subscribers[:500]:
        cells = [tuple(map(int, region.split(":")[1:])) for region in world.regions_of[subscriber]]
        assert 1 <= len(cells) <= 4
        rows, columns = zip(*cells, strict=True)
        assert max(rows) - min(rows) <= 1
        assert max(columns) - min(columns) <= 1


def test_all_regions_are_there_even_without_subscribers() -> None:
    assert len(grid_world(3, 50).regions) == 50
    empty = grid_world(0, 1)
    assert (empty.subscribers, len(empty.regions), count_double_overlaps(empty)) == ((), 1, 0)


@pytest.mark.parametrize(("subscribers", "regions"), [(-1, 4), (1, 0)])
def test_a_world_needs_a_region(subscribers: int, regions: int) -> None:
    with pytest.raises(UsageError, match="at least one region"):
        grid_world(subscribers, regions)
