"""Delivery logs: what is written is read again, and what is malformed is named by file and line."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from gamecast.recording.deliverylog import find_delivery_logs, log_file_name, read_delivery_logs, read_published
from gamecast.recording.deliverylogwriter import DeliveryLogWriter
from placement.textlines import LINE_BYTES_MAX
from sequencing.checkers import Published
from sequencing.errors import InvalidInput


def line(index: object, event: object = "e", **fields: object) -> str:
    return json.dumps({"subscriber": "s1", "index": index, "event": event, "region": "r", "sender": "p"} | fields)


def log(directory: Path, *lines: str, name: str = "log.jsonl") -> Path:
    file = directory / name
    text = "".join(f"{one}\n" for one in lines).encode()
    file.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    return file


@pytest.mark.parametrize("name", ["s1.jsonl", "s1.jsonl.gz"])
def test_what_the_writer_writes_the_reader_reads(tmp_path: Path, name: str) -> None:
    with DeliveryLogWriter(tmp_path / name, "s1") as writer:
        writer.write("e1", "forest", "ann", sent_at_ns=5, delivered_at_ns=9)
        writer.write("e2", "rivière", "bob", extra={"epoch": 3, "index": 77})
    (sequence,) = read_delivery_logs([tmp_path / name]).sequences
    assert sequence.subscriber == "s1"
    assert list(sequence.events) == ["e1", "e2"]
    assert list(sequence.regions) == ["forest", "rivière"]
    assert list(sequence.senders) == ["ann", "bob"]
    assert list(sequence.sent_at_ns) == [5, None]


def test_the_same_deliveries_make_the_same_compressed_file(tmp_path: Path) -> None:
    for name in ("one.jsonl.gz", "other.jsonl.gz"):
        with DeliveryLogWriter(tmp_path / name, "s1") as writer:
            writer.write("e1", "forest", "ann")
    assert (tmp_path / "one.jsonl.gz").read_bytes() == (tmp_path / "other.jsonl.gz").read_bytes()


def test_a_log_gets_its_name_only_when_it_is_whole(tmp_path: Path) -> None:
    file = tmp_path / "s1.jsonl"
    writer = DeliveryLogWriter(file, "s1")
    writer.write("e1", "forest", "ann")
    assert not file.exists()
    writer.close()
    writer.close()
    assert [one.name for one in tmp_path.iterdir()] == ["s1.jsonl"]


def test_a_log_whose_writing_failed_stays_partial(tmp_path: Path) -> None:
    def fail() -> None:
        with DeliveryLogWriter(tmp_path / "s1.jsonl", "s1") as writer:
            writer.write("e1", "forest", "ann")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert [one.name for one in tmp_path.iterdir()] == ["s1.jsonl.partial"]
    with pytest.raises(InvalidInput, match="directory without"):
        find_delivery_logs([tmp_path])


@pytest.mark.parametrize("subscriber", ["server-eu-1", "a/b", "../x", "überall", "a:b*c"])
def test_log_files_can_be_named_after_any_subscriber(tmp_path: Path, subscriber: str) -> None:
    file = tmp_path / log_file_name(subscriber)
    assert file.parent == tmp_path
    with DeliveryLogWriter(file, subscriber) as writer:
        writer.write("e1", "forest", "ann")
    assert [one.subscriber for one in read_delivery_logs([file]).sequences] == [subscriber]


def test_the_index_and_not_the_line_says_the_order_across_files_too(tmp_path: Path) -> None:
    one = log(tmp_path, line(2, "e2"), line(0, "e0"), name="one.jsonl")
    other = log(tmp_path, line(3, "e3"), line(1, "e1", sent_at_ns=4), name="other.jsonl.gz")
    logs = read_delivery_logs([one, other])
    assert [list(sequence.events) for sequence in logs.sequences] == [["e0", "e1", "e2", "e3"]]
    assert list(logs.sequences[0].sent_at_ns) == [None, 4, None, None]
    assert logs.index_gaps == 0


def test_several_subscribers_may_share_a_file(tmp_path: Path) -> None:
    logs = read_delivery_logs([log(tmp_path, line(0, subscriber="s2"), line(0, subscriber="s1"))])
    assert [sequence.subscriber for sequence in logs.sequences] == ["s1", "s2"]


def test_missing_indices_are_counted_and_do_not_matter(tmp_path: Path) -> None:
    logs = read_delivery_logs([log(tmp_path, line(5, "e5"), line(2, "e2"))])
    assert list(logs.sequences[0].events) == ["e2", "e5"]
    assert logs.index_gaps == 4


def test_unknown_fields_empty_lines_and_a_missing_last_newline_are_fine(tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    file.write_text(line(0, position="x", nested={"a": [1]}) + "\n\n  \r\n" + line(1))
    assert len(read_delivery_logs([file]).sequences[0].events) == 2


def test_gzip_is_told_by_its_content(tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    file.write_bytes(gzip.compress(line(0).encode()))
    assert len(read_delivery_logs([file]).sequences) == 1


def test_progress_adds_up_to_the_lines_read(tmp_path: Path) -> None:
    steps: list[int] = []
    read_delivery_logs([log(tmp_path, *(line(index) for index in range(25_000)))], on_progress=steps.append)
    assert sum(steps) == 25_000


@pytest.mark.parametrize(
    ("bad", "complaint"),
    [
        ("{", "is not JSON: "),
        ("[1]", r"is not a JSON object but \[1\]"),
        ("null", "is not a JSON object but None"),
        (line("1"), "'index' must be a whole number from 0, not '1'"),
        (line(1.0), "'index' must be a whole number from 0, not 1.0"),
        (line(True), "'index' must be a whole number from 0, not True"),
        (line(-1), "'index' must be a whole number from 0, not -1"),
        (line(1 << 63), "'index' must be a whole number from 0, not 9223372036854775808"),
        (line(1, event=""), "'event' must be a string that is not empty, not ''"),
        (line(1, event=7), "'event' must be a string that is not empty, not 7"),
        (line(1, region=None), "'region' must be a string that is not empty, not None"),
        (line(1, sender=["p"]), "'sender' must be a string"),
        (line(1, subscriber={}), "'subscriber' must be a string"),
        (line(1, sent_at_ns=1.5), "'sent_at_ns' must be whole nanoseconds, not 1.5"),
        (line(1, delivered_at_ns="now"), "'delivered_at_ns' must be whole nanoseconds, not 'now'"),
        ('{"subscriber": "s1", "index": 1, "event": "e", "region": "r"}', "has no 'sender'"),
        ('{"subscriber": "s1", "event": "e", "region": "r", "sender": "p"}', "has no 'index'"),
        ('{"index": 1}', "has no 'subscriber'"),
        (line(0, "other"), r"'s1' has index 0 already, at .*log\.jsonl, line 1"),
    ],
)
def test_a_malformed_line_is_named_with_its_file(tmp_path: Path, bad: str, complaint: str) -> None:
    file = log(tmp_path, line(0), "", bad, line(2))
    with pytest.raises(InvalidInput, match=rf"log\.jsonl, line 3: {complaint}"):
        read_delivery_logs([file])


def test_an_index_that_two_files_have_is_named_with_both(tmp_path: Path) -> None:
    one, other = log(tmp_path, line(0), line(1), name="one.jsonl"), log(tmp_path, line(2), line(1), name="other.jsonl")
    with pytest.raises(InvalidInput, match=r"other\.jsonl, line 2: 's1' has index 1 already, at .*one\.jsonl, line 2"):
        read_delivery_logs([one, other])


def test_bytes_that_are_not_utf8_are_named(tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    file.write_bytes(line(0).encode() + b"\n" + line(1, "x").encode().replace(b'"x"', b'"\xff"'))
    with pytest.raises(InvalidInput, match=r"log\.jsonl, line 2: is not UTF-8"):
        read_delivery_logs([file])


def test_a_line_without_an_end_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    file.write_bytes(line(0).encode() + b"\n" + b" " * (LINE_BYTES_MAX + 1))
    with pytest.raises(InvalidInput, match=r"log\.jsonl, line 2: is longer than"):
        read_delivery_logs([file])


def test_compressed_data_that_is_cut_off_is_an_error(tmp_path: Path) -> None:
    file = log(tmp_path, *(line(index, f"e{index * 7919}") for index in range(1000)), name="log.jsonl.gz")
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(InvalidInput, match=r"log\.jsonl\.gz, line \d+: the gzip data is cut off or damaged"):
        read_delivery_logs([file])


def test_compressed_data_that_is_damaged_is_an_error(tmp_path: Path) -> None:
    file = log(tmp_path, *(line(index, f"e{index * 7919}") for index in range(1000)), name="log.jsonl.gz")
    data = bytearray(file.read_bytes())
    data[-6] ^= 0xFF
    file.write_bytes(bytes(data))
    with pytest.raises(InvalidInput, match="cut off or damaged"):
        read_delivery_logs([file])


def test_plain_text_that_is_named_gz_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl.gz"
    file.write_text(line(0))
    with pytest.raises(InvalidInput, match="but is not gzip data"):
        read_delivery_logs([file])


def test_missing_files_and_directories_are_errors(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="nowhere: cannot be read: No such file"):
        read_delivery_logs([tmp_path / "nowhere"])
    with pytest.raises(InvalidInput, match="is a directory, not a file"):
        read_delivery_logs([tmp_path])
    with pytest.raises(InvalidInput, match="nowhere does not exist"):
        find_delivery_logs([tmp_path / "nowhere"])


def test_no_deliveries_are_nothing_to_judge(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="nothing to judge"):
        read_delivery_logs([log(tmp_path)])


def test_a_directory_stands_for_the_logs_in_it_and_files_are_read_once(tmp_path: Path) -> None:
    for name in ("b.jsonl", "a.jsonl.gz", "notes.txt", "c.jsonl.partial"):
        (tmp_path / name).touch()
    (tmp_path / "d.jsonl").mkdir()
    found = find_delivery_logs([tmp_path, tmp_path / "b.jsonl", tmp_path / "notes.txt"])
    assert [file.name for file in found] == ["a.jsonl.gz", "b.jsonl", "notes.txt"]


def test_what_was_published_is_read(tmp_path: Path) -> None:
    file = log(tmp_path, '{"event": "e1", "region": "forest", "sender": "ann"}', '{"event": "e2", "region": "river"}')
    assert read_published(file) == [Published("e1", "forest"), Published("e2", "river")]


@pytest.mark.parametrize(
    ("bad", "complaint"),
    [
        ('{"event": "e1", "region": "river"}', "event 'e1' is in this file already"),
        ('{"event": "e2"}', "has no 'region'"),
        ('{"event": 3, "region": "river"}', "'event' must be a string"),
        ("e2,river", "is not JSON"),
    ],
)
def test_a_malformed_line_of_what_was_published_is_named(tmp_path: Path, bad: str, complaint: str) -> None:
    with pytest.raises(InvalidInput, match=rf"log\.jsonl, line 2: {complaint}"):
        read_published(log(tmp_path, '{"event": "e1", "region": "forest"}', bad))
