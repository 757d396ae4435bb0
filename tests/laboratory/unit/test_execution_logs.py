"""Execution logs, `gamecast lab classify`, `gamecast lab step`: what they read, say, draw and refuse."""

from __future__ import annotations

import gzip
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import orjson
import pytest
from click.testing import CliRunner, Result

from classic.executions.record import Kind
from classic.executions.timeliness import late
from classic.protocols.catalogue import PROTOCOLS, find_protocol
from cli.main import cli
from laboratory.protocols.executionlog import read_execution
from laboratory.protocols.script import play
from sequencing.errors import InvalidInput

SCENARIOS = Path(__file__).parents[2] / "scenarios" / "protocols"

OVERTAKEN = [
    {"process": "p3", "event": "send", "message": "m1", "to": ["p1"], "at_ms": 0, "local_ms": 100},
    {"process": "p3", "event": "send", "message": "m2", "to": ["p2"], "at_ms": 1},
    {"process": "p2", "event": "receive", "message": "m2", "at_ms": 2},
    {"process": "p2", "event": "send", "message": "m3", "to": ["p1"], "at_ms": 3},
    {"process": "p1", "event": "receive", "message": "m3", "at_ms": 4},
    {"process": "p1", "event": "receive", "message": "m1", "at_ms": 9, "local_ms": 103},
]
"""Kshemkalyani 2008, Figure 6.2(a)."""


def write(file: Path, lines: list[dict[str, object]]) -> Path:
    file.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))
    return file


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli, [str(argument) for argument in arguments], catch_exceptions=True)


def test_the_lines_of_different_processes_may_be_mixed_and_in_several_files(tmp_path: Path) -> None:
    one = write(tmp_path / "1.jsonl", OVERTAKEN[4:])
    two = tmp_path / "2.jsonl.gz"
    two.write_bytes(gzip.compress(b"\n".join(orjson.dumps(line) for line in OVERTAKEN[:4])))
    assert {e.message for e in read_execution([one, two]).events if e.kind is Kind.SEND} == {"m1", "m2", "m3"}


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        (["{"], "line 1: is not JSON"),
        (["[]"], "line 1: is not a JSON object"),
        (['{"event": "send", "message": "m"}'], 'line 1: "process" is missing'),
        (["", '{"process": "p", "event": "send"}'], 'line 2: "message" is missing'),
        (['{"process": "p", "event": "send", "message": "m", "to": "q"}'], 'line 1: "to" is not a list'),
        (['{"process": "p", "event": "send", "message": "m", "at_ms": "1"}'], 'line 1: "at_ms" is not a number'),
        (['{"process": "p", "event": "send", "message": "m"}'] * 2, "line 2: message m was sent before, .*line 1"),
        (['{"process": "p", "event": "receive", "message": "m"}'], "line 1: message m is received, and no line"),
    ],
)
def test_what_is_malformed_is_refused_with_file_and_line(tmp_path: Path, lines: list[str], complaint: str) -> None:
    file = tmp_path / "log.jsonl"
    file.write_text("\n".join(lines))
    with pytest.raises(InvalidInput, match=f"log.jsonl, {complaint}"):
        read_execution([file])


def test_events_that_wait_for_each_other_are_no_execution(tmp_path: Path) -> None:
    lines: list[dict[str, object]] = []
    for process, first, then in (("p", "n", "m"), ("q", "m", "n")):
        lines.append({"process": process, "event": "receive", "message": first})
        lines.append({"process": process, "event": "send", "message": then})
    with pytest.raises(InvalidInput, match="no execution: p receives n; q receives m before"):
        read_execution([write(tmp_path / "log.jsonl", lines)])


def test_classify_tells_the_class_the_crown_and_what_is_broken_as_json(tmp_path: Path) -> None:
    result = run("lab", "classify", write(tmp_path / "log.jsonl", OVERTAKEN), "--delta", 5, "--json")
    report = orjson.loads(result.stdout)
    assert result.exit_code == 0
    assert report["class"] == "FIFO"
    assert report["causal"] == {"message": "m1", "by": "m3", "at": "p1"}
    assert report["characterisations"] == {"co": False, "mo": False, "ei": False}
    assert len(report["crown"]) == 2
    assert report["extension"] is None
    assert {name for name, text in report["guarantees"].items() if text} == {"causal", "uniform causal"}
    assert report["timeliness"]["real_time"] == {
        "max_ms": 9,
        "message": "m1",
        "process": "p1",
        "late": 1,
        "uniform_late": 1,
    }
    assert report["timeliness"]["local"]["max_ms"] == 3


def test_classify_prints_a_schedule_where_there_is_no_crown(tmp_path: Path) -> None:
    result = run("lab", "classify", write(tmp_path / "log.jsonl", [*OVERTAKEN[:3]]))
    assert "class: RSC" in result.stdout
    assert "a schedule with every message at once: m2" in result.stdout


def test_classify_exits_with_1_where_an_expectation_does_not_hold(tmp_path: Path) -> None:
    log = write(tmp_path / "log.jsonl", OVERTAKEN)
    assert run("lab", "classify", log, "--expect", "fifo", "--expect", "total").exit_code == 0
    for what in ("co", "rsc", "causal"):
        assert run("lab", "classify", log, "--expect", what).exit_code == 1


def test_crashed_processes_are_bound_by_the_uniform_flavour_only(tmp_path: Path) -> None:
    lines: list[dict[str, object]] = [
        {"process": "p", "event": "send", "message": "m", "to": ["p", "q"]},
        {"process": "p", "event": "receive", "message": "m"},
        {"process": "p", "event": "crash"},
        {"process": "q", "event": "other"},
    ]
    report = orjson.loads(run("lab", "classify", write(tmp_path / "log.jsonl", lines), "--json").stdout)
    assert report["crashed"] == ["p"]
    assert report["guarantees"]["agreement"] is None
    assert "p delivers m, and q never does" in report["guarantees"]["uniform agreement"]


def test_timeliness_of_crashed_processes_counts_in_the_uniform_flavour_only(tmp_path: Path) -> None:
    lines: list[dict[str, object]] = [*OVERTAKEN, {"process": "p1", "event": "crash"}]
    record = read_execution([write(tmp_path / "log.jsonl", lines)])
    assert [latency.ms for latency in late(record, 5, uniform=True)] == [9]
    assert list(late(record, 5)) == []


def test_the_picture_has_a_line_for_each_process_and_marks_what_is_overtaken(tmp_path: Path) -> None:
    picture = tmp_path / "picture.svg"
    run("lab", "classify", write(tmp_path / "log.jsonl", OVERTAKEN), "--picture", picture)
    svg = ET.fromstring(picture.read_text())
    lines = list(svg.iter("{http://www.w3.org/2000/svg}line"))
    arrows = {line[0].text: line.get("stroke") for line in lines if len(line)}
    assert len(lines) - len(arrows) == 3
    assert arrows["m1 to p1"] == arrows["m3 to p1"] != arrows["m2 to p2"]


@pytest.mark.parametrize("file", sorted(SCENARIOS.glob("*.txt")), ids=lambda file: file.stem)
def test_a_scenario_comes_out_as_it_went_in(file: Path) -> None:
    script = file.read_text()
    [name] = [line.removeprefix("# protocol ") for line in script.splitlines() if line.startswith("# protocol ")]
    assert play(find_protocol(name), script).text == script


def test_step_prints_what_each_process_does_and_draws_it(tmp_path: Path) -> None:
    picture = tmp_path / "picture.svg"
    result = run("lab", "step", "isis-overlapping", SCENARIOS / "isis.txt", "--picture", picture)
    assert result.exit_code == 0
    assert "d sends a: Propose(ma, 2)" in result.stdout
    assert "class:" in result.stdout
    ET.fromstring(picture.read_text())


def test_step_tells_what_a_script_may_not_do_by_file_and_line(tmp_path: Path) -> None:
    script = tmp_path / "script.txt"
    script.write_text("processes a b\n---\na publishes m\nb receives from c\n")
    for text, complaint in (
        ("processes a b\n---\na publishes m\nb receives from c\n", "line 4: 0 packets"),
        ("processes a b\n---\na dances\n", "line 3: no step reads 'a dances'"),
        ("who knows\n---\n", "line 1: nothing in a head reads"),
        ("processes a b\n", "has no line ---"),
    ):
        script.write_text(text)
        result = run("lab", "step", "fifo", script)
        assert isinstance(result.exception, InvalidInput)
        assert complaint in str(result.exception)


def test_step_refuses_a_protocol_whose_assumptions_the_script_breaks() -> None:
    result = run("lab", "step", "isis", SCENARIOS / "isis.txt")
    assert "assumes that links are FIFO" in str(result.exception)


def test_simulate_protocols_counts_and_refutes_as_json() -> None:
    result = run("lab", "simulate", "protocols", "--seeds", 5, "--protocol", "fifo", "--jobs", 1, "--json")
    report = orjson.loads(result.stdout)
    assert result.exit_code == 0
    assert report["failed"] == 0
    assert report["protocols"]["fifo"]["refuted"]["claim"] == "causal"
    assert report["protocols"]["fifo"]["deliveries"] > 0


def test_simulate_protocols_exits_with_1_and_tells_how_to_replay_a_wrong_claim() -> None:
    result = run("lab", "simulate", "protocols", "--seed", 1, "--protocol", "fifo", "--claim", "causal")
    assert result.exit_code == 1
    assert "gamecast lab simulate protocols --protocol fifo --seed 1 --claim 'causal'" in result.stdout


def test_every_protocol_names_its_source_and_says_what_it_promises_and_assumes() -> None:
    for protocol in PROTOCOLS.values():
        assert re.search(r"Herlihy 2000|Kshemkalyani 2008|Lumezanu 2006|CMU 15-440|Gupta 2019", protocol.source)
        assert protocol.guarantees
        assert isinstance(protocol.assumes, frozenset)
