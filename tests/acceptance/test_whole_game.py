"""`docs/whole-game.md`: its commands print what the page shows, in its order, and excerpts are in the example."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from adapters.embedded.binary import find_redis_server
from adapters.embedded.ports import free_port
from tests.integration.browser import CHROMIUM, browser
from tests.patience import scaled, until, wait_until

ROOT = Path(__file__).parents[2]
GAME = ROOT / "examples" / "game"
PAGE = (ROOT / "docs" / "whole-game.md").read_text(encoding="utf-8")
PORTS = ("7001", "7002", "7003", "8000", "8080")
DONE_S_MAX = 60.0

STAY = re.compile(r"python (?:region_server|heroes|-m http)|gamecast gateway|.* &$")
"""Commands that go on, in a terminal of their own or in the background."""

ISLAND, MOOR = "python region_server.py island", "python region_server.py moor"
SERVERS = [f"python region_server.py {home}" for home in ("meadow", "forest", "river")]
HEROES = "python heroes.py ana bo"


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)


def commands() -> list[tuple[str, str]]:
    """Return each command and what the page shows that it prints."""
    return re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", "".join(blocks("console")), flags=re.MULTILINE)


class Machine:
    """One machine, with other ports than the page's."""

    def __init__(self, folder: Path) -> None:
        self.ports = {port: str(free_port()) for port in PORTS}
        self.folder = folder / "game"
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self._outputs = folder
        self._files: dict[str, Path] = {}
        shutil.copytree(GAME, self.folder, ignore=shutil.ignore_patterns("__pycache__"))
        page = self.folder / "page" / "index.html"
        page.write_text(self.translated(page.read_text(encoding="utf-8")), encoding="utf-8")
        programs = folder / "bin"
        programs.mkdir()
        (programs / "redis-server").symlink_to(find_redis_server())
        for name, start in {"python": "", "gamecast": "-m gamecast", "pytest": "-m pytest -p no:cacheprovider"}.items():
            (programs / name).write_text(f'#!/bin/sh\nexec {sys.executable} {start} "$@"\n', encoding="utf-8")
            (programs / name).chmod(0o755)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("GAMECAST_", "PYTEST_"))}
        self._environment = {
            **kept,
            "PATH": f"{programs}:{kept['PATH']}",
            "PYTHONPATH": str(ROOT),
            "GAMECAST_URL": self.translated("redis://127.0.0.1:7001"),
        }

    def translated(self, text: str) -> str:
        return re.sub("|".join(PORTS), lambda port: self.ports[port[0]], text)

    def run(self, command: str) -> str:
        """Run a command, wait for its end unless it stays, and return what it has printed."""
        line = self.translated(command.removesuffix(" &"))
        stays = STAY.match(command) is not None
        file = self._files[command] = self._outputs / f"output-{len(self._files)}"
        with file.open("wb") as output, file.with_suffix(".log").open("wb") as log:
            process = subprocess.Popen(
                ["bash", "-c", f"exec {line}" if stays else line],
                cwd=self.folder, env=self._environment, stdin=subprocess.DEVNULL, stdout=output,
                stderr=log,
            )  # fmt: skip
        self.running[command] = process
        if not stays:
            assert process.wait(timeout=scaled(DONE_S_MAX)) == 0, f"{command}: {self.logged(command)}"
        if command.startswith("redis-server"):
            [port] = re.findall(r"--port (\d+)", line)
            wait_until(lambda: answers(int(port)), DONE_S_MAX)
        return self.printed(command)

    def printed(self, command: str) -> str:
        return self._files[command].read_text(encoding="utf-8")

    def logged(self, command: str) -> str:
        return self.printed(command) + self._files[command].with_suffix(".log").read_text(encoding="utf-8")

    def await_logged(self, command: str, words: str) -> None:
        wait_until(lambda: words in self.logged(command) or self._ended(command), DONE_S_MAX)
        assert words in self.logged(command), f"{command}: {self.logged(command)}"

    def await_printed(self, command: str, pattern: str) -> None:
        wait_until(lambda: re.search(pattern, self.printed(command)) or self._ended(command), DONE_S_MAX)
        assert re.search(pattern, self.printed(command)), f"{command}: {self.logged(command)}"

    def _ended(self, command: str) -> bool:
        return self.running[command].poll() is not None

    def end(self) -> None:
        """End what was started here, and nothing else."""
        for process in self.running.values():
            if process.poll() is None:
                process.kill()
            process.wait()
        for file in self.folder.glob("n?/pid"):
            with suppress(OSError, ValueError):
                pid = int(file.read_text())
                if Path(f"/proc/{pid}/cwd").readlink() == file.parent:
                    os.kill(pid, signal.SIGKILL)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path.resolve())
    try:
        yield machine
    finally:
        machine.end()


def test_the_commands_print_what_the_page_shows(machine: Machine) -> None:
    for command, shown in commands():
        printed = machine.run(command)
        if command.startswith("pytest"):
            assert shown.strip() in printed
        elif "status" in command:
            assert paths(shown) <= paths(printed)
        elif command == HEROES:
            machine.await_printed(command, r"has the sword[\s\S]*was too late|was too late[\s\S]*has the sword")
            wait_until(lambda: all(len(shots(machine, server)) == 2 for server in SERVERS), DONE_S_MAX)
        elif command.startswith("gamecast node"):
            machine.await_logged(command, "is registered and relays")
        elif command.startswith("gamecast gateway"):
            machine.await_logged(command, "listens at")
        elif " -m http.server" in command:
            wait_until(lambda: answers(int(machine.ports["8000"])), DONE_S_MAX)
            check_page(machine)
        elif STAY.match(command):
            machine.await_printed(command, re.escape(shown))
        else:
            owner = machine.printed(HEROES).split() if HEROES in machine.running else []
            assert general(printed) == general(shown), command
            assert "the sword:" not in printed or f"the sword: {owner[owner.index('has') - 1]}" in printed

    check_servers(machine)
    assert machine.running[ISLAND].poll() is None
    [_, island] = blocks("text")
    machine.await_printed(ISLAND, re.escape(island))
    assert machine.printed(MOOR).count("moor: rain\n") == 1


def check_servers(machine: Machine) -> None:
    """Check that the three servers saw one order, and the lines that the page shows."""
    assert shots(machine, SERVERS[0]) == shots(machine, SERVERS[1]) == shots(machine, SERVERS[2])
    orders = [without_goblin(machine.printed(server)) for server in SERVERS[:2]]
    assert orders[0][1:] == orders[1][1:]
    shown = blocks("text")[0].replace("missed", "hit")
    assert sorted(general(shown).splitlines()) == sorted(general("\n".join(orders[0][1:])).splitlines())
    for server in SERVERS[1:]:
        machine.await_printed(server, "the goblin is in the river")


def check_page(machine: Machine) -> None:
    """Check the page's files and data, and where there is a browser, what it shows."""
    site, gateway = (f"http://127.0.0.1:{machine.ports[port]}" for port in ("8000", "8080"))
    assert b"A whole game" in got(site)
    assert b"export" in got(f"{gateway}/client/gamecast.js")
    assert b'"takes"' in got(f"{gateway}/v1/regions/meadow/events")
    if CHROMIUM is not None and importlib.util.find_spec("playwright") is not None:
        asyncio.run(look_at(site))


async def look_at(site: str) -> None:
    async with browser() as window:
        await window.page.goto(site)
        await until(lambda: shows(window.page, "#players", "Ana"), DONE_S_MAX)
        await until(lambda: shows(window.page, "#map", "goblin"), DONE_S_MAX)
        await until(lambda: shows(window.page, "#log", "server-"), DONE_S_MAX)
        assert not [complaint for complaint in window.complaints if "404" not in complaint]  # it has no icon


async def shows(page: object, place: str, text: str) -> bool:
    return text in await page.locator(place).inner_text()  # type: ignore[attr-defined]


def got(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=scaled(10)) as answer:
        return bytes(answer.read())


def answers(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def shots(machine: Machine, server: str) -> list[str]:
    return re.findall(r"^\w+ shoots into the forest: (?:hit|missed)$", machine.printed(server), re.MULTILINE)


def without_goblin(printed: str) -> list[str]:
    return [line for line in printed.splitlines() if not line.startswith("the goblin")]


def paths(status: str) -> set[tuple[str, str]]:
    """Return each region and its path, of the last table of a status."""
    return set(re.findall(r"^│ (forest|meadow|river|island|moor) +│ (\S+) +│", status, re.MULTILINE))


def general(text: str) -> str:
    """Return a text without what differs from run to run: names of who was first, positions, where the goblin is."""
    text = re.sub(r"\b\d{13}-\d+\b", "POSITION", text)
    text = re.sub(r"the goblin: \w+ \d+", "the goblin: PLACE", text)
    text = text.replace("missed", "hit")
    return re.sub(r"\b(ana|bo) takes|the sword: (ana|bo)\b", "WHO", text)


def test_excerpts_are_in_the_example() -> None:
    excerpts = re.findall(r'^```python title="(\S+)"\n(.*?)^```', PAGE, flags=re.MULTILINE | re.DOTALL)
    assert len(excerpts) == PAGE.count("```python")
    for name, excerpt in excerpts:
        source = (GAME / name).read_text(encoding="utf-8")
        assert unindented(excerpt) in unindented(source), excerpt


def unindented(text: str) -> str:
    return "\n".join(line.strip() for line in text.strip().splitlines())
