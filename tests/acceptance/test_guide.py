"""The programs of `docs/guide.md` and the world of `docs/nodes.md` run as they stand, and print what the pages show."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from adapters.embedded.server import EmbeddedServer
from tests.patience import scaled

DOCS = Path(__file__).parents[2] / "docs"
GUIDE, NODES = ((DOCS / f"{page}.md").read_text(encoding="utf-8") for page in ("guide", "nodes"))
PROGRAMS = dict(re.findall(r"```python\n# (\w+\.py)\n(.*?)```", GUIDE, flags=re.DOTALL))
PRINTED = ["the player is at 10\n", *re.findall(r"```text\n(.*?)```", GUIDE, flags=re.DOTALL)]


def run(command: list[str], folder: Path, **variables: str) -> str:
    env = {**os.environ, **variables}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=scaled(90))
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(("name", "printed"), list(zip(PROGRAMS, PRINTED, strict=True)))
def test_a_program_prints_what_the_page_shows(name: str, printed: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(PROGRAMS[name], encoding="utf-8")
    assert f"It prints `{PRINTED[0].strip()}`" in GUIDE
    with EmbeddedServer() as server:
        assert run([sys.executable, name], tmp_path, GAMECAST_URL=server.url) == printed


def test_the_world_of_two_places_takes_two_nodes(tmp_path: Path) -> None:
    for name, rows in re.findall(r"`(\w+\.csv)`[^\n]*\n\n```csv\n(.*?)```", NODES, flags=re.DOTALL):
        (tmp_path / name).write_text(rows, encoding="utf-8")
    [command] = re.findall(r"```sh\n(gamecast plan .*?)\n```", NODES)
    script = str(Path(sysconfig.get_path("scripts"), "gamecast"))
    printed = run([script, *command.split()[1:]], tmp_path)
    assert re.search(r"^→ +2 ", printed, re.MULTILINE), printed
    assert "Nodes stand n1 on eu, n2 on us" in " ".join(printed.split())
