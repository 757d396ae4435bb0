"""`gamecast bench embedding`: what it measures, not how much that is."""

from __future__ import annotations

import orjson
from click.testing import CliRunner
from rich.console import Console

from laboratory.bench.embedding import BASES, CLICK, CONNECTION, FOUNDATIONS, IMPORT, PROGRAMS, report
from laboratory.bench.goals import goals_of
from laboratory.commands.bench import bench


def test_every_program_is_measured_beside_what_it_stands_on_and_told_in_a_table() -> None:
    result = CliRunner().invoke(bench, ["embedding", "--runs", "1", "--json"])
    assert result.exit_code == 0, result.stderr
    document = orjson.loads(result.stdout)
    figures = document["figures"]
    assert list(figures) == list(PROGRAMS)
    for figure in figures.values():
        assert 0 < figure["cpu_s"] < 60
        assert 5 < figure["memory_mb"] < 1_000
    assert figures[FOUNDATIONS]["modules"] < figures[IMPORT]["modules"] < figures[FOUNDATIONS]["modules"] * 1.4
    assert figures[IMPORT]["modules"] <= figures[CONNECTION]["modules"] < figures[IMPORT]["modules"] * 1.1
    assert figures["--help"]["modules"] < figures[CLICK]["modules"] * 2
    assert document["ratios"].keys() == BASES.keys()
    # Modules and memory do not depend on what else the machine does; CPU does.
    assert all(goal.is_reached for goal in goals_of({"embedding": document}) if goal.figure.startswith("memory"))
    console = Console(width=80)
    with console.capture() as told:
        console.print(report(document))
    for name in PROGRAMS:
        assert f"\n {name} " in told.get()
