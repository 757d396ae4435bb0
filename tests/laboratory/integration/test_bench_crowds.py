"""The bench of crowds, small: each figure is measured, of gamecast and of SUBSCRIBE."""

from __future__ import annotations

import orjson
import pytest
from click.testing import CliRunner

from laboratory.bench import crowds
from laboratory.commands.bench import bench


def test_each_figure_is_measured_for_each_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crowds, "IDLE_S", 0.5)
    monkeypatch.setattr(crowds, "SETTLE_S", 0.0)
    found = CliRunner().invoke(bench, ["crowds", "--sizes", "4x1,12x2", "--json"])
    assert found.exit_code == 0, found.output
    result = orjson.loads(found.stdout)
    for measured in result.values():
        assert [(each["connections"], each["processes"]) for each in measured] == [(4, 1), (12, 2)]
        assert all(each[figure] > 0 for each in measured for figure in each if figure != "idle_bytes_per_s")
    assert crowds.crowds_report(result).renderables


@pytest.mark.parametrize("sizes", ["40", "40x50", "many", "0x0"])
def test_sizes_are_connections_in_processes(sizes: str) -> None:
    found = CliRunner().invoke(bench, ["crowds", "--sizes", sizes])
    assert (found.exit_code, "connections and processes, like 40x1" in found.output) == (2, True)
