"""The programs of `docs/updates.md` and `docs/presence.md` run as they stand, on one node and on three."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.programs import printed_by

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
    assert printed_by(tmp_path, name, nodes=nodes) == PRINTED[page, name]
