"""`docs/api.md` is what `docs/make_api.py` prints, and has everything that `gamecast` exports."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import gamecast

DOCS = Path(__file__).resolve().parents[3] / "docs"
PAGE = (DOCS / "api.md").read_text(encoding="utf-8")


def test_the_page_is_what_the_script_prints() -> None:
    printed = subprocess.run(
        [sys.executable, "-X", "utf8", str(DOCS / "make_api.py")], capture_output=True, check=True, encoding="utf-8"
    ).stdout
    assert printed == PAGE, "run `.venv/bin/python docs/make_api.py > docs/api.md`"


def test_the_page_has_everything_that_gamecast_exports() -> None:
    headings = re.findall(r"^### gamecast\.(\w+)$", PAGE, re.MULTILINE)
    rows = re.findall(r"^\| (?:&nbsp;)*`(\w+)` \|", PAGE, re.MULTILINE)
    assert sorted([*headings, *rows]) == sorted(gamecast.__all__)
