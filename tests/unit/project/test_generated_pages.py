"""The pages of the reference are printed from the code, and that of the API has everything that `gamecast` exports."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import gamecast

DOCS = Path(__file__).resolve().parents[3] / "docs"


def printed(name: str, *options: str) -> str:
    command = [sys.executable, "-X", "utf8", str(DOCS / f"make_{name}.py"), *options]
    return subprocess.run(command, capture_output=True, check=True, encoding="utf-8").stdout


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("api", "#### Client.publish"),
        ("states", "stateDiagram"),
        ("tables", "### `deliveries`"),
        ("messages", "## Codes of errors"),
        ("commands", "| [gamecast plan](commands/plan.md) | Plan a sequencing network"),
        ("metrics", "gamecast_node_up"),
    ],
)
def test_a_page_is_printed(name: str, part: str) -> None:
    page = printed(name)
    assert page.startswith("# ")
    assert part in page


def test_a_command_has_a_page_with_all_below_it() -> None:
    page = printed("commands", "plan")
    assert page.startswith("# gamecast plan\n")
    assert re.findall(r"^## (.*)$", page, re.MULTILINE) == [
        f"gamecast plan {name}" for name in ("check", "improve", "places", "size")
    ]


def test_the_types_of_messages_are_what_their_script_prints() -> None:
    types = DOCS.parent / "gateway" / "client" / "messages.d.ts"
    assert printed("messages", "--types") == types.read_text(encoding="utf-8"), (
        f"run `.venv/bin/python docs/make_messages.py --types > {types.relative_to(DOCS.parent)}`"
    )


def test_the_page_has_everything_that_gamecast_exports() -> None:
    page = printed("api")
    headings = re.findall(r"^### gamecast\.(\w+)$", page, re.MULTILINE)
    rows = re.findall(r"^\| (?:&nbsp;)*`(\w+)` \|", page, re.MULTILINE)
    assert sorted([*headings, *rows]) == sorted(gamecast.__all__)
