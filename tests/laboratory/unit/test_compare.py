"""`gamecast lab compare`: everyone on one workload, measured alike."""

from __future__ import annotations

import csv
from pathlib import Path

import orjson
import pytest
from click.testing import CliRunner, Result

from classic.protocols.arrow import Arrow
from classic.protocols.arrow_counting import ArrowCounting
from classic.protocols.central import Central
from classic.protocols.combining import Combining
from classic.protocols.fifo import Fifo
from classic.protocols.process import Process
from classic.protocols.propagation_tree import PropagationTree
from classic.protocols.three_phase import ThreePhase
from classic.protocols.vector_clocks import VectorClocks
from cli.main import cli
from laboratory.comparison.atoms import Atoms
from laboratory.comparison.claims import judge_claims, lessons
from laboratory.comparison.measure import Costs, measure
from laboratory.comparison.sweep import COMPARED, Case, star
from laboratory.comparison.workload import KINDS, Kind, Workload, draw_workload
from sequencing.errors import UsageError


def broadcast(*, rate: float = 5, processes: int = 8) -> Workload:
    return draw_workload(processes=processes, groups=1, group_size=0, rate=rate, seconds=1, seed=1)


def regions(*, processes: int = 10) -> Workload:
    return draw_workload(processes=processes, groups=6, group_size=4, rate=5, seconds=1, seed=1)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["lab", "compare", "--jobs", "1", *map(str, arguments)], catch_exceptions=True)


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
    sent_by_coordinator = sum(sender == workload.setup.processes[0] for _, sender, _ in workload.publications)
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


def test_the_page_has_a_row_for_each_protocol_drawings_of_growth_and_nothing_from_elsewhere(tmp_path: Path) -> None:
    page, plots = tmp_path / "page.html", tmp_path / "plots"
    names = ("atoms", "central", "isis")
    chosen = [part for name in names for part in ("--protocol", name)]
    cases = ("--processes", "4,12", "--groups", "1,4", "--rates", 2, "--seconds", 1)
    result = run(*chosen, *cases, "--page", page, "--plots", plots)
    assert result.exit_code == 0, result.output
    html = page.read_text()
    assert html.count("<table>") == 4
    assert html.count("<td>central</td>") == 4
    assert html.count("<svg ") == 2, "as processes become more, in one group and in several"
    assert html.count("class='claim'") == 2, "atoms against central, in stretch and in load"
    assert "Not for this workload, by their assumptions: isis." in html
    assert "http" not in html
    assert sorted(file.name for file in plots.iterdir()) == ["processes-one-group.png", "processes-several-groups.png"]


def test_one_number_at_a_time_is_varied_in_one_group_and_in_several() -> None:
    assert star([24, 8], [1, 8, 2], [3, 10]) == [
        *(Case(24, 1, 3), Case(24, 8, 3), Case(24, 2, 3)),
        *(Case(8, 1, 3), Case(24, 1, 10)),
        *(Case(8, 8, 3), Case(24, 8, 10)),
    ]


def test_processes_stand_where_a_matrix_says_and_the_first_is_the_median(tmp_path: Path) -> None:
    matrix = tmp_path / "line.csv"
    matrix.write_text(",a,b,c\na,0,30,50\nb,30,0,20\nc,50,20,0\n")
    arguments = ("--protocol", "fifo", "--processes", 3, "--groups", 1, "--rates", 5, "--seconds", 2, "--json")
    one_way, round_trip = (
        orjson.loads(run(*arguments, "--topology", matrix, *more).stdout)["rows"][0] for more in ((), ("--rtt",))
    )
    assert 20 <= one_way["p50_ms"] <= 50
    assert round_trip["mean_ms"] == pytest.approx(one_way["mean_ms"] / 2, abs=0.01)
    assert one_way["max_ms"] == 50
    assert isinstance(run(*arguments, "--rtt").exception, UsageError)
    crowded = run("--protocol", "fifo", "--processes", 4, "--groups", 1, "--rates", 1, "--topology", matrix)
    assert "cannot stand on 3 hosts" in str(crowded.exception)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_groups_has_members_that_publish_and_places_do_not_depend_on_it(kind: Kind) -> None:
    drawn = draw_workload(processes=10, groups=4, group_size=4, rate=5, seconds=1, seed=1, kind=kind)
    assert all(drawn.setup.groups.values())
    assert all(sender in drawn.setup.members(group) for _, sender, group in drawn.publications)
    assert drawn.delay_ms == regions().delay_ms
    costs = measure(Atoms, drawn)
    assert (costs.undelivered, costs.broken) == (0, ())


def row(protocol: str, rate: float, **figures: float) -> dict[str, object]:
    zero = dict.fromkeys(("packets", "mean_ms", "busiest", "metadata_bytes", "stretch"), 1.0)
    return {"protocol": protocol, "processes": 8, "groups": 1, "rate": rate, "busiest_process": "p0"} | zero | figures


def test_a_claim_holds_only_if_it_does_in_every_case_and_says_where_it_does_not() -> None:
    rows = [row("arrow", 1, mean_ms=30), row("arrow-counting", 1, mean_ms=20)]
    rows += [row("arrow", 9, mean_ms=30), row("arrow-counting", 9, mean_ms=90)]
    [claim] = judge_claims(rows)
    assert "swapping" in claim.claim
    assert (claim.holds, len(claim.figures)) == (False, 2)
    assert claim.figures[-1] == "arrow, 8 processes: 0.7 times as quick at 1/s, 3.0 at 9/s"
    assert claim.against == ("arrow, 8 processes, 1/s each: 30 ms against 20 ms",)
    assert judge_claims(rows[2:])[0].holds


def test_what_the_figures_teach_is_said_with_where_ours_wins_and_loses() -> None:
    several = [
        row(name, 3, groups=groups, stretch=stretch, busiest=busiest)
        for groups, name, stretch, busiest in [
            *((2, "atoms", 1.5, 9), (2, "central", 1.0, 10), (2, "propagation-tree", 3.0, 3)),
            *((8, "atoms", 1.0, 4), (8, "central", 1.0, 10), (8, "propagation-tree", 2.0, 2)),
        ]
    ]
    central, load, tree, tree_load = lessons(several)
    assert central.startswith("Ours loses: in several groups the stretch of atoms is 1.00 (8 groups")
    assert "to 1.50 times (2 groups" in central
    assert load.startswith("Ours wins")
    assert tree.startswith("Ours wins")
    assert tree_load.startswith("Ours loses")
    assert "to the packet" in lessons([row("atoms", 1), row("central", 1)])[0]
    assert lessons([row("atoms", 1), row("central", 1, packets=2)]) == []


def test_numbers_that_are_none_are_refused() -> None:
    assert isinstance(run("--rates", "2,many").exception, UsageError)
    assert isinstance(run("--processes", "0").exception, UsageError)
