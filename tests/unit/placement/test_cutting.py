"""Cutting a line into nodes: even shares, and cuts where little crosses."""

from __future__ import annotations

import numpy as np
import pytest

from placement.cutting import cut


def blocks(rate: list[float], last_slot: list[int], count: int) -> list[int]:
    found: list[int] = cut(np.array(rate, float), np.array(last_slot, np.int64), count).tolist()
    return found


@pytest.mark.parametrize("count", [1, 2, 3, 4, 6, 12])
def test_equal_loads_that_do_not_overlap_are_cut_evenly(count: int) -> None:
    assert blocks([1.0] * 12, list(range(12)), count) == [slot * count // 12 for slot in range(12)]


def test_a_cut_moves_to_where_one_component_ends_and_another_begins() -> None:
    # Slots 0–2 and 3–7 are components; an even cut, after slot 3, would cross the second one.
    assert blocks([1.0] * 8, [2, 2, 2, 7, 7, 7, 7, 7], 2) == [0] * 3 + [1] * 5


def test_a_cut_does_not_move_further_than_the_slack_allows() -> None:
    # The components meet after slot 1, a quarter of the load away from where an even cut may be.
    assert blocks([1.0] * 8, [1, 1, 7, 7, 7, 7, 7, 7], 2)[2] == 0


def test_inside_a_component_a_cut_falls_where_the_least_rate_crosses() -> None:
    # Everything that enters at slots 0–2 leaves at 3, but for a trickle that goes on; 4–7 stay among themselves.
    assert blocks([1.9, 1.9, 2.0, 0.2, 1.5, 1.5, 1.5, 1.5], [3, 3, 3, 4, 7, 7, 7, 7], 2) == [0] * 4 + [1] * 4


def test_unequal_loads_are_cut_by_load_and_not_by_number() -> None:
    assert blocks([6.0, 1, 1, 1, 1, 1, 1], list(range(7)), 2) == [0] + [1] * 6


@pytest.mark.parametrize(("slots", "count"), [(0, 3), (1, 3), (2, 5), (3, 4)])
def test_with_fewer_slots_than_blocks_the_first_blocks_are_used(slots: int, count: int) -> None:
    assert blocks([1.0] * slots, list(range(slots)), count) == list(range(slots))


def test_without_any_load_there_is_still_a_block_for_each_slot() -> None:
    found = blocks([0.0] * 5, [4] * 5, 2)
    assert found[0] == 0
    assert sorted(found) == found
    assert set(found) <= {0, 1}
