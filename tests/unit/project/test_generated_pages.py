"""Generated pages are what their scripts print, and `docs/api.md` has everything that `gamecast` exports."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import gamecast

DOCS = Path(__file__).resolve().parents[3] / "docs"
PAGE = (DOCS / "api.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "page"),
    [
        (["api"], "docs/api.md"),
        (["states"], "docs/states.md"),
        (["messages"], "docs/messages.md"),
        (["commands"], "docs/commands.md"),
        (["metrics"], "docs/metrics.md"),
        (["messages", "--types"], "adapters/gateway/client/messages.d.ts"),
    ],
)
def test_a_generated_page_is_what_its_script_prints(arguments: list[str], page: str) -> None:
    name, *options = arguments
    printed = subprocess.run(
        [sys.executable, "-X", "utf8", str(DOCS / f"make_{name}.py"), *options],
        capture_output=True,
        check=True,
        encoding="utf-8",
    ).stdout
    assert printed == (DOCS.parent / page).read_text(encoding="utf-8"), (
        f"run `.venv/bin/python docs/make_{name}.py {' '.join(options)} > {page}`"
    )


def test_the_page_has_everything_that_gamecast_exports() -> None:
    headings = re.findall(r"^### gamecast\.(\w+)$", PAGE, re.MULTILINE)
    rows = re.findall(r"^\| (?:&nbsp;)*`(\w+)` \|", PAGE, re.MULTILINE)
    assert sorted([*headings, *rows]) == sorted(gamecast.__all__)
