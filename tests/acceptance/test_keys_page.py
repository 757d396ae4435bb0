"""The programs of `docs/keys.md` run as they stand, on one node and on three."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.programs import printed_by

PAGE = (Path(__file__).parents[2] / "docs" / "keys.md").read_text(encoding="utf-8")
PROGRAMS = {
    block.partition("\n")[0].removeprefix("# "): block
    for block in re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
}
PRINTED = {
    "sword.py": r"ana has the sword\nbo sees that ana was first\n|ana sees that bo was first\nbo has the sword\n",
    "chest.py": r"they agree\n",
    "late.py": r"\{'gate': 'open'\}\n\{'gate': 'shut'\}\n",
    "arrow.py": r"bo \['arrow in forest', 'silence in forest'\]\ncy \['arrow in river', 'splash in river'\]\n",
}


def test_the_page_has_these_programs() -> None:
    assert PROGRAMS.keys() == PRINTED.keys()


@pytest.mark.parametrize("nodes", [1, 3])
@pytest.mark.parametrize("name", sorted(PRINTED))
def test_each_program_prints_what_the_page_promises(tmp_path: Path, name: str, nodes: int) -> None:
    (tmp_path / name).write_text(PROGRAMS[name], encoding="utf-8")
    printed = printed_by(tmp_path, name, nodes=nodes)
    assert re.fullmatch(PRINTED[name], printed), printed
