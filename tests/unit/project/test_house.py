"""The house as CONTRIBUTING draws it: what `lint-imports` cannot say of it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import grimp
import networkx as nx
import pytest

ROOT = Path(__file__).parents[3]
FOLDERS = (
    *("laboratory", "cli", "loadtest", "demo", "gateway", "launcher", "gamecast", "adapters", "analytics", "placement"),
    *("classic", "sequencing"),
)


@pytest.fixture(scope="module")
def imports() -> grimp.ImportGraph:
    """Every import of every file, also those within functions and those that only type checkers follow."""
    return grimp.build_graph(*FOLDERS, cache_dir=None, exclude_type_checking_imports=False)


def test_no_files_import_each_other_in_a_circle(imports: grimp.ImportGraph) -> None:
    arrows = nx.DiGraph(
        (file, other) for file in imports.modules for other in imports.find_modules_directly_imported_by(file)
    )
    # The one door up is the command's own, which nobody imports.
    arrows.remove_edges_from([("gamecast.__main__", "cli.main")])

    assert [sorted(circle) for circle in nx.strongly_connected_components(arrows) if len(circle) > 1] == []


def test_nobody_imports_the_launcher(imports: grimp.ImportGraph) -> None:
    assert imports.find_modules_that_directly_import("gamecast.__main__") == set()


def test_every_file_that_contributing_names_is_there() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    named = re.findall(rf"`((?:{'|'.join((*FOLDERS, 'tests', 'docs'))})/[\w/.]+)`", text)

    assert len(named) > 20
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_every_room_of_contributing_s_table_is_there() -> None:
    rows = re.findall(r"^\| `(\w+)/` \| (.*?) \|", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE)

    assert {folder for folder, _ in rows} == set(FOLDERS)
    rooms = [ROOT / folder / room for folder, named in rows for room in re.findall(r"`([\w./]+)`", named)]
    assert [str(room) for room in rooms if not room.exists()] == []


def test_every_folder_of_code_says_what_it_holds() -> None:
    silent = [
        str(file.relative_to(ROOT))
        for folder in FOLDERS
        for file in (ROOT / folder).rglob("__init__.py")
        if not ast.get_docstring(ast.parse(file.read_text()))
    ]
    assert silent == []
