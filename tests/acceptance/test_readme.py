"""The README's promises to a newcomer, kept."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.patience import scaled

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_lines_that_embed_it_run_as_they_stand() -> None:
    [program] = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=scaled(60)
    )
    assert (done.returncode, done.stderr) == (0, "")
    lines = [line.split(" sees ") for line in done.stdout.splitlines()]
    north, south = ([event for server, event in lines if server == name] for name in ("north", "south"))
    assert north == south
    assert sorted(north) == ["forest north an arrow flies", "river south a door opens"]


def test_every_file_that_it_links_to_is_there() -> None:
    linked = re.findall(r"\]\(([^)#:]+)\)", README)
    assert linked
    assert not [name for name in linked if not (ROOT / name).exists()]


def test_it_shows_the_two_commands() -> None:
    assert re.search(r"```sh\n\./dev demo .*\n\./dev test .*\n```", README)
