"""Sessions and delivery logs: what both can say survives the way there and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest

pytest.importorskip("pyarrow")

from analytics.session.manifest import begin_session
from analytics.session.schema import DELIVERIES, PUBLISHES, STAYS, Table
from gamecast.recording import conversion
from gamecast.recording.columns import rows_of
from gamecast.recording.conversion import logs_to_session, session_to_logs
from gamecast.recording.deliverylog import (
    find_delivery_logs,
    find_published,
    published_within,
    read_delivery_logs,
    read_published,
)
from gamecast.recording.files import SessionFiles
from gamecast.recording.reading import SessionReader
from sequencing.checkers import Published
from sequencing.checkers.stays import Placed
from sequencing.errors import InvalidInput, UsageError

BASE_NS = 1_795_000_000_000_000_000
Row = Mapping[str, Any]


def delivery(subscriber: str, index: int, **other: Any) -> Row:
    common = {"region": "a/b c", "publisher": "p", "epoch": 2, "sequence": index + 1, "sent_at_ns": BASE_NS + index}
    times = {"received_at_ns": BASE_NS + 10 + index, "delivered_at_ns": BASE_NS + 20 + index}
    return {"subscriber": subscriber, "incarnation": 4, "host": "vm", "index": index, **common, **times, **other}


def make_session(directory: Path, rows: Iterable[tuple[Table, Row]]) -> SessionFiles:
    session = begin_session(directory, version="1", ordering="acyclic", url="")
    files = SessionFiles(directory, session=session.session, recorder="r")
    for table, row in rows:
        files.add(table, rows_of(table, [row]))
    files.roll()
    return files


def rows(directory: Path, table: Table) -> list[Row]:
    found = [row for batch in SessionReader.open(directory).rows(table) for row in batch.to_pylist()]
    return sorted(found, key=lambda row: orjson.dumps(row, option=orjson.OPT_SORT_KEYS))


def stay(subscriber: str, number: int, revision: int, **other: Any) -> Row:
    common = {"incarnation": 4, "host": "vm", "region": "a/b c", "from_index": 0, "asked_at_ns": BASE_NS}
    known = {"subscriber": subscriber, "stay": number, "revision": revision, "noted_at_ns": BASE_NS}
    return {**common, **known, **other}


PUBLISH: Row = {
    "publisher": "p",
    "host": "vm",
    "region": "a/b c",
    "epoch": 2,
    "sequence": 1,
    "bytes": 9,
    "published_at_ns": BASE_NS,
    "acknowledged_at_ns": BASE_NS + 5,
    "outcome": "acknowledged",
}


def test_a_session_becomes_logs_and_a_session_again(tmp_path: Path) -> None:
    first, logs, again = tmp_path / "first", tmp_path / "logs", tmp_path / "again"
    left = {"joined_at_ns": BASE_NS + 1, "left_at_ns": BASE_NS + 90, "to_index": 2, "epoch": 2}
    make_session(
        first,
        [
            (DELIVERIES, delivery("s1", 1)),
            (DELIVERIES, delivery("s1", 0, received_at_ns=None)),
            (DELIVERIES, delivery("s2", 0, host=None, sent_at_ns=None)),
            (STAYS, stay("s1", 0, 0)),
            (STAYS, stay("s1", 0, 2, **left)),
            (STAYS, stay("s1", 0, 1, joined_at_ns=BASE_NS + 1)),
            (STAYS, stay("s1", -1, 0, from_index=None)),
            (PUBLISHES, PUBLISH),
            (PUBLISHES, {**PUBLISH, "epoch": None, "sequence": None, "outcome": "refused"}),
        ],
    )
    done = session_to_logs(first, logs)
    assert (done.deliveries, done.stays, done.published, done.files) == (3, 1, 1, 2)
    assert done.left_out == {"stays that were seen from outside": 1, "publishes with outcome refused": 1}
    files = find_delivery_logs([logs])
    back = logs_to_session(files, again, published=find_published(files), version="1")
    assert (back.deliveries, back.stays, back.published) == (3, 1, 1)
    assert rows(again, DELIVERIES) == rows(first, DELIVERIES)
    (known,) = rows(again, STAYS)
    assert known == {**dict.fromkeys(STAYS.names), **stay("s1", 0, 0, **left), "noted_at_ns": None}
    assert rows(again, PUBLISHES) == [{**dict.fromkeys(PUBLISHES.event_names), **PUBLISH}]


def test_foreign_logs_become_a_session_and_the_same_logs_again(tmp_path: Path) -> None:
    lines = [
        {"subscriber": "s1", "index": 1, "event": "e2", "region": "river", "sender": "p"},
        {"subscriber": "s1", "index": 0, "event": "e1", "region": "river", "sender": "p", "sent_at_ns": 5},
        {"subscriber": "s/2", "index": 7, "event": "e1", "region": "river", "sender": "p", "delivered_at_ns": BASE_NS},
        {"subscriber": "s1", "stay": "river", "from": 0, "to": 2, "asked_at_ns": 1, "joined_at_ns": 3},
        {"subscriber": "s1", "stay": "river", "from": 2},
    ]
    published = [
        {"event": "e1", "region": "river"},
        {"event": "e2", "region": "river", "position": "1-7", "published_at_ns": 4},
    ]
    source, session, logs = tmp_path / "mine.log", tmp_path / "session", tmp_path / "logs"
    source.write_bytes(b"\n".join(map(orjson.dumps, lines)))
    told = tmp_path / "published"
    told.write_bytes(b"\n".join(map(orjson.dumps, published)))
    logs_to_session([source], session, published=told, version="1")
    session_to_logs(session, logs)
    found = [orjson.loads(line) for file in logs.glob("*.jsonl") for line in file.read_bytes().splitlines()]
    for line in found:
        line.pop("stay_number", None)
    assert sorted(map(repr, found)) == sorted(map(repr, lines))
    expected = {"e1": Published("e1", "river"), "e2": Placed("e2", "river", (1, 7), 4)}
    assert {each.event: each for each in read_published(published_within(logs))} == expected
    assert {file.name for file in logs.glob("*.jsonl")} == {"s1.jsonl", "s%2F2.jsonl"}


def test_connections_of_one_subscriber_follow_each_other_in_its_log_and_come_apart_again(tmp_path: Path) -> None:
    first, logs, again = tmp_path / "first", tmp_path / "logs", tmp_path / "again"
    make_session(
        first,
        [
            *((DELIVERIES, delivery("s1", index, incarnation=9, sequence=50 + index)) for index in range(2)),
            *((DELIVERIES, delivery("s1", index, incarnation=4)) for index in range(3)),
            (STAYS, stay("s1", 0, 0, incarnation=9, to_index=2, left_at_ns=BASE_NS)),
        ],
    )
    session_to_logs(first, logs)
    read = read_delivery_logs([logs / "s1.jsonl"])
    assert [event.rpartition("-")[2] for event in read.sequences[0].events] == ["1", "2", "3", "50", "51"]
    assert (read.stays[0].start, read.stays[0].end) == (3, 5)
    logs_to_session([logs / "s1.jsonl"], again, published=None, version="1")
    assert rows(again, DELIVERIES) == rows(first, DELIVERIES)
    (known,) = rows(again, STAYS)
    assert (known["incarnation"], known["from_index"], known["to_index"]) == (9, 0, 2)


def test_more_subscribers_than_files_may_be_open_lose_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversion, "OPEN_LOGS_MAX", 2)
    make_session(tmp_path / "s", ((DELIVERIES, delivery(f"s{index % 5}", index // 5)) for index in range(25)))
    session_to_logs(tmp_path / "s", tmp_path / "logs")
    read = read_delivery_logs(sorted((tmp_path / "logs").glob("*.jsonl")))
    assert [len(sequence.events) for sequence in read.sequences] == [5] * 5
    assert read.index_gaps == 0


def test_a_malformed_line_is_named_and_no_session_stays(tmp_path: Path) -> None:
    source = tmp_path / "mine.jsonl"
    good = {"subscriber": "s1", "index": 0, "event": "e", "region": "r", "sender": "p"}
    source.write_bytes(orjson.dumps(good) + b"\n" + orjson.dumps({**good, "index": -1}))
    with pytest.raises(InvalidInput, match=r"mine\.jsonl, line 2: 'index'"):
        logs_to_session([source], tmp_path / "session", published=None, version="1")
    assert not (tmp_path / "session").exists()


def test_a_strangers_further_fields_are_not_taken_for_ours(tmp_path: Path) -> None:
    line = {"subscriber": "s1", "index": 3, "event": "e", "region": "r", "sender": "p"}
    odd = {"epoch": "late", "sequence": 4, "host": 7, "incarnation": 2**70, "connection_index": 9}
    (tmp_path / "x.jsonl").write_bytes(orjson.dumps(line | {k: v for k, v in odd.items() if k != "incarnation"}))
    logs_to_session([tmp_path / "x.jsonl"], tmp_path / "session", published=None, version="1")
    (row,) = rows(tmp_path / "session", DELIVERIES)
    assert (row["index"], row["epoch"], row["sequence"], row["host"], row["event"]) == (3, None, None, None, "e")


def test_files_that_are_not_the_sessions_are_left_out_and_named(tmp_path: Path) -> None:
    first = tmp_path / "first"
    make_session(first, [(DELIVERIES, delivery("s1", 0)), (DELIVERIES, delivery("s1", 1, delivered_at_ns=7))])
    other = tmp_path / "other"
    make_session(other, [(DELIVERIES, delivery("stranger", 0))])
    whole, cut = sorted((first / "deliveries").rglob("*.parquet"))
    (stranger,) = (other / "deliveries").rglob("*.parquet")
    cut.write_bytes(cut.read_bytes()[:-20])
    stranger.replace(first / "deliveries" / "stranger.parquet")
    (first / "deliveries" / "text.parquet").write_text("not Parquet")
    (first / "deliveries" / ".r-000009.parquet.partial").write_text("being written")
    done = session_to_logs(first, tmp_path / "logs")
    assert done.deliveries == 1
    assert {Path(file).name for file in done.quarantined} == {cut.name, "stranger.parquet", "text.parquet"}
    assert "another session" in done.quarantined[str(first / "deliveries" / "stranger.parquet")]
    assert whole.exists()


def test_a_directory_that_is_not_empty_is_not_written_into(tmp_path: Path) -> None:
    make_session(tmp_path / "s", [(DELIVERIES, delivery("s1", 0))])
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("")
    with pytest.raises(UsageError, match="not empty"):
        session_to_logs(tmp_path / "s", tmp_path / "full")
    with pytest.raises(InvalidInput, match="not a recorded session"):
        session_to_logs(tmp_path / "full", tmp_path / "new")
