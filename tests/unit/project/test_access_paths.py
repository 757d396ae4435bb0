"""The table of promises and doors names tests that are there."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).resolve().parents[2]
DOORS = (TESTS.parent / "docs" / "access-paths.csv").read_text(encoding="utf-8")


def test_each_test_that_the_table_names_is_there() -> None:
    named = set(re.findall(r"`(test_\w+)::(test_\w+)", DOORS))
    assert len(named) > 40
    files: dict[str, list[str]] = {path.stem: [] for path in TESTS.rglob("test_*.py")}
    for path in TESTS.rglob("test_*.py"):
        files[path.stem] += re.findall(r"def (test_\w+)\(", path.read_text(encoding="utf-8"))
    assert not {f"{file}::{test}" for file, test in named if test not in files.get(file, ())}
