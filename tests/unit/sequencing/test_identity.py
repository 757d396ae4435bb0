"""What is kept for values that are the same objects."""

from __future__ import annotations

from sequencing.identity import KeptFor


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
