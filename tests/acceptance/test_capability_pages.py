"""The programs of `docs/updates.md` and `docs/presence.md` run as they stand, on one node and on three."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from adapters.embedded.server import EmbeddedServer
from tests.patience import scaled

DOCS = Path(__file__).parents[2] / "docs"
PRINTED = {
    ("updates", "goblin.py"): "{'spawn': 'goblin'}\n{'goblin-3': {'x': 9}}\n",
    ("presence", "hall.py"): "Ana arrives ['ana']\nBo arrives ['ana', 'bo']\nbo says hello\nBo leaves ['ana']\n",
}


@pytest.mark.parametrize("nodes", [1, 3])
@pytest.mark.parametrize(("page", "name"), sorted(PRINTED))
def test_the_program_prints_what_the_page_promises(tmp_path: Path, page: str, name: str, nodes: int) -> None:
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    [program] = re.findall(rf"```python\n# {re.escape(name)}\n(.*?)```", text, flags=re.DOTALL)
    (tmp_path / name).write_text(program, encoding="utf-8")
    with EmbeddedServer() as server:
        url = server.url if nodes == 1 else "memory://game?nodes=3"
        done = subprocess.run(
            [sys.executable, name],
            cwd=tmp_path,
            env={**os.environ, "GAMECAST_URL": url},
            capture_output=True,
            text=True,
            timeout=scaled(60),
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout == PRINTED[page, name], done.stdout
