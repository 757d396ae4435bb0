"""Other programs' logs: where their fields are, and what their times and names are."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")
import pyarrow as pa
import pyarrow.parquet as pq
from click.testing import CliRunner, Result

from cli.main import cli
from gamecast.recording.foreign import Fields, find_logs, time_ns
from launcher.ending import BROKEN, DONE
from sequencing.errors import InvalidInput, UsageError

LOGS = Path(__file__).parents[3] / "examples" / "logs"
AT_NS = 1_795_800_000_123_456_789


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (AT_NS, AT_NS),
        (str(AT_NS), AT_NS),
        (AT_NS // 1_000, AT_NS // 1_000 * 1_000),
        (AT_NS // 1_000_000, AT_NS // 1_000_000 * 1_000_000),
        ("1795800000", 1_795_800_000 * 10**9),
        ("2026-11-27T17:20:00.123456789Z", AT_NS),
        ("2026-11-27T18:20:00.123+01:00", AT_NS // 1_000_000 * 1_000_000),
        ("2026-11-27 17:20:00", AT_NS // 10**9 * 10**9),
        ("yesterday", None),
        ("1969-12-31T23:59:59Z", None),
        (-5, None),
        (True, None),
        (float("nan"), None),
    ],
)
def test_times_are_told_by_their_size_or_iso(value: object, expected: int | None) -> None:
    assert time_ns(value) == expected


def test_a_time_in_seconds_with_a_fraction() -> None:
    at_ns = time_ns(1_795_800_000.5)
    assert at_ns == 1_795_800_000 * 10**9 + 5 * 10**8


ALL = ("subscriber=who", "event=msg.id", "region=zone", "sender==server")


@pytest.mark.parametrize(
    ("said", "error"),
    [
        (("subscriber=who",), "nothing says what is the event"),
        ((*ALL, "region=other"), "region is zone already"),
        ((*ALL, "colour=red"), "FIELD is one of subscriber, event"),
        ((*ALL, "index"), "say FIELD=PLACE"),
    ],
)
def test_a_mapping_that_cannot_be_is_told(said: tuple[str, ...], error: str) -> None:
    with pytest.raises(UsageError, match=error):
        Fields.of(said)


def deliveries(file: Path, *said: str) -> list[dict[str, Any]]:
    return [record for _, record in Fields.of(said).deliveries(file, {})]


def test_each_form_gives_the_same_deliveries(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"who": "s1", "zone": "a", "id": n, "at": 1_795_800_000 + n} for n in (7, 8)]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "log.csv").write_text(
        "who,zone,id,at\n" + "".join(",".join(map(str, row.values())) + "\n" for row in rows)
    )
    with gzip.open(tmp_path / "log.csv.gz", "wt") as stream:
        stream.write((tmp_path / "log.csv").read_text())
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "log.parquet")
    said = "subscriber=who", "event=id", "region=zone", "sender=@file", "delivered_at=at"
    expected = [
        {"subscriber": "s1", "event": str(n), "region": "a", "sender": "log", "index": place, "delivered_at_ns": at}
        for place, (n, at) in enumerate((row["id"], row["at"] * 10**9) for row in rows)
    ]
    for name in ("log.jsonl", "log.csv", "log.csv.gz", "log.parquet"):
        assert deliveries(tmp_path / name, *said) == expected, name


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ('{"who": "s1", "zone": "a"}', "line 1: has no 'msg.id', the event; it has who, zone"),
        ('{"who": "", "zone": "a", "msg": {"id": 1}}', "line 1: 'who', the subscriber, is ''"),
        ('{"who": "s1", "zone": null, "msg": {"id": 1}}', "'zone', the region, is None"),
        ('{"who": "s1", "zone": "a", "msg": {"id": 1}, "at": "soon"}', "'at' is no time: 'soon'"),
        ('{"who": "s1", "zone": "a", "msg": {"id": 1}, "at": 5, "n": -1}', "must be a whole number from 0, not -1"),
        ("{", "is not JSON"),
    ],
)
def test_a_line_that_does_not_fit_is_named(tmp_path: Path, line: str, error: str) -> None:
    file = tmp_path / "log.jsonl"
    file.write_text(line + "\n")
    said = (*ALL, "sent_at=at") if '"at"' in line else ALL
    with pytest.raises(InvalidInput, match=error):
        deliveries(file, *said, *(("index=n",) if '"n"' in line else ()))


def test_a_file_that_is_none_is_told(tmp_path: Path) -> None:
    (tmp_path / "log.parquet").write_bytes(b"PAR1 not at all")
    (tmp_path / "log.csv").write_text('who,zone\ns1,"a\n')
    for name, error in (("log.parquet", "as Parquet"), ("log.csv", "as CSV")):
        with pytest.raises(InvalidInput, match=error):
            deliveries(tmp_path / name, *ALL)
    (tmp_path / "log.csv").write_text("who,zone\ns1\n")
    with pytest.raises(InvalidInput, match="line 2: has not as many fields as the first line"):
        deliveries(tmp_path / "log.csv", *ALL)


def test_rotated_logs_are_read_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for number in range(12):
        (tmp_path / f"log.{number}.jsonl").write_text("")
    assert [file.name for file in find_logs([tmp_path])] == [f"log.{number}.jsonl" for number in range(12)]


def test_a_field_that_is_named_twice_is_refused(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("who,zone,who\ns1,a,s2\n")
    with pytest.raises(InvalidInput, match="names a field twice"):
        deliveries(tmp_path / "log.csv", *ALL)


def test_what_is_no_number_in_parquet_is_refused(tmp_path: Path) -> None:
    rows = {"who": ["s1"], "zone": ["a"], "id": [float("nan")], "n": [float("inf")]}
    pq.write_table(pa.table(rows), tmp_path / "log.parquet")
    said = "subscriber=who", "region=zone", "sender=@file"
    with pytest.raises(InvalidInput, match="the event, is nan"):
        deliveries(tmp_path / "log.parquet", *said, "event=id")
    with pytest.raises(InvalidInput, match="not inf"):
        deliveries(tmp_path / "log.parquet", *said, "event==e", "index=n")


def test_times_of_parquet_keep_their_nanoseconds(tmp_path: Path) -> None:
    times = pa.array([AT_NS], pa.timestamp("ns", "UTC"))
    pq.write_table(pa.table({"who": ["s1"], "zone": ["a"], "id": [1], "at": times}), tmp_path / "log.parquet")
    said = "subscriber=who", "region=zone", "sender=@file", "event=id", "sent_at=at"
    assert [each["sent_at_ns"] for each in deliveries(tmp_path / "log.parquet", *said)] == [AT_NS]


def call(*words: str | Path, status: int) -> Result:
    done = CliRunner().invoke(cli, [str(word) for word in words])
    assert done.exit_code == status, done.output
    return done


def mapping(*said: str) -> list[str]:
    return [word for each in said for word in ("--field", each)]


def test_the_example_of_nats_is_kept(tmp_path: Path) -> None:
    said = mapping("subscriber=consumer", "event=msg.id", "region=subject", "sender=msg.from")
    times = mapping("sent_at=msg.sent", "delivered_at=time")
    out = call("convert", LOGS / "nats", tmp_path / "logs", "--to", "log", *said, *times, status=DONE)
    assert "36 deliveries" in out.output
    first = json.loads((tmp_path / "logs" / "server-1.jsonl").read_text().splitlines()[0])
    assert first["delivered_at_ns"] - first["sent_at_ns"] == 3_000_789
    assert "kept" in call("audit", tmp_path / "logs", status=DONE).output


def test_the_example_of_kafka_has_an_order_that_differs(tmp_path: Path) -> None:
    said = mapping("subscriber=@file", "event=payload.event", "region=topic", "sender=key", "sent_at=ts")
    call("convert", LOGS / "kafka", tmp_path / "logs", "--to", "log", *said, status=DONE)
    report = json.loads(call("audit", tmp_path / "logs", "--json", status=BROKEN).output)
    assert (report["inversions"], report["duplicated"]) == (1, 0)


def test_the_example_of_unity_lacks_an_event(tmp_path: Path) -> None:
    said = mapping("subscriber=player", "event=event_id", "region=zone", "sender=from", "delivered_at=time")
    logs, published = LOGS / "unity" / "clients.csv", LOGS / "unity" / "published.csv"
    call("convert", logs, tmp_path / "logs", "--to", "log", "--published", published, *said, status=DONE)
    report = json.loads(call("audit", tmp_path / "logs", "--json", status=BROKEN).output)
    assert (report["inversions"], report["lost"]) == (0, 1)


def test_the_script_of_the_examples_says_what_its_comments_say(tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    command = ["sh", str(LOGS / "convert.sh"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PATH": path}, check=False)
    said = [line.split()[3].strip(".,") for line in done.stdout.splitlines() if line.startswith("The promises are")]
    assert said == ["kept", "broken", "broken"], done.stderr


def test_nothing_is_left_of_a_conversion_that_failed(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("who,zone,id\ns1,a,1\ns1,,2\n")
    said = mapping("subscriber=who", "event=id", "region=zone", "sender=@file")
    done = CliRunner().invoke(cli, ["convert", str(tmp_path / "log.csv"), str(tmp_path / "out"), "--to", "log", *said])
    assert isinstance(done.exception, InvalidInput)
    assert "line 3: 'zone', the region, is ''" in str(done.exception)
    assert not (tmp_path / "out").exists()
