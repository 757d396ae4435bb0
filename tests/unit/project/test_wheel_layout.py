"""The rewriting that lays the flat tree under `gamecast/` in the wheel."""

import ast
from textwrap import dedent

import pytest
from hatchling.builders.plugin.interface import IncludedFile
from hypothesis import given
from hypothesis import strategies as st

from wheel_layout import LayoutError, moved_modules, refuse_collisions, rewrite_imports

MODULES = frozenset({"sequencing", "sequencing.atoms", "sequencing.checkers", "adapters", "adapters.memory"})


def rewrite(source: str) -> str:
    return rewrite_imports(dedent(source).encode(), file_name="some.py", modules=MODULES).decode()


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("from sequencing.atoms import Atom", "from gamecast.sequencing.atoms import Atom"),
        ("from sequencing import atoms", "from gamecast.sequencing import atoms"),
        ("from  \tsequencing import atoms", "from  \tgamecast.sequencing import atoms"),
        ("from \\\n  sequencing import atoms", "from \\\n  gamecast.sequencing import atoms"),
        ("from sequencing.atoms import *", "from gamecast.sequencing.atoms import *"),
        ("import sequencing as s", "import gamecast.sequencing as s"),
        ("import sequencing.atoms as a", "import gamecast.sequencing.atoms as a"),
        (
            "import os, sequencing.atoms as a, adapters as b",
            "import os, gamecast.sequencing.atoms as a, gamecast.adapters as b",
        ),
        (
            "import os, \\\n    sequencing.atoms as a, \\\n    re",
            "import os, \\\n    gamecast.sequencing.atoms as a, \\\n    re",
        ),
        (
            "from sequencing.atoms import (  # why\n    Atom,\n    sequencing as s,\n)\n",
            "from gamecast.sequencing.atoms import (  # why\n    Atom,\n    sequencing as s,\n)\n",
        ),
    ],
)
def test_an_import_of_a_moved_module_gets_the_prefix(source: str, expected: str) -> None:
    assert rewrite(source) == expected


@pytest.mark.parametrize(
    "source",
    [
        "from . import sequencing",
        "from .sequencing import atoms",
        "from ..adapters.memory import Memory",
        "from sequencing_tools import atoms",
        "import sequencingx.atoms as a",
        "from gamecast import sequencing",
        "from gamecast.sequencing.atoms import Atom",
        "from networkx.adapters import memory",
        "import os.path",
        "# from sequencing.atoms import Atom",
        "'from sequencing.atoms import Atom'",
        '"""Text.\n\nfrom sequencing.atoms import Atom\nimport sequencing\n"""',
        "sequencing = 'from sequencing import atoms'; adapters = sequencing.upper()",
        "yield_from = [sequencing for sequencing in ()]",
        "",
    ],
)
def test_everything_else_stays_as_it_is(source: str) -> None:
    assert rewrite(source) == source


def test_imports_are_found_inside_functions_and_blocks() -> None:
    source = """\
        from typing import TYPE_CHECKING

        if TYPE_CHECKING:
            from sequencing.atoms import Atom

        def late():
            try:
                import adapters.memory as memory; from sequencing import atoms
            except ImportError: from adapters import memory
            return memory
    """
    expected = """\
        from typing import TYPE_CHECKING

        if TYPE_CHECKING:
            from gamecast.sequencing.atoms import Atom

        def late():
            try:
                import gamecast.adapters.memory as memory; from gamecast.sequencing import atoms
            except ImportError: from gamecast.adapters import memory
            return memory
    """
    assert rewrite(source) == dedent(expected)


def test_characters_of_several_bytes_before_an_import_do_not_shift_it() -> None:
    source = 'név = "→ 🎲\u2028"; from sequencing import atoms; ű = 1; import adapters as a'
    expected = 'név = "→ 🎲\u2028"; from gamecast.sequencing import atoms; ű = 1; import gamecast.adapters as a'
    assert rewrite(source) == expected


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
def test_line_ends_and_the_byte_order_mark_are_kept(line_end: str) -> None:
    source = line_end.join(["\ufefffrom sequencing import atoms", 'text = """', '"""', "\fimport adapters as a", ""])
    expected = source.replace("from ", "from gamecast.").replace("import adapters", "import gamecast.adapters")
    assert rewrite_imports(source.encode(), file_name="some.py", modules=MODULES).decode() == expected


@pytest.mark.parametrize("source", ["import sequencing", "import sequencing.atoms", "import os, adapters.memory"])
def test_an_import_that_binds_the_bare_folder_name_stops_the_build(source: str) -> None:
    with pytest.raises(LayoutError, match=r"some\.py:2: write 'import \S+ as …' or 'from … import …'"):
        rewrite(f"\n{source}\n")


@pytest.mark.parametrize(
    "source",
    [
        'subprocess.run([python, "-m", "sequencing.atoms"])',
        'importlib.import_module("adapters")',
        'files("adapters").joinpath("step.lua")',
        '__import__("sequencing.atoms")',
    ],
)
def test_a_string_that_names_a_moved_module_stops_the_build(source: str) -> None:
    with pytest.raises(LayoutError, match=r"some\.py:2: '[a-z.]+' names a module"):
        rewrite(f"\n{source}\n")


def test_a_word_that_only_looks_like_a_module_is_let_through() -> None:
    source = 'logging.getLogger("adapters"), metrics["sequencing.unknown"], folder / "adapters"'
    assert rewrite(source) == source


statements = st.sampled_from(
    [
        "from sequencing.atoms import (\n    Atom,\n)",
        "import adapters.memory as m, os",
        "from \\\n sequencing import atoms",
        "x = 'é🎲'; import sequencing as s; y = x",
        "def f():\n    from adapters import memory\n    return 'from adapters import memory'",
        "from .adapters import memory",
        "'''\nfrom sequencing import atoms'''",
        "# ünïcode",
        "",
    ]
)


@given(st.lists(statements), st.sampled_from(["\n", "\r\n"]))
def test_the_result_means_the_same_but_for_the_prefixes(lines: list[str], line_end: str) -> None:
    source = "\n".join(lines).replace("\n", line_end).encode()
    rewritten = rewrite_imports(source, file_name="some.py", modules=MODULES)
    assert ast.dump(ast.parse(rewritten)) == ast.dump(WithPrefixes().visit(ast.parse(source)))
    assert rewritten.replace(b"gamecast.", b"") == source


class WithPrefixes(ast.NodeTransformer):
    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.ImportFrom:
        if node.level == 0:
            node.module = f"gamecast.{node.module}"
        return node

    def visit_alias(self, node: ast.alias) -> ast.alias:
        if node.name.startswith(("adapters", "sequencing")):
            node.name = f"gamecast.{node.name}"
        return node


def included(source: str, place: str) -> IncludedFile:
    return IncludedFile(f"/clone/{source}", source, place)


def test_modules_are_those_whose_files_move() -> None:
    files = [
        included("gamecast/events.py", "gamecast/events.py"),
        included("sequencing/checkers/__init__.py", "gamecast/sequencing/checkers/__init__.py"),
        included("adapters/memory.py", "gamecast/adapters/memory.py"),
        included("adapters/redis/step.lua", "gamecast/adapters/redis/step.lua"),
    ]
    assert moved_modules(files) == {
        "adapters",
        "adapters.memory",
        "adapters.redis",
        "sequencing",
        "sequencing.checkers",
        "sequencing.checkers.__init__",
    }


def test_two_files_cannot_take_one_place() -> None:
    files = [
        included("gamecast/adapters/memory.py", "gamecast/adapters/memory.py"),
        included("adapters/memory.py", "gamecast/adapters/memory.py"),
    ]
    with pytest.raises(LayoutError, match=r"would both be installed as gamecast/adapters/memory\.py"):
        refuse_collisions(files)


def test_a_module_and_a_folder_cannot_have_one_name() -> None:
    files = [
        included("gamecast/analytics.py", "gamecast/analytics.py"),
        included("analytics/__init__.py", "gamecast/analytics/__init__.py"),
    ]
    with pytest.raises(LayoutError, match=r"analytics/__init__\.py would both be installed as the module"):
        refuse_collisions(files)


def test_no_file_can_stand_outside_the_package() -> None:
    with pytest.raises(LayoutError, match="would be installed outside gamecast"):
        refuse_collisions([included("sequencing/atoms.py", "sequencing/atoms.py")])
