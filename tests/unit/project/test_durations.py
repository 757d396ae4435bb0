"""Tests that are named in strings exist: those whose durations are committed, and those that judge mutants."""

from __future__ import annotations

import pytest

from tests.mutants import __main__ as mutants
from tests.side_by_side import LONG_S, exists, read_durations


def test_each_long_test_exists() -> None:
    durations_s = read_durations()
    assert len(durations_s) > 100
    gone = sorted(name for name in durations_s if not exists(name))
    assert gone == [], "write them again: ./dev test --all --write-durations"
    assert min(durations_s.values()) >= LONG_S


def test_each_test_that_judges_mutants_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    named = mutants.tests_of(unit_only=False)
    assert len(named) > 20
    assert [name for name in named if not exists(name if "::" in name else f"{name}::test_")] == []
    monkeypatch.setattr(mutants, "UNIT", (*mutants.UNIT, "nothing_of_this_name"))
    with pytest.raises(FileNotFoundError, match="nothing_of_this_name"):
        mutants.tests_of(unit_only=True)


def test_a_name_of_no_test_is_noticed() -> None:
    here = "tests/unit/project/test_durations.py"
    assert exists(f"{here}::test_each_long_test_exists[any-0]")
    assert not exists(f"{here}::test_each_long_test")
    assert not exists("tests/unit/project/test_gone.py::test_each_long_test_exists")
