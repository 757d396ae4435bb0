"""Rows of subscribers and regions, as people write them."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest

from placement.planning.reading import MembershipFile, read_membership, read_rates
from sequencing.errors import InvalidInput
from sequencing.membership import Membership

WORLD = Membership.of({"ann": ["forest", "river"], "bob": ["river"]}, known_regions=["desert"])
JSON_ROWS = """
{"subscriber": "ann", "region": "forest"}
{"region": "river", "subscriber": "ann", "since": 3}
{"subscriber": "bob", "region": "river"}
{"subscriber": null, "region": "desert"}
"""


def read(directory: Path, text: str | bytes, name: str = "world.csv", *, skip_bad: bool = False) -> MembershipFile:
    file = directory / name
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_membership(file, skip_bad=skip_bad)


@pytest.mark.parametrize(
    "text",
    [
        "subscriber,region\nann,forest\nann,river\nbob,river\n,desert\n",
        "ann,forest\nann,river\nbob,river\n,desert",
        "\ufeffsubscriber,region\r\nann,forest\r\nann,river\r\n\r\nbob,river\r\n,desert\r\n",
        "since,region,subscriber\n1,forest,ann\n2,river,ann\n3,river,bob\n4,desert,\n",
        'Subscriber, Region\n"ann", "forest"\nann, river\nbob,"river"\n"",desert\n',
        JSON_ROWS,
    ],
    ids=["header", "no header", "windows", "columns in any order", "quotes and blanks", "json lines"],
)
def test_a_membership_is_read_in_each_form(tmp_path: Path, text: str) -> None:
    read_file = read(tmp_path, text, "world")
    assert read_file.membership == WORLD
    assert (read_file.rows, read_file.duplicates, read_file.skipped.count) == (4, 0, 0)


def test_gzip_is_read(tmp_path: Path) -> None:
    packed = gzip.compress(b"ann,forest\nann,river\nbob,river\n,desert\n")
    assert read(tmp_path, packed, "world.csv.gz").membership == WORLD
    assert read(tmp_path, gzip.compress(b'{"subscriber": "", "region": "x"}'), "world.jsonl.gz").rows == 1


def test_the_name_of_a_file_decides_before_its_first_letter(tmp_path: Path) -> None:
    assert read(tmp_path, "{ann,{forest\n", "world.csv").membership == Membership.of({"{ann": ["{forest"]})
    with pytest.raises(InvalidInput, match="line 1: is not JSON"):
        read(tmp_path, "ann,forest\n", "world.jsonl")


def test_numbers_are_names_too(tmp_path: Path) -> None:
    rows = '{"subscriber": 7, "region": "a"}\n{"subscriber": "7", "region": 12}\n'
    assert read(tmp_path, rows, "world.jsonl").membership == Membership.of({"7": ["a", "12"]})


@pytest.mark.parametrize("text", ["", "\n\n", "subscriber,region\n"])
def test_a_file_without_rows_is_an_empty_world(tmp_path: Path, text: str) -> None:
    assert read(tmp_path, text).membership == Membership.of({})


def test_rows_that_are_there_twice_count_once(tmp_path: Path) -> None:
    read_file = read(tmp_path, "s,a\nt,a\ns,a\ns,a\n,a\n")
    assert read_file.membership == Membership.of({"s": "a", "t": "a"})
    assert (read_file.rows, read_file.duplicates) == (5, 2)


BAD = [
    ("s,a\ns\n", 2, "1 cell, but a row without a header has 2"),
    ("s,a\ns,a,b\n", 2, "3 cells, but"),
    ("subscriber,region,x\n\ns,a\n", 3, "2 cells, but the header has 3"),
    ("s,a\ns,\n", 2, "a region must not be empty"),
    ("s,a\n,\n", 2, "a region must not be empty"),
    ("s,a\nt,b\x07\n", 2, "a region must not contain control characters"),
    ("s,a\n" + "x" * 201 + ",a\n", 2, "a connection name has at most 200 bytes"),
    ('s,a\n"s,b\n', 2, "the quotes do not match"),
    (b"s,a\n\xff,b\n", 2, "is not UTF-8"),
]
BAD_JSON = [
    ('{"subscriber": "s", "region": "a"}\n{"subscriber": "s"\n', 2, "is not JSON"),
    ('{"subscriber": "s", "region": "a"}\n["s", "a"]\n', 2, "is not an object with subscriber and region"),
    ('{"subscriber": "s", "region": "a"}\n{"subscriber": "s"}\n', 2, "has no region"),
    ('{"region": "a"}\n', 1, "has no subscriber"),
    ('{"subscriber": "s", "region": ["a"]}\n', 1, "region is neither a text nor a number"),
    ('{"subscriber": true, "region": "a"}\n', 1, "subscriber is neither a text nor a number"),
    ('{"subscriber": "s", "region": null}\n', 1, "a region must not be empty"),
]


@pytest.mark.parametrize(("text", "line", "complaint"), BAD)
def test_a_malformed_row_is_an_error_that_names_file_and_line(
    tmp_path: Path, text: str | bytes, line: int, complaint: str
) -> None:
    with pytest.raises(InvalidInput, match=re.escape(complaint)) as raised:
        read(tmp_path, text)
    assert str(raised.value).startswith(f"{tmp_path / 'world.csv'}, line {line}: ")


@pytest.mark.parametrize(("text", "line", "complaint"), BAD_JSON)
def test_a_malformed_object_is_an_error_that_names_file_and_line(
    tmp_path: Path, text: str, line: int, complaint: str
) -> None:
    with pytest.raises(InvalidInput, match=re.escape(complaint)) as raised:
        read(tmp_path, text, "world.jsonl")
    assert str(raised.value).startswith(f"{tmp_path / 'world.jsonl'}, line {line}: ")


def test_malformed_rows_can_be_counted_instead(tmp_path: Path) -> None:
    read_file = read(tmp_path, b's,a\ns\n"t\n\xff,b\nt,\nt,a\n', skip_bad=True)
    assert read_file.membership == Membership.of({"s": "a", "t": "a"})
    assert (read_file.rows, read_file.skipped.count) == (2, 4)
    assert read_file.skipped.first is not None
    assert "line 2: 1 cell" in read_file.skipped.first


@pytest.mark.parametrize("header", ["subscriber,place", "region,subscriber,region"])
@pytest.mark.parametrize("skip_bad", [True, False])
def test_a_header_that_lacks_a_column_is_an_error_even_when_rows_may_be_bad(
    tmp_path: Path, header: str, skip_bad: bool
) -> None:
    with pytest.raises(InvalidInput, match="line 1: the header needs the columns subscriber and region once"):
        read(tmp_path, f"{header}\na,b\n", skip_bad=skip_bad)


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="cannot be read"):
        read_membership(tmp_path / "nowhere.csv")


def test_progress_is_told_now_and_then(tmp_path: Path) -> None:
    file = tmp_path / "world.csv"
    file.write_text("".join(f"s{number},a\n" for number in range(120_000)))
    told: list[int] = []
    read_membership(file, on_progress=told.append)
    assert told == [50_000, 50_000]


def test_rates_are_read(tmp_path: Path) -> None:
    file = tmp_path / "rates.csv"
    file.write_text("region,rate\nforest,2.5\nriver,0\nforest,3\n")
    assert read_rates(file) == {"forest": 3.0, "river": 0.0}


@pytest.mark.parametrize("rate", ["fast", "-1", "nan", "inf", ""])
def test_a_rate_is_a_number_of_events(tmp_path: Path, rate: str) -> None:
    file = tmp_path / "rates.csv"
    file.write_text(f"forest,{rate}\n")
    with pytest.raises(InvalidInput, match="line 1: the rate of 'forest' is not a number of events/s"):
        read_rates(file)
