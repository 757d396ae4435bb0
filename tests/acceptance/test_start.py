"""`docs/start.md` runs as it stands: each program is saved, type-checked and run, and prints what the page shows."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from adapters.embedded.server import EmbeddedServer
from tests.patience import scaled

ROOT = Path(__file__).parents[2]
START = (ROOT / "docs" / "start.md").read_text(encoding="utf-8")
SCRIPTS = Path(sysconfig.get_path("scripts"))

PROGRAMS = {
    block.partition("\n")[0].removeprefix("# "): block
    for block in re.findall(r"```python\n(.*?)```", START, flags=re.DOTALL)
}
"""File name, from the first line of each Python block → the block."""

SHOWN = dict(re.findall(r"```console\n\$ ([^\n]*)\n(.*?)```", START, flags=re.DOTALL))
"""Command of each console block → the output that the page shows."""

TOGETHER = (
    "gamecast up --nodes 1",
    "python server.py north hill forest river",
    "python server.py south forest river sea",
    "python players.py",
)
"""Commands that run at the same time, in several terminals."""

ALONE = tuple(command for command in SHOWN if command.startswith("python ") and command not in TOGETHER)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, program in PROGRAMS.items():
        (tmp_path / name).write_text(program, encoding="utf-8")
    return tmp_path


def test_the_page_has_the_programs_and_commands_that_these_tests_know() -> None:
    assert all(re.fullmatch(r"\w+\.py", name) for name in PROGRAMS), list(PROGRAMS)
    assert len(PROGRAMS) == START.count("```python\n")
    assert SHOWN.keys() == {*TOGETHER, *ALONE}
    run = {word for command in SHOWN for word in command.split() if word.endswith(".py")}
    assert run == PROGRAMS.keys()


@pytest.mark.parametrize("command", ALONE)
def test_a_program_prints_what_the_page_shows(command: str, folder: Path) -> None:
    with EmbeddedServer() as server:
        done = subprocess.run(
            arguments(command),
            cwd=folder,
            env=environment(server.url),
            capture_output=True,
            text=True,
            check=False,
            timeout=scaled(60),
        )
    assert (done.returncode, done.stdout) == (0, SHOWN[command]), done.stderr


@pytest.mark.parametrize("nodes", [1, 3])
def test_two_servers_on_the_network_of_gamecast_up_print_the_same_order(nodes: int, folder: Path) -> None:
    up, north, south, players = TOGETHER
    [shown] = re.findall(r"```text\n(.*?)```", START, flags=re.DOTALL)
    with running(up.replace("1", str(nodes)), folder, environment(None)) as up_output:
        ready = up_output.readline()
        url = url_in(ready)
        if nodes == 1:
            assert ready.replace(url, url_in(SHOWN[up])) + "…\n" == SHOWN[up]
        with (
            running(north, folder, environment(url)) as north_output,
            running(south, folder, environment(url)) as south_output,
        ):
            assert north_output.readline() == SHOWN[north]
            assert south_output.readline() == SHOWN[south]
            subprocess.run(arguments(players), cwd=folder, env=environment(url), check=True, timeout=scaled(60))
            orders = [output.read().splitlines() for output in (north_output, south_output)]

    assert orders[0] == orders[1]
    assert sorted(map(without_number, orders[0])) == sorted(map(without_number, shown.splitlines()))
    if nodes == 1:  # the page shows an order in which the players can have acted
        for player in ("ana", "ben"):
            assert acts(player, shown.splitlines()) == acts(player, orders[0])


def test_pyright_accepts_every_program(folder: Path) -> None:
    (folder / "pyrightconfig.json").write_text('{"typeCheckingMode": "strict"}', encoding="utf-8")
    check([sys.executable, "-m", "basedpyright", "--pythonpath", sys.executable], folder)


def test_pip_install_names_extras_that_exist() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        extras = tomllib.load(file)["project"]["optional-dependencies"]
    [named] = re.findall(r"pip install 'gamecast\[(.*?)\]'", START)
    assert set(named.split(",")) <= extras.keys()


def test_every_file_that_the_page_links_to_exists() -> None:
    linked = re.findall(r"\]\(([^)#:]+)", START)
    assert linked
    printed = {f"{path.stem.removeprefix('make_')}.md" for path in (ROOT / "docs").glob("make_*.py")}
    assert [name for name in linked if not (ROOT / "docs" / name).exists() and name not in printed] == []


def arguments(command: str) -> list[str]:
    """Return the command with this environment's programs."""
    program, *rest = command.split()
    return [sys.executable if program == "python" else str(SCRIPTS / program), *rest]


def environment(url: str | None) -> dict[str, str]:
    """Return the environment of a terminal in which ``GAMECAST_URL`` is set, or is not."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("GAMECAST_", "PYTEST_"))}
    return kept if url is None else {**kept, "GAMECAST_URL": url}


@contextmanager
def running(command: str, folder: Path, env: dict[str, str]) -> Iterator[IO[str]]:
    """Run a command in the background and yield its output; end it as Ctrl-C does if it still runs."""
    with subprocess.Popen(arguments(command), cwd=folder, env=env, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
            process.stdout.close()
            process.wait(timeout=scaled(30))


def check(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=scaled(110))
    assert done.returncode == 0, done.stdout + done.stderr


def url_in(text: str) -> str:
    [url] = re.findall(r"redis://127\.0\.0\.1:\d+", text)
    assert isinstance(url, str)
    return url


def without_number(line: str) -> str:
    return line.partition(" ")[2]


def acts(player: str, lines: list[str]) -> list[str]:
    """Return where a player acted, in order."""
    return [without_number(line) for line in lines if f" {player} " in line]
