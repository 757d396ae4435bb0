"""What is kept for values that are the same objects."""

from __future__ import annotations

import random

import pytest

from sequencing.identity import KeptFor, differing


def test_the_result_is_kept_for_the_same_objects_and_made_anew_for_equal_ones() -> None:
    made: list[list[int]] = []

    def double(values: list[int]) -> list[int]:
        made.append(values)
        return [2 * value for value in values]

    doubled = KeptFor(double, kept=2)
    one, other, third = [1], [1], [3]
    assert doubled(one) is doubled(one)
    assert doubled(other) == doubled(one)
    assert made == [one, other]
    doubled(third)
    assert doubled(other) == [2]
    assert [id(values) for values in made] == [id(one), id(other), id(third)]
    doubled(one)  # what was made first has made room
    assert [id(values) for values in made] == [id(one), id(other), id(third), id(one)]


@pytest.mark.parametrize("seed", range(40))
def test_the_keys_that_differ_are_those_of_other_objects_however_the_mappings_were_made(seed: int) -> None:
    draw = random.Random(seed)
    before = {f"key-{number}": [number] for number in range(12)}
    after = dict(before)
    expected = set()
    for _ in range(draw.randrange(4)):
        key = draw.choice([*before, "new", "newer"])
        expected.add(key)
        if draw.random() < 0.5:
            after[key] = [0]
        elif key in after:
            del after[key]
    expected = {key for key in expected if after.get(key) is not before.get(key)}
    if draw.random() < 0.3:
        after = dict(sorted(after.items(), reverse=True))
    assert differing(before, after) == differing(after, before) == expected
