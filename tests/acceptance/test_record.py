"""`gamecast record`, `gamecast convert` and `gamecast demo --record`, as a user calls them."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")

import gamecast
from adapters.redis.survey import survey
from analytics.session.schema import TABLE_OF
from gamecast.recording.deliverylog import read_delivery_logs
from gamecast.recording.reading import SessionReader
from launcher.ending import CANNOT_TELL
from tests.commands import call
from tests.patience import besides_waiting, patience, scaled

COMMAND = [sys.executable, "-m", "gamecast"]
GONE = "redis://127.0.0.1:1"


def rows(directory: Path, table: str) -> list[dict[str, Any]]:
    reader = SessionReader.open(directory)
    found = [row for batch in reader.rows(TABLE_OF[table]) for row in batch.to_pylist()]
    assert reader.quarantined == {}
    return found


@asynccontextmanager
async def recording(url: str, *arguments: str | Path) -> Any:
    """A `gamecast record` that has begun; yields the process, which is killed if it is still there in the end."""
    command = [*COMMAND, "record", url, *map(str, arguments)]
    pipe = subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe)
    assert process.stderr is not None
    try:
        async with patience(30):
            assert (await process.stderr.readline()).startswith(b"recording into")
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
async def test_a_live_network_is_recorded_until_a_signal_and_hears_nothing_of_it(
    tmp_path: Path, ending: signal.Signals
) -> None:
    async with gamecast.connect("embedded://?nodes=2", name="a") as a, gamecast.connect(a.url, name="b") as b:
        await a.subscribe("forest", "river")
        await b.subscribe("forest", "lake")
        before = await survey(a.url)
        async with recording(a.url, "--out", tmp_path / "s", "--regions", "*r*", "--host", "here") as process:
            receipts = [await a.publish(("forest", "river", "lake")[n % 3], n) for n in range(30)]
            await b.subscribe("river")
            await b.unsubscribe("forest")
            process.send_signal(ending)
            out, _ = await process.communicate()
        assert process.returncode == (130 if ending is signal.SIGINT else 0)
        during = await survey(a.url)
    assert "frames of 20 events" in out.decode()
    assert {each.name for each in during.connections} == {each.name for each in before.connections} == {"a", "b"}
    wanted = {tuple(each) for each in receipts if each.region != "lake"}
    assert {(r["region"], r["epoch"], r["sequence"]) for r in rows(tmp_path / "s", "frames")} == wanted
    stamps = rows(tmp_path / "s", "stamps")
    assert {(r["region"], r["epoch"], r["sequence"]) for r in stamps} == wanted
    assert {r["host"] for r in stamps} == {"here"}
    stays = {(r["subscriber"], r["region"]) for r in rows(tmp_path / "s", "stays")}
    assert stays >= {("a", "forest"), ("a", "river"), ("b", "forest"), ("b", "river")}
    assert ("b", "lake") not in stays
    assert rows(tmp_path / "s", "epochs")


async def test_it_ends_by_itself_after_so_many_seconds_with_one_json_document(tmp_path: Path) -> None:
    async with gamecast.connect("embedded://", name="a") as a:
        await a.subscribe("forest")
        command = [*COMMAND, "record", a.url, "--out", str(tmp_path / "s"), "--seconds", "0.5", "--json"]
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=scaled(60))
    assert (done.returncode, besides_waiting(done.stderr)) == (0, "")
    report = json.loads(done.stdout)
    assert {"frames", "events", "stamps", "missed", "session", "id", "files", "rows", "lost", "trouble"} <= set(report)
    assert report["lost"] == []
    assert report["rows"]["epochs"] == 2, "the plan, and the region that it does not list"


def main_status(*arguments: str | Path) -> tuple[int, str]:
    done = subprocess.run(
        [*COMMAND, *map(str, arguments)], capture_output=True, text=True, timeout=scaled(60), check=False
    )
    return done.returncode, done.stderr


def test_wrong_use_and_a_network_that_is_not_there_leave_no_session(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "holiday.jpg").write_text("")
    assert main_status("record", "memory://x", "--out", tmp_path / "s")[0] == 2
    status, complaint = main_status("record", GONE, "--out", tmp_path / "s")
    assert (status, complaint.count("\n")) == (3, 1)
    assert not (tmp_path / "s").exists()
    assert main_status("record", GONE)[0] == 2


async def test_a_directory_with_other_things_is_not_recorded_into(tmp_path: Path) -> None:
    (tmp_path / "holiday.jpg").write_text("")
    async with gamecast.connect("embedded://", name="a") as a:
        status, complaint = await asyncio.to_thread(main_status, "record", a.url, "--out", tmp_path)
    assert status == 2
    assert "holiday.jpg" in complaint


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("demo") / "logs"
    done = call("demo", "--seed", "7", "--servers", "4", "--duration-s", "60", "--record", directory)
    assert done.exit_code == 0, done.output
    assert f"gamecast analyze {directory / 'session'}" in done.output.replace("\n", "")
    return directory


def deliveries_of(logs: Path) -> Iterator[tuple[str, list[str], list[str]]]:
    for sequence in read_delivery_logs(sorted(logs.glob("*.jsonl"))).sequences:
        yield sequence.subscriber, list(sequence.regions), list(sequence.senders)


def test_the_demo_records_a_session_with_the_deliveries_of_its_logs(demo: Path) -> None:
    recorded: dict[str, list[dict[str, Any]]] = {}
    for row in sorted(rows(demo / "session", "deliveries"), key=lambda row: row["index"]):
        recorded.setdefault(row["subscriber"], []).append(row)
    logged = list(deliveries_of(demo))
    assert len(logged) == len(recorded) == 4
    for subscriber, regions, senders in logged:
        assert [row["region"] for row in recorded[subscriber]] == regions
        assert [row["publisher"] for row in recorded[subscriber]] == senders
    published = {(r["region"], r["epoch"], r["sequence"]) for r in rows(demo / "session", "publishes")}
    everything = [row for of_one in recorded.values() for row in of_one]
    assert {(r["region"], r["epoch"], r["sequence"]) for r in everything} <= published
    assert all(r["sent_at_ns"] <= r["received_at_ns"] <= r["delivered_at_ns"] for r in everything)
    frames = {(r["region"], r["epoch"], r["sequence"]) for r in rows(demo / "session", "frames")}
    at_egress = {
        (r["region"], r["epoch"], r["sequence"]) for r in rows(demo / "session", "stamps") if r["hop"] == r["hops"] - 1
    }
    assert frames == at_egress
    for table in ("receives", "stays", "epochs", "connections"):
        assert rows(demo / "session", table)
    assert rows(demo / "session", "losses") == []


def test_a_recorded_demo_becomes_logs_that_the_audit_judges_like_its_own(demo: Path, tmp_path: Path) -> None:
    done = call("convert", demo / "session", tmp_path / "logs", "--to", "log", "--json")
    assert done.exit_code == 0, done.output
    converted = json.loads(done.output)
    audits = [json.loads(call("audit", logs, "--json").output) for logs in (demo, tmp_path / "logs")]
    judged = (
        "subscribers",
        "deliveries",
        "regions",
        "inversions",
        "cycles",
        "duplicated",
        "lost",
        "fine",
        "index_gaps",
    )
    assert [audits[0][key] for key in judged] == [audits[1][key] for key in judged]
    assert converted["deliveries"] == audits[0]["deliveries"]
    assert audits[1]["fine"] is True
    again = call("convert", tmp_path / "logs", tmp_path / "session", "--to", "session")
    assert again.exit_code == 0, again.output
    names = ("subscriber", "incarnation", "index", "region", "epoch", "sequence", "sent_at_ns", "received_at_ns")
    before, after = (
        sorted(tuple(row[name] for name in names) for row in rows(directory, "deliveries"))
        for directory in (demo / "session", tmp_path / "session")
    )
    assert before == after


def test_a_delivery_taken_out_of_the_session_is_missed_by_the_audit_and_not_called_lost(
    demo: Path, tmp_path: Path
) -> None:
    call("convert", demo / "session", tmp_path / "logs", "--to", "log")
    log = min((tmp_path / "logs").glob("*.jsonl"))
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(line for line in lines if b'"index":100,' not in line))
    audited = call("audit", tmp_path / "logs", "--json")
    assert audited.exit_code == CANNOT_TELL
    found = json.loads(audited.output)
    assert (found["lost"], found["index_gaps"], found["verdict"]) == (0, 1, "unknown")


def test_servers_that_roam_record_their_stays(tmp_path: Path) -> None:
    done = call("demo", "--roam", "--seed", "3", "--servers", "4", "--duration-s", "60", "--record", tmp_path / "d")
    assert done.exit_code == 0, done.output
    assert call("convert", tmp_path / "d" / "session", tmp_path / "logs", "--to", "log").exit_code == 0
    audited = call("audit", tmp_path / "logs", "--json")
    assert json.loads(audited.output)["fine"] is True, audited.output
    ours = [r for r in rows(tmp_path / "d" / "session", "stays") if r["stay"] >= 0 and r["left_at_ns"] is not None]
    assert any(r["joined_at_ns"] is not None and r["to_index"] > r["from_index"] for r in ours)


def test_the_demo_replaces_its_session_and_nothing_else(tmp_path: Path) -> None:
    arguments = ("demo", "--servers", "2", "--duration-s", "20", "--record", tmp_path)
    assert call(*arguments).exit_code == 0
    first = SessionReader.open(tmp_path / "session").session.session
    assert call(*arguments).exit_code == 0
    assert SessionReader.open(tmp_path / "session").session.session != first
    (tmp_path / "session" / "session.json").unlink()
    done = call(*arguments)
    assert "is no session" in str(done.exception)


def test_without_pyarrow_the_demo_writes_logs_and_says_so_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    done = call("demo", "--servers", "2", "--duration-s", "20", "--record", tmp_path, "--json")
    assert done.exit_code == 0
    assert done.stderr.count("pyarrow") == 1
    assert json.loads(done.stdout)["lost"] == 0
    assert sorted(file.name for file in tmp_path.iterdir()) == ["published.ndjson", "server-1.jsonl", "server-2.jsonl"]
    with pytest.raises(gamecast.UsageError, match=r"gamecast\[recording\]"):
        gamecast.connect("memory://x", record=tmp_path / "s")
    assert isinstance(call("record", GONE, "--out", tmp_path / "s").exception, gamecast.UsageError)


def test_wrong_use_of_convert_is_said(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text('{"subscriber": "s"}\n')
    for arguments, complaint in (
        ((tmp_path / "nowhere", tmp_path / "out", "--to", "log"), "not a recorded session"),
        ((tmp_path / "x.jsonl", tmp_path / "out", "--to", "session"), "line 1: has no 'event'"),
        ((tmp_path, tmp_path, tmp_path / "out", "--to", "log"), "one session"),
        ((tmp_path, tmp_path / "out", "--to", "log", "--published", tmp_path / "x"), "--published"),
    ):
        done = call("convert", *arguments)
        assert isinstance(done.exception, gamecast.UsageError)
        assert complaint in str(done.exception)


def test_all_that_the_demo_left_in_its_directory_can_be_named_to_the_audit(demo: Path) -> None:
    audited = call("audit", *sorted(demo.iterdir()), "--json")
    assert audited.exit_code == 0, audited.output
    assert json.loads(audited.output)["subscribers"] == 4
