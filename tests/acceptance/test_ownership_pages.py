"""The programs of `docs/ownership.md` and `docs/prediction.md` run as they stand, on one node and on three."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.programs import printed_by

DOCS = Path(__file__).parents[2] / "docs"
PROGRAMS = {
    block.partition("\n")[0].removeprefix("# "): block
    for page in ("ownership.md", "prediction.md")
    for block in re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), flags=re.DOTALL)
}
PRINTED = {
    "walk.py": """\
river-1 was to have it, with {'hp': 9}
forest-1 is refused
it has an owner: True
forest forest-1 → forest-1
forest forest-1 → {'walks': 'to the water'}
forest+river forest-1 → river-1
river river-2 → river-2
river river-2 → {'swims': True}
river river-2 → released
""",
    "push.py": "they agree\nTrue\n",
    "prediction.py": "",
}


def test_the_pages_have_these_programs() -> None:
    assert PROGRAMS.keys() == PRINTED.keys()


@pytest.mark.parametrize("nodes", [1, 3])
@pytest.mark.parametrize("name", ["push.py", "walk.py"])
def test_each_program_prints_what_the_page_promises(tmp_path: Path, name: str, nodes: int) -> None:
    for program, text in PROGRAMS.items():
        (tmp_path / program).write_text(text, encoding="utf-8")
    assert printed_by(tmp_path, name, nodes=nodes) == PRINTED[name]
