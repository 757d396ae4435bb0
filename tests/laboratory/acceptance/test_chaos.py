"""`gamecast chaos`: real processes under faults, the judgement of what they saw, and nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import laboratory.chaos.faults
import laboratory.chaos.run
from cli.main import cli
from gamecast.errors import InvalidInput
from laboratory.chaos.clock import clock_library
from laboratory.chaos.judging import Judgement, judge_run
from laboratory.chaos.kept import Kept, read_kept
from laboratory.chaos.notes import Life, Notes, read_notes
from laboratory.chaos.run import KEPT_FILE
from laboratory.simulation.server import Delivered, regions_of
from sequencing.ready import Missing
from tests.patience import Deadline, besides_waiting, scaled

COMMAND = [sys.executable, "-m", "gamecast", "chaos"]
KEYS = {
    *("seed", "seconds", "faults", "published", "delivered", "lost", "duplicated", "inversions", "cycles", "gaps"),
    *("publisher_order_violations", "uncertain", "longest_stall_s", "recovery_s", "violations", "logs"),
}
BROKEN = "lost", "duplicated", "inversions", "cycles", "publisher_order_violations", "gaps", "violations"
END_S_MAX = 20.0


@pytest.fixture(scope="module")
def short_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    """The figures of a short run, and its logs."""
    logs = tmp_path_factory.mktemp("chaos") / "logs"
    arguments = ("--seconds", "15", "--seed", "5", "--json", "--keep", str(logs))
    done = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, check=False, timeout=scaled(110))
    assert done.returncode == 0, done.stdout + done.stderr
    assert besides_waiting(done.stderr) == ""
    return json.loads(done.stdout), logs


def test_a_short_run_keeps_every_promise_and_tells_its_figures(short_run: tuple[dict[str, Any], Path]) -> None:
    report, _ = short_run
    assert report.keys() >= KEYS
    assert not any(report[key] for key in BROKEN), report
    assert (report["seed"], report["seconds"], report["servers"], report["nodes"]) == (5, 15, 8, 3)
    assert sum(report["faults"].values()) >= 5
    assert ("clock_jumped" in report["faults"]) is (clock_library() is not None)
    assert ("clock_jumped" in report["faults_left_out"]) is (clock_library() is None)
    assert report["published"] > 500
    assert report["delivered"] > report["published"] / 2  # on a busy machine servers take long to join
    assert report["recovery_s"].keys() <= report["faults"].keys()
    assert all(0 < figures["median"] <= figures["max"] for figures in report["recovery_s"].values())
    assert 0 < report["longest_stall_s"] <= report["longest_silence_s"]
    assert report["joins"] > 20
    assert report["epochs"] > 5


def test_what_a_node_loses_that_keeps_nothing_is_no_broken_promise_if_it_is_told() -> None:
    arguments = ("--seconds", "8", "--seed", "38", "--servers", "4", "--lossy", "--json")  # n2 is killed
    done = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, check=False, timeout=scaled(110))
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["lossy"] is True
    assert report["faults"]["redis_killed"] == 2
    assert (report["lost"], report["violations"], report["logs"]) == (0, [], None)


def test_masters_are_replaced_and_nothing_is_lost_with_replicas() -> None:
    arguments = ("--seconds", "30", "--seed", "1", "--servers", "4", "--replicas", "1", "--json")
    done = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, check=False, timeout=scaled(160))
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert not any(report[key] for key in BROKEN), report
    assert report["replicas"] == 1
    masters = {kind: times for kind, times in report["faults"].items() if kind.startswith("master_")}
    assert sum(masters.values()) >= 2
    assert report["waits_s"].keys() >= masters.keys()
    assert report["receipts"] > 300


def test_replicas_exclude_nodes_that_lose_something() -> None:
    told = CliRunner().invoke(cli, ["chaos", "--replicas", "1", "--lossy"])
    assert "--replicas and --lossy exclude each other" in str(told.exception)


def read_back(logs: Path) -> tuple[Notes, list[Kept]]:
    files = {f"server-{number}": logs / f"server-{number}.notes.jsonl" for number in range(1, 9)}
    return read_notes(files), read_kept(logs / KEPT_FILE)


def in_the_middle(notes: Notes) -> tuple[Life, int]:
    """A session, and the place of an event in it that another session delivered too, and the event after it as well.

    Of its region something came before and after, in the same stay: what is missing at an edge may not have been due.
    """
    for life in sorted(notes.lives, key=lambda each: -len(each.session.deliveries)):
        seen = [item.event for item in life.session.deliveries]
        for other in notes.lives:
            theirs = {item.event for item in other.session.deliveries} if other is not life else set()
            places = [
                place
                for place in range(len(seen) - 1)
                if theirs.issuperset(seen[place : place + 2])
                and is_inside_a_stay(life, place)
                and not any(regions_of(event) for event in seen[place : place + 3])
            ]
            if places:
                return life, places[len(places) // 2]
    raise AssertionError("no two sessions had much in common")


def is_inside_a_stay(life: Life, place: int) -> bool:
    region, items = life.session.deliveries[place].region, life.session.deliveries
    for name, since, until in life.session.joined:
        end = len(items) if until is None else until
        if name == region and since <= place < end:
            around = items[since:place], items[place + 1 : end]
            return all(any(item.region == region for item in part) for part in around)
    return False


def drop(notes: Notes) -> None:
    life, place = in_the_middle(notes)
    del life.session.deliveries[place]
    moved(life, place, -1)


def repeat(notes: Notes) -> None:
    life, place = in_the_middle(notes)
    life.session.deliveries.insert(place + 2, life.session.deliveries[place])
    moved(life, place + 2, 1)


def swap(notes: Notes) -> None:
    life, place = in_the_middle(notes)
    items = life.session.deliveries
    items[place : place + 2] = items[place + 1], items[place]


def gap(notes: Notes) -> None:
    life, place = in_the_middle(notes)
    item = life.session.deliveries[place]
    missing = Missing(item.region, 1, 1, 1)
    life.session.deliveries.insert(place, Delivered("", item.region, "", item.at_ms, missing))
    moved(life, place, 1)


def deaf(notes: Notes) -> None:
    """Nothing at all was handed out after the middle of a session that went on to the end."""
    life = next(each for each in notes.lives if not each.session.ended and len(each.session.deliveries) > 100)
    half = len(life.session.deliveries) // 2
    del life.session.deliveries[half:]
    life.session.joined[:] = [
        (region, min(since, half), None if until is None else min(until, half))
        for region, since, until in life.session.joined
    ]


def moved(life: Life, place: int, by: int) -> None:
    joined = life.session.joined
    for index, (region, since, until) in enumerate(joined):
        joined[index] = (
            region,
            since + by * (since > place),
            None if until is None else until + by * (until > place),
        )


@pytest.mark.parametrize(
    ("breakage", "count", "says"),
    [
        (drop, "lost", ("agreement", "validity")),  # by whether its publisher went on to the end
        (repeat, "duplicated", ("order",)),
        (swap, "inversions", ("order",)),
        (gap, "gaps", ("integrity",)),
        (deaf, "lost", ("validity",)),
    ],
)
def test_a_delivery_that_is_wrong_is_found(
    short_run: tuple[dict[str, Any], Path], breakage: Callable[[Notes], None], count: str, says: tuple[str, ...]
) -> None:
    notes, kept = read_back(short_run[1])
    assert judge_run(notes, kept).fine
    broken = deepcopy(notes)
    breakage(broken)
    judgement: Judgement = judge_run(broken, kept)
    assert not judgement.fine
    assert getattr(judgement, count) > 0
    assert any(violation.startswith(says) for violation in judgement.violations), judgement.violations


def test_what_was_not_at_rest_and_what_nobody_should_raise_is_found(short_run: tuple[dict[str, Any], Path]) -> None:
    notes, kept = read_back(short_run[1])
    assert any("liveness" in violation for violation in judge_run(notes, kept, "server-1 hangs").violations)
    notes.trouble.append({"server": "server-1", "call": "open", "error": "KeyError", "says": "'x'"})
    assert judge_run(notes, kept).violations == ("interface: open raised KeyError: 'x'",)


def test_a_torn_line_is_forgiven_only_where_a_process_was_killed(
    short_run: tuple[dict[str, Any], Path], tmp_path: Path
) -> None:
    whole = (short_run[1] / "server-1.notes.jsonl").read_bytes()
    first, second, *rest = whole.splitlines(keepends=True)
    for text in (
        first + second[:10],
        first + second[:10] + b"\n" + first,
        first + second + b"\n" + first,
    ):
        (tmp_path / "notes").write_bytes(text)
        assert read_notes({"server-1": tmp_path / "notes"}).lives
    (tmp_path / "notes").write_bytes(first + second[:10] + b"\n" + b"".join(rest))
    with pytest.raises(InvalidInput, match="line 3: is not a note of a server"):
        read_notes({"server-1": tmp_path / "notes"})


def test_a_broken_promise_is_told_with_its_logs_and_an_exit_status(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(files: dict[str, Path]) -> Notes:
        notes = read_notes(files)
        drop(notes)
        return notes

    monkeypatch.setattr(laboratory.chaos.run, "read_notes", forgetful)
    monkeypatch.setattr(laboratory.chaos.faults, "clock_library", lambda: None)
    done = CliRunner().invoke(cli, ["chaos", "--seconds", "6", "--servers", "6"])
    assert done.exit_code == 1, done.output
    assert "gamecast broke a promise" in done.stdout
    assert "Left out: clock jumped; libfaketime is not installed" in " ".join(done.stdout.split())
    words = done.stdout.replace("│", " ").split()
    logs = Path(next(word for word in words if "gamecast-chaos-" in word).rstrip("."))
    assert {file.name for file in logs.iterdir()} >= {"server-1.notes.jsonl", "faults.jsonl", "redis-n1.log"}
    for file in logs.iterdir():
        file.unlink()
    logs.rmdir()


@pytest.fixture
def running(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A run that goes on for long, in which all processes are there; and the directory that its logs are in."""
    process = subprocess.Popen(
        [*COMMAND, "--seconds", "300"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    try:
        deadline = Deadline(60)
        while not list(tmp_path.glob("gamecast-chaos-*/server-8.notes.jsonl")):
            assert process.poll() is None, process.communicate()
            assert not deadline.passed
            time.sleep(0.1)
        time.sleep(4.0)  # some faults
        yield process, tmp_path
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_process_and_no_file_is_left_however_it_ends(
    running: tuple[subprocess.Popen[str], Path], number: signal.Signals
) -> None:
    process, directory = running
    processes = descendants(process.pid)
    assert len(processes) >= 3 * 2 + 2 + 8 + 3 * 2
    process.send_signal(number)
    out, err = process.communicate(timeout=scaled(END_S_MAX))
    assert process.returncode != 0
    assert "Traceback" not in out + err
    deadline = Deadline(END_S_MAX)
    while (left := processes & set(parents())) and not deadline.passed:
        time.sleep(0.05)
    assert not left
    while list(directory.iterdir()) and not deadline.passed:
        time.sleep(0.05)
    assert not list(directory.iterdir())


def descendants(pid: int) -> set[tuple[int, int]]:
    """The processes that a process started, and those that they did."""
    found: set[tuple[int, int]] = set()
    young = {pid}
    everybody = parents()
    while young:
        children = {key for key, parent in everybody.items() if parent in young}
        found |= children
        young = {child for child, _ in children}
    return found


def parents() -> dict[tuple[int, int], int]:
    """(Process, when it was started) → its parent, of all that are not just waiting to be waited for."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if fields[0] != "Z":
            found[int(entry.parent.name), int(fields[19])] = int(fields[1])
    return found
