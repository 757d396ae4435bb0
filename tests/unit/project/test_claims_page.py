"""Each promise of `docs/claims.md` has tests that exist, and each of its runs a command."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parents[3] / "docs"
TEXT = (DOCS / "claims.md").read_text(encoding="utf-8")
ROWS = [line for line in TEXT.splitlines() if re.match(r"\| \d+ \| ", line)]
RUN = re.compile(r"- \*\*(\w)\*\*(?: and \*\*(\w)\*\*)?")


def test_each_promise_has_a_test_that_is_there() -> None:
    assert len(ROWS) >= 12
    for row in ROWS:
        named = re.findall(r"\[\w+\]\((\.\./tests/[\w/]+\.py)\) `(test_\w+)`", row)
        assert named, row
        for place, test in named:
            assert f"def {test}(" in (DOCS / place).read_text(encoding="utf-8"), (place, test)


def test_each_verdict_is_one_of_three() -> None:
    tables = re.findall(r"^\|.*\|$", TEXT[TEXT.index("## Processes, connections") :], re.MULTILINE)
    cells = [cell.strip() for row in tables for cell in row.strip("|").split("|")[1:]]
    judged = [cell for cell in cells if re.search(r"kept|announced|promised|waits|late|as ", cell)]
    assert len(judged) > 100
    assert all(re.search(r"\b(kept|announced|not promised|waits|as (?:3|for))", cell) for cell in judged), judged


def test_each_run_that_a_promise_names_has_its_words_and_its_command() -> None:
    runs = {name for row in ROWS for name in re.findall(r"\b[A-Z]\b", row.rsplit("|", 2)[1])}
    told = {name for pair in RUN.findall(TEXT) for name in pair if name}
    assert runs <= told
    commands = TEXT[TEXT.index("## How to check it yourself") :]
    assert all(re.search(rf"# {name}\b", commands) for name in runs)
