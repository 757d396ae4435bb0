"""mypy --strict and pyright accept each Python block of the documentation.

A block that awaits outside a function is taken for the inside of one that has the names of `AROUND`.
"""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from collections.abc import Container
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "clients").glob("*/README.md"))]
BLOCK = re.compile(r"^ *```py(?:thon)?\n.*?^ *```", re.MULTILINE | re.DOTALL)
SIGNATURES = "api.md"
"""A page of signatures, not of programs."""
AROUND = """\
from typing import Any

import gamecast


async def inside(
    client: gamecast.Client, game: gamecast.Client, arrival: gamecast.Event, goblin: object, sword: str, boat: str
) -> None:
"""
ANY = "--ignore-missing-imports", "--allow-subclassing-any", "--allow-untyped-decorators"
"""Django, locust, python-socketio and Evennia have no types."""
FOLDERS = {"gamecast.analytics": "analytics", "gamecast.loadtest": "loadtest"}
"""Packages of the wheel → where they are in the tree."""


def blocks() -> dict[str, str]:
    """Return file name → program."""
    found: dict[str, str] = {}
    for page in PAGES:
        if page.name == SIGNATURES:
            continue
        for number, block in enumerate(BLOCK.findall(page.read_text(encoding="utf-8"))):
            _, _, program = textwrap.dedent(block).removesuffix("```").partition("\n")
            named = re.match(r"# (\w+\.py)\n", program)
            name = named[1] if named else f"block_{number}.py"
            folder = re.sub(r"\W", "_", page.relative_to(ROOT).with_suffix("").as_posix())
            if re.search(r"^(async with|async for|await) ", program, re.MULTILINE):
                program = AROUND + textwrap.indent(program, "    ")
            for of_wheel, of_tree in FOLDERS.items():
                program = program.replace(f"from {of_wheel} import", f"from {of_tree} import")
            found[f"{folder}/{name}"] = program
    return {name: beside(name.partition("/")[0], program, found) for name, program in found.items()}


def beside(folder: str, program: str, found: Container[str]) -> str:
    """Return a program that imports the others of its page by their folder's name."""

    def imported(match: re.Match[str]) -> str:
        return f"from {folder}.{match[1]} import" if f"{folder}/{match[1]}.py" in found else match[0]

    return re.sub(r"^from (\w+) import", imported, program, flags=re.MULTILINE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("snippets")
    for name, program in blocks().items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(program, encoding="utf-8")
    return folder


def test_there_are_programs_of_many_pages() -> None:
    assert len({name.partition("/")[0] for name in blocks()}) >= 12


def test_mypy_accepts_every_block(folder: Path) -> None:
    # Programs of two pages may have one name, so their folder is part of it.
    options = ("--strict", "--follow-imports=silent", "--explicit-package-bases", *ANY)
    programs = [str(path.relative_to(folder)) for path in sorted(folder.glob("*/*.py"))]
    cache = f"--cache-dir={folder / 'cache'}"
    check([sys.executable, "-m", "mypy", *options, "--config-file=", cache, *programs], folder)


def test_pyright_accepts_every_block(folder: Path) -> None:
    settings = '{"typeCheckingMode": "standard", "reportMissingImports": "none", "reportAttributeAccessIssue": "error"}'
    (folder / "pyrightconfig.json").write_text(settings, encoding="utf-8")
    check([sys.executable, "-m", "basedpyright", "--pythonpath", sys.executable], folder)


def test_mypy_refuses_to_take_all_that_is_no_event_for_a_gap(tmp_path: Path) -> None:
    program = """\
import gamecast


def shown(items: list[gamecast.Item]) -> None:
    for item in items:
        if isinstance(item, gamecast.Event):
            print(item.payload)
        else:
            print(item.first_sequence)


async def show(client: gamecast.Client) -> None:
    shown(await client.fetch())
    shown([await anext(client)])
    async for batch in client.batches():
        shown(batch)
"""
    (tmp_path / "program.py").write_text(program, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--config-file=", "program.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    refused = re.findall(r'^program.py:(\d+): error: Item "(\w+)"', done.stdout, re.MULTILINE)
    assert refused == [("9", "State"), ("9", "Presence")], done.stdout + done.stderr


def check(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
