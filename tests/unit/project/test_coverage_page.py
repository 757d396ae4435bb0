"""The table of coverage: its links and tests exist, each row has a verdict, and the page counts them."""

from __future__ import annotations

import csv
import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "coverage.md"
TABLE = PAGE.with_suffix(".csv")
SOURCES = ("Lumezanu 2006", "Herlihy 2000", "Kshemkalyani 2008", "CMU 15-440", "Gupta 2019")
COLUMNS = ["item", "where", "test", "verdict"]


def as_text() -> str:
    """Return the table with a section for each source, a line for each row."""
    with TABLE.open(encoding="utf-8", newline="") as lines:
        found = list(csv.DictReader(lines))
    return "".join(
        f"## {source}\n"
        + "".join(f"| {' | '.join(row[name] for name in COLUMNS)} |\n" for row in found if row["source"] == source)
        for source in dict.fromkeys(row["source"] for row in found)
    )


TEXT = as_text()
VERDICT = re.compile(r"(?P<kind>here|here, differently: \S.*|not here: \S.*)")
LINK = re.compile(r"\[[^\]]*\]\((?P<to>[^)\s]+)\)")
ROWS_MIN = 10


def missing_files(text: str) -> list[str]:
    """Return the relative links that lead to no file."""
    links = [match["to"].partition("#")[0] for match in LINK.finditer(text)]
    return [to for to in links if to and "://" not in to and not (PAGE.parent / to).is_file()]


def unknown_tests(text: str) -> list[str]:
    """Return the tests in code that the test file linked before them in their line does not define."""
    unknown = []
    for line in text.splitlines():
        defined: set[str] = set()
        for match in re.finditer(rf"{LINK.pattern}|`(?P<test>test_\w+)`", line):
            if match["test"] is None:
                file = PAGE.parent / match["to"].partition("#")[0]
                is_test = file.name.startswith("test_") and file.is_file()
                source = file.read_text(encoding="utf-8") if is_test else ""
                defined = set(re.findall(r"^\s*(?:async )?def (test_\w+)\(", source, re.MULTILINE))
            elif match["test"] not in defined:
                unknown.append(match["test"])
    return unknown


def rows(text: str) -> dict[str, list[list[str]]]:
    """Return section → the cells of each row of its tables of items."""
    found: dict[str, list[list[str]]] = {}
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        title, _, body = section.partition("\n")
        lines = [line.strip().removeprefix("|").removesuffix("|") for line in body.splitlines() if line[:1] == "|"]
        cells = [[cell.strip() for cell in line.split("|")] for line in lines]
        found[title] = [row for row in cells if row != COLUMNS and not all(re.fullmatch("-+", cell) for cell in row)]
    return found


def without_verdict(text: str) -> list[list[str]]:
    """Return the rows without four cells that are not empty, the last one of the three verdicts."""
    return [
        row
        for section in rows(text).values()
        for row in section
        if len(row) != len(COLUMNS) or not all(row) or not VERDICT.fullmatch(row[-1])
    ]


def test_each_link_leads_to_a_file() -> None:
    assert len(LINK.findall(TEXT)) > 200
    assert missing_files(TEXT + PAGE.read_text(encoding="utf-8")) == []


def test_each_named_test_is_in_the_file_beside_it() -> None:
    assert len(re.findall(r"`test_\w+`", TEXT)) > 100
    assert unknown_tests(TEXT) == []


def test_each_row_has_one_of_the_three_verdicts() -> None:
    assert without_verdict(TEXT) == []


@pytest.mark.parametrize("source", SOURCES)
def test_each_source_has_a_section_and_the_counts_that_the_page_says(source: str) -> None:
    verdicts = [row[-1].partition(":")[0] for row in rows(TEXT)[source]]
    assert len(verdicts) >= ROWS_MIN
    counts = Counter(verdicts)
    assert f"| {source} | {counts['here']} | {counts['here, differently']} | {counts['not here']} |" in PAGE.read_text(
        encoding="utf-8"
    )


def test_what_is_wrong_on_a_page_is_noticed() -> None:
    here = "[here](../tests/unit/project/test_coverage_page.py)"
    assert missing_files(f"{here} [gone](../gone.py) [out](https://example.org/)") == ["../gone.py"]
    known = "`test_each_link_leads_to_a_file`"
    assert unknown_tests(f"{here} {known} `test_gone` [other](coverage.md) {known}") == ["test_gone", known.strip("`")]
    table = "## One\n| item | where | test | verdict |\n|---|---|---|---|\n"
    wrong = ["", "perhaps", "not here", "here, differently:", "here: why"]
    page = table + "".join(f"| a | – | – | {verdict} |\n" for verdict in ["here", "not here: a reason", *wrong])
    assert [row[-1] for row in without_verdict(page)] == wrong
