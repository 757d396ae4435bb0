"""The program of `docs/updates.md` runs as it stands, on one node and on three."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from adapters.embedded.server import EmbeddedServer
from tests.patience import scaled

PAGE = (Path(__file__).parents[2] / "docs" / "updates.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("nodes", [1, 3])
def test_the_program_prints_what_the_page_promises(tmp_path: Path, nodes: int) -> None:
    [program] = re.findall(r"```python\n# goblin\.py\n(.*?)```", PAGE, flags=re.DOTALL)
    (tmp_path / "goblin.py").write_text(program, encoding="utf-8")
    with EmbeddedServer() as server:
        url = server.url if nodes == 1 else "memory://game?nodes=3"
        command = [sys.executable, "goblin.py", url]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=scaled(60), check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "{'spawn': 'goblin'}\n{'goblin-3': {'x': 9}}\n", done.stdout
