"""The committed durations, by which tests are handed out, name tests that exist."""

from __future__ import annotations

from tests.side_by_side import LONG_S, exists, read_durations


def test_each_long_test_exists() -> None:
    durations_s = read_durations()
    assert len(durations_s) > 100
    gone = sorted(name for name in durations_s if not exists(name))
    assert gone == [], "write them again: ./dev test --all --write-durations"
    assert min(durations_s.values()) >= LONG_S


def test_a_name_of_no_test_is_noticed() -> None:
    here = "tests/unit/project/test_durations.py"
    assert exists(f"{here}::test_each_long_test_exists[any-0]")
    assert not exists(f"{here}::test_each_long_test")
    assert not exists("tests/unit/project/test_gone.py::test_each_long_test_exists")
