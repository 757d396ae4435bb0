"""`gamecast compare`: everyone on one workload, measured alike."""

from __future__ import annotations

import csv
from pathlib import Path

import orjson
import pytest
from click.testing import CliRunner, Result

from gamecast.cli.compare import COMPARED
from gamecast.cli.main import cli
from gamecast.comparison.atoms import Atoms
from gamecast.comparison.measure import Costs, measure
from gamecast.comparison.workload import Workload, draw_workload
from sequencing.errors import UsageError
from sequencing.protocols.arrow import Arrow
from sequencing.protocols.arrow_counting import ArrowCounting
from sequencing.protocols.central import Central
from sequencing.protocols.combining import Combining
from sequencing.protocols.fifo import Fifo
from sequencing.protocols.process import Process
from sequencing.protocols.propagation_tree import PropagationTree
from sequencing.protocols.three_phase import ThreePhase
from sequencing.protocols.vector_clocks import VectorClocks


def broadcast(*, rate: float = 5, processes: int = 8) -> Workload:
    return draw_workload(processes=processes, groups=1, group_size=0, rate=rate, seconds=1, seed=1)


def regions(*, processes: int = 10) -> Workload:
    return draw_workload(processes=processes, groups=6, group_size=4, rate=5, seconds=1, seed=1)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["compare", "--jobs", "1", *map(str, arguments)], catch_exceptions=True)


@pytest.mark.parametrize("name", COMPARED)
@pytest.mark.parametrize("workload", [broadcast(), regions()], ids=["broadcast", "regions"])
def test_everyone_delivers_everything_and_keeps_its_word(name: str, workload: Workload) -> None:
    protocol = COMPARED[name]
    try:
        workload.setup.require(protocol.assumes, title=protocol.title)
    except UsageError:
        with pytest.raises(UsageError, match="assumes"):
            measure(protocol, workload)
        return
    costs = measure(protocol, workload)
    assert costs.multicasts == len(workload.publications)
    assert costs.undelivered == 0
    assert costs.broken == ()
    assert costs.stretch >= 0.999


def test_fifo_multicast_has_no_stretch_and_as_many_packets_as_there_are_others() -> None:
    costs = measure(Fifo, broadcast(processes=8))
    assert (costs.packets, costs.held_max) == (7, 0)
    assert costs.stretch == pytest.approx(1)


def test_packets_are_counted_as_the_sources_count_them() -> None:
    workload = broadcast(processes=8)
    sent_by_coordinator = sum(sender == "p00" for _, sender, _ in workload.publications)
    assert measure(ThreePhase, workload).packets == 3 * 7
    assert measure(Central, workload).packets == 8 - sent_by_coordinator / len(workload.publications)


def test_the_same_seed_gives_the_same_figures() -> None:
    assert measure(Atoms, regions()) == measure(Atoms, regions())


def concurrency(protocol: type[Process]) -> Costs:
    return measure(protocol, draw_workload(processes=12, groups=1, group_size=0, rate=20, seconds=1, seed=1))


def test_swapping_beats_counting_when_many_publish_at_once() -> None:
    assert concurrency(Arrow).mean_ms * 3 < concurrency(ArrowCounting).mean_ms


def test_a_combining_trees_root_is_busier_than_any_process_of_the_arrow_protocol() -> None:
    assert concurrency(Combining).busiest > 2 * concurrency(Arrow).busiest


def test_the_vectors_on_messages_grow_with_the_number_of_processes_and_the_stamps_of_atoms_do_not() -> None:
    def bytes_of(protocol: type[Process], processes: int) -> float:
        return measure(protocol, broadcast(rate=1, processes=processes)).metadata_bytes

    assert bytes_of(VectorClocks, 32) - bytes_of(VectorClocks, 8) > 40
    assert abs(bytes_of(Atoms, 32) - bytes_of(Atoms, 8)) < 5


def test_atoms_and_propagation_trees_spread_the_load_that_a_coordinator_has_alone() -> None:
    workload = draw_workload(processes=40, groups=16, group_size=4, rate=3, seconds=1, seed=1)
    central = measure(Central, workload)
    for protocol in (Atoms, PropagationTree):
        assert measure(protocol, workload).busiest < 0.7 * central.busiest


def test_the_command_says_which_protocols_do_not_fit_and_why(tmp_path: Path) -> None:
    figures = tmp_path / "figures.csv"
    names = ("atoms", "vector-clocks")
    result = run(
        *(part for name in names for part in ("--protocol", name)),
        *("--processes", 12, "--groups", 4, "--rates", "2", "--seconds", 1, "--csv", figures, "--json"),
    )
    assert result.exit_code == 0, result.output
    atoms, vectors = orjson.loads(result.stdout)["rows"]
    assert atoms["undelivered"] == 0
    assert "every message is for all processes" in vectors["not_applicable"]
    assert [row["protocol"] for row in csv.DictReader(figures.read_text().splitlines())] == list(names)


def test_the_table_names_those_that_do_not_fit() -> None:
    result = run("--protocol", "fifo", "--protocol", "isis", "--processes", 12, "--groups", 4, "--rates", 2)
    assert "not for this workload, by their assumptions: isis" in result.stdout


def test_the_page_has_a_row_for_each_protocol_charts_of_growth_and_nothing_from_elsewhere(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    names = ("atoms", "fifo", "isis")
    chosen = [part for name in names for part in ("--protocol", name)]
    result = run(*chosen, "--processes", "4,12", "--groups", "1,4", "--rates", 2, "--seconds", 1, "--page", page)
    assert result.exit_code == 0, result.output
    html = page.read_text()
    assert html.count("<table>") == 4
    assert html.count("<td>fifo</td>") == 4
    assert html.count("<svg ") == 6, "three charts each for processes and groups"
    assert "Not for this workload, by their assumptions: isis." in html
    assert "http" not in html


def test_numbers_that_are_none_are_refused() -> None:
    assert isinstance(run("--rates", "2,many").exception, UsageError)
    assert isinstance(run("--processes", "0").exception, UsageError)
