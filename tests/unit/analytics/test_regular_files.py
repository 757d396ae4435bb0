"""A session from a stranger: links, FIFOs and sockets in it are neither opened nor followed, and each is reported."""

from __future__ import annotations

import json
import os
import shutil
import socket
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

pytest.importorskip("pyarrow", reason="sessions are Parquet")

import pyarrow as pa
import pyarrow.parquet as pq

from analytics.session import allowance, compaction
from analytics.session.finding import Finding
from analytics.session.manifest import begin_session, read_session
from analytics.session.quarantine import Quarantine
from analytics.session.rates import read_session_rates
from analytics.session.schema import DELIVERIES, FILE_EVENTS
from analytics.session.storage import stored
from analytics.session.synthetic import World, write_session
from cli.audit import audit
from cli.compact import compact
from cli.convert import convert
from gamecast.recording.columns import rows_of
from gamecast.recording.files import SessionFiles
from sequencing.errors import InvalidInput, UsageError

PRIVATE = "PRIVATE"
LINK = "a symbolic link: only regular files are read"
pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def session(tmp_path: Path) -> Path:
    return write_session(tmp_path / "night", World(subscribers=3, regions=3, seed=1), deliveries=300).directory


@pytest.fixture
def hostile(session: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The session with links to private files, loops, a FIFO and a socket."""
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    (secrets / "id_rsa").write_text(PRIVATE)
    (secrets / "x.parquet").write_text(PRIVATE)
    deliveries = session / "deliveries"
    (deliveries / "x-000001.parquet").symlink_to(secrets / "id_rsa")
    (deliveries / "more").symlink_to(secrets)
    for name in ("loop", "again"):
        (deliveries / name).symlink_to("..")
    (deliveries / "dangling.parquet").symlink_to("nowhere")
    os.mkfifo(deliveries / "fifo.parquet")
    monkeypatch.chdir(deliveries)  # names of sockets are short
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind("bound.parquet")
    monkeypatch.chdir(tmp_path)
    return session


ODD = {"x-000001.parquet", "more", "loop", "again", "dangling.parquet", "fifo.parquet", "bound.parquet"}


def contents(directory: Path) -> set[bytes]:
    return {file.read_bytes() for file in directory.rglob("*") if file.is_file()}


def names(left_out: dict[str, Any]) -> set[str]:
    return {Path(name).name for name in left_out}


def test_compact_copies_only_regular_files_and_says_what_it_left_out(hostile: Path, tmp_path: Path) -> None:
    (hostile / "notes.txt").write_text("a foreign file is copied")
    result = CliRunner().invoke(compact, [str(hostile), "out", "--json"])
    assert result.exit_code == 0, result
    found = json.loads(result.stdout)
    assert names(found["left_out"]) == ODD
    assert found["left_out"][str(hostile / "deliveries" / "loop")] == LINK
    assert found["copied"] == 1
    assert PRIVATE.encode() not in contents(tmp_path / "out")
    assert not [file for file in (tmp_path / "out").rglob("*") if file.is_symlink()]

    said = CliRunner().invoke(compact, [str(hostile), "again"]).stderr
    assert f"left out: {hostile / 'deliveries' / 'more'}: {LINK}" in said
    assert "fifo.parquet: a FIFO: only regular files are read" in said


def test_convert_reads_only_regular_files_and_says_what_it_left_out(hostile: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(convert, [str(hostile), "logs", "--to", "log", "--json"])
    assert result.exit_code == 2
    found = json.loads(result.stdout)
    assert found["deliveries"] == 300
    assert names(found["quarantined"]) == ODD
    assert found["quarantined"][str(hostile / "deliveries" / "x-000001.parquet")] == LINK


def test_the_analysis_puts_them_aside_and_cannot_call_the_session_whole(hostile: Path) -> None:
    finding = Finding(Quarantine())
    finding.take(stored(hostile))
    entries = {entry.reason: entry for entry in finding.quarantine.entries}
    assert entries[LINK].count == 5
    assert entries[LINK].lacks
    assert sum(entry.count for entry in entries.values()) == len(ODD)
    assert all(each.file.place.startswith(str(hostile)) and each.file.last not in ODD for each in finding.usable)


def test_the_user_may_name_the_session_by_a_link(session: Path, tmp_path: Path) -> None:
    (tmp_path / "latest").symlink_to(session)
    for command, to in ((compact, ()), (convert, ("--to", "log"))):
        out = tmp_path / str(command.name)
        result = CliRunner().invoke(command, [str(tmp_path / "latest"), str(out), "--json", *to])
        assert result.exit_code == 0, result
        assert json.loads(result.stdout)["left_out"] == {}


def test_a_linked_table_is_left_out_and_named(session: Path, tmp_path: Path) -> None:
    (session / "publishes").rename(tmp_path / "publishes")
    (session / "publishes").symlink_to(tmp_path / "publishes")
    finding = Finding(Quarantine())
    finding.take(stored(session))
    assert {each.table for each in finding.usable}.isdisjoint({"publishes"})
    assert [(entry.reason, entry.lacks) for entry in finding.quarantine.entries] == [(LINK, True)]
    with pytest.raises(InvalidInput, match="publishes is a symbolic link"):
        read_session_rates(session)


@pytest.mark.parametrize("kind", ["link", "fifo"])
def test_a_description_that_is_no_regular_file_is_not_opened(session: Path, tmp_path: Path, kind: str) -> None:
    (session / "session.json").rename(tmp_path / "described.json")
    if kind == "link":
        (session / "session.json").symlink_to(tmp_path / "described.json")
    else:
        os.mkfifo(session / "session.json")
    with pytest.raises(InvalidInput, match="cannot be read"):
        read_session(session)
    with pytest.raises(InvalidInput, match="cannot be read"):
        begin_session(session, version="1", ordering="acyclic", url="")
    for command, more in ((compact, ()), (convert, ("--to", "log"))):
        failed = CliRunner().invoke(command, [str(session), str(tmp_path / "out"), *more])
        assert isinstance(failed.exception, InvalidInput)
    finding = Finding(Quarantine())
    finding.take(stored(session))
    assert finding.usable == []


def test_nothing_is_recorded_through_links(session: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    files = SessionFiles(session, session=read_session(session).session, recorder="r")
    row = {"subscriber": "s", "index": 0, "region": "r", "publisher": "p", "delivered_at_ns": None}
    (session / "deliveries" / "hour=unknown").symlink_to(tmp_path / "elsewhere")
    files.add(DELIVERIES, rows_of(DELIVERIES, [row]))
    assert files.roll() == []
    assert "symbolic link" in str(files.trouble)
    assert files.lost["deliveries", "disk"] == 1
    assert list((tmp_path / "elsewhere").iterdir()) == []

    shutil.move(session / "deliveries", tmp_path / "moved")
    (session / "deliveries").symlink_to(tmp_path / "moved")
    with pytest.raises(UsageError, match="deliveries is a symbolic link"):
        begin_session(session, version="1", ordering="acyclic", url="")


def test_the_audit_of_a_directory_reads_only_regular_files(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    line = {"subscriber": "s1", "index": 0, "event": "e", "region": "r", "sender": "s2"}
    (logs / "s1.jsonl").write_text(json.dumps(line))
    (tmp_path / "private.jsonl").write_text(PRIVATE)
    (logs / "s2.jsonl").symlink_to(tmp_path / "private.jsonl")
    os.mkfifo(logs / "s3.jsonl")
    (tmp_path / "logs/published.ndjson").symlink_to(tmp_path / "private.jsonl")
    result = CliRunner().invoke(audit, [str(logs), "--json"])
    assert result.exit_code == 4, result
    assert f"left out: {logs / 's2.jsonl'}: {LINK}" in result.stderr
    found = json.loads(result.stdout)
    assert names(found["left_out"]) == {"s2.jsonl", "s3.jsonl", "published.ndjson"}
    assert found["verdict"] == "unknown"
    assert CliRunner().invoke(convert, [str(logs), str(tmp_path / "s"), "--to", "session"]).exit_code == 2


def test_logs_that_the_user_names_may_be_links(tmp_path: Path) -> None:
    line = {"subscriber": "s1", "index": 0, "event": "e", "region": "r", "sender": "s2"}
    (tmp_path / "s1.jsonl").write_text(json.dumps(line))
    (tmp_path / "link.jsonl").symlink_to(tmp_path / "s1.jsonl")
    assert CliRunner().invoke(audit, [str(tmp_path / "link.jsonl")]).exit_code == 0


def test_a_directory_of_sessions_does_not_lead_to_others_by_links(session: Path, tmp_path: Path) -> None:
    (tmp_path / "many").mkdir()
    (tmp_path / "many" / "night").symlink_to(session)
    with pytest.raises(InvalidInput, match="neither a session nor"):
        Finding(Quarantine()).take(stored(tmp_path / "many"))


def test_a_url_of_this_machine_by_any_name_is_a_path(session: Path) -> None:
    for scheme in ("file", "fsspec+file", "fsspec+local"):
        assert stored(f"{scheme}://{session}") == stored(session)


def test_a_name_that_is_not_utf_8_is_left_out(session: Path, tmp_path: Path) -> None:
    with open(os.fsencode(session / "deliveries") + b"/\xff.parquet", "wb") as stream:  # noqa: PTH123
        stream.write(b"x")
    found = json.loads(CliRunner().invoke(compact, [str(session), str(tmp_path / "out"), "--json"]).stdout)
    assert found["left_out"] == {f"{session}/deliveries/\\xff.parquet": "its name is not UTF-8"}


def rewrite(session: Path, change: Any) -> None:
    """Replace the deliveries by what ``change`` makes of their first row; they say who wrote them as before."""
    [file, *others] = sorted((session / "deliveries").rglob("*.parquet"))
    for other in others:
        other.unlink()
    with pq.ParquetFile(file) as opened:
        metadata = opened.metadata.metadata
        rows = change(opened.read().slice(0, 1))
    kept = {key: value for key, value in metadata.items() if key != FILE_EVENTS.encode()}
    limit = 64 * 1024 * 1024
    pq.write_table(rows.replace_schema_metadata(kept), file, compression="zstd", dictionary_pagesize_limit=limit)


def replace(rows: pa.Table, name: str, values: Any) -> pa.Table:
    place = rows.schema.get_field_index(name)
    return rows.set_column(place, rows.schema.field(place), pa.array(values, rows.schema.field(place).type))


def test_logs_take_no_more_than_a_multiple_of_the_session(
    session: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(allowance, "FREE_BYTES", 0)
    text = os.urandom(50_000).hex()
    rewrite(session, lambda row: replace(row.take(pa.array([0] * 4000)), "publisher", [text] * 4000))
    size = sum(file.stat().st_size for file in session.rglob("*.parquet"))
    assert size < 200_000
    failed = CliRunner().invoke(convert, [str(session), str(tmp_path / "logs"), "--to", "log"])
    assert isinstance(failed.exception, InvalidInput)
    assert "no recorder writes such files" in str(failed.exception)
    assert not (tmp_path / "logs").exists()
    assert not (tmp_path / "logs/published.ndjson").exists()


def test_a_compacted_session_takes_no_more_than_a_multiple_of_the_session(
    session: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(allowance, "FREE_BYTES", 0)
    assert CliRunner().invoke(compact, [str(session), str(tmp_path / "fine")]).exit_code == 0
    # Rows that really become 16 times as large take more memory than a test may.
    monkeypatch.setattr(compaction, "PARQUET_TIMES", 0)
    failed = CliRunner().invoke(compact, [str(session), str(tmp_path / "out")])
    assert isinstance(failed.exception, InvalidInput)
    assert "no recorder writes such files" in str(failed.exception)
    assert not [each for each in tmp_path.iterdir() if "out" in each.name]


def test_files_with_holes_or_many_names_are_not_copied_at_their_full_size(
    session: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hole = session / ".unfinished.parquet.partial"
    hole.touch()
    os.truncate(hole, 1 << 40)
    failed = CliRunner().invoke(compact, [str(session), str(tmp_path / "out")])
    assert isinstance(failed.exception, InvalidInput)
    assert "no recorder writes such files" in str(failed.exception)
    assert not [each for each in tmp_path.iterdir() if "out" in each.name]

    monkeypatch.setattr(allowance, "FREE_BYTES", 0)
    hole.write_bytes(os.urandom(1_000_000))
    assert CliRunner().invoke(compact, [str(session), str(tmp_path / "fine")]).exit_code == 0
    for number in range(60):
        (session / f".{number}.parquet.partial").hardlink_to(hole)
    assert isinstance(CliRunner().invoke(compact, [str(session), str(tmp_path / "out")]).exception, InvalidInput)


def test_a_row_that_says_it_is_very_many_events_is_put_aside(session: Path, tmp_path: Path) -> None:
    def many(row: pa.Table) -> pa.Table:
        assert row["events"].type == pa.int64()
        return replace(row, "events", [1 << 40])

    rewrite(session, many)
    result = CliRunner().invoke(convert, [str(session), str(tmp_path / "logs"), "--to", "log", "--json"])
    assert result.exit_code == 2, result
    assert "a row of 1,099,511,627,776 events" in result.stdout


def test_nothing_is_compacted_into_the_session_itself(session: Path) -> None:
    failed = CliRunner().invoke(compact, [str(session), str(session / "inner")])
    assert isinstance(failed.exception, InvalidInput)
    assert "is in the session" in str(failed.exception)
