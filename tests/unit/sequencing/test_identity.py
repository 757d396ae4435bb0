"""What is kept for values that are the same objects, and for equal ones."""

from __future__ import annotations

from sequencing.identity import KeptFor, KeptWithin


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


def test_results_of_equal_values_are_kept_until_others_are_too_long_together() -> None:
    made: list[bytes] = []

    def upper(value: bytes) -> bytes:
        made.append(value)
        return value.upper()

    kept = KeptWithin(10, upper)
    assert [kept(b"abcd"), kept(b"abcd"), kept(b"efgh")] == [b"ABCD", b"ABCD", b"EFGH"]
    kept(b"ijkl")  # the ones before are old now, and are still there
    assert kept(b"abcd") == b"ABCD"
    assert made == [b"abcd", b"efgh", b"ijkl"]
    kept(b"mnop")  # and with this, those are given up that were not asked for
    kept(b"efgh")
    kept(b"abcd")
    assert made == [b"abcd", b"efgh", b"ijkl", b"mnop", b"efgh"]
    kept.forget()
    kept(b"abcd")
    assert made[5:] == [b"abcd"]


def test_of_results_for_long_values_the_last_two_are_kept() -> None:
    kept = KeptWithin(10, bytes.upper)
    one, other = b"x" * 100, b"y" * 100
    first, second = kept(one), kept(other)
    assert (kept(one) is first, kept(other) is second) == (True, True)
    kept(b"z" * 100)
    assert (kept(other) is second, kept(one) is first) == (True, False)
