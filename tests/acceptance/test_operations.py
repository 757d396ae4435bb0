"""`docs/operations.md`: every command in it does what it says."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from adapters.embedded.binary import find_redis_server
from adapters.embedded.ports import free_port
from tests.patience import Deadline, scaled

PAGE = Path(__file__).parents[2] / "docs" / "operations.md"
READY_S_MAX = 10.0
DONE_S_MAX = 120.0


class Machine:
    """One machine that stands for three: other addresses, the rest as it is written."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ports = {f"10.0.0.{number}": free_port() for number in (1, 2, 3)}
        self._passwords: dict[str, str] = {}
        """Of the Redis users that the page creates."""
        self.running: list[tuple[str, subprocess.Popen[str]]] = []

    def run(self, line: str) -> None:
        background = line.endswith("&")
        words = shlex.split(line.removesuffix("&"))
        words = [re.sub(r"(\w+):PASSWORD@", self._known, word) for word in words]
        for address, port in self._ports.items():
            words = [word.replace(f"{address}:6379", f"127.0.0.1:{port}") for word in words]
            if address in words:
                words[words.index("--bind") + 1], words[words.index("--port") + 1] = "127.0.0.1", str(port)
        folder = self._folder / str(len(list(self._folder.iterdir())))
        folder.mkdir()
        if "--aclfile" in words:
            (folder / "users.acl").write_text(blocks("acl")[0])
        program = {"gamecast": [sys.executable, "-m", "gamecast"]}.get(words[0])
        command = [*(program or [find_redis_server()]), *words[1:]]
        environment = {**os.environ, "PYTHONPATH": str(PAGE.parents[1])}
        with (folder / "output").open("w") as output:
            process = subprocess.Popen(
                command, cwd=folder, stdout=output, stderr=subprocess.STDOUT, text=True, env=environment
            )
        self.running.append((line, process))
        if background:
            self._await_words(folder / "output", process)
            return
        assert process.wait(timeout=scaled(DONE_S_MAX)) == 0, (folder / "output").read_text()
        self.running.pop()
        if "--file" in words:
            self._passwords = json.loads((folder / "users.json").read_text())

    def end(self) -> None:
        """Everything in the background goes on until it is asked to end, or has what it wanted; then it ends well."""
        for line, process in reversed(self.running):
            if " tail " not in line:
                assert process.poll() is None, f"it ended by itself: {line}"
                process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=scaled(10)) == 0, line
        self.running.clear()

    def kill(self) -> None:
        for _, process in self.running:
            process.kill()
            process.wait()

    def _known(self, user: re.Match[str]) -> str:
        return f"{user[1]}:{self._passwords[user[1]]}@"

    def _await_words(self, output: Path, process: subprocess.Popen[str]) -> None:
        deadline = Deadline(READY_S_MAX)
        while not re.search("Ready to accept|is registered|is a leader candidate|subscribed to", output.read_text()):
            assert process.poll() is None, output.read_text()
            assert not deadline.passed, output.read_text()
            time.sleep(0.05)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path)
    try:
        yield machine
    finally:
        machine.kill()


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```", PAGE.read_text(), flags=re.MULTILINE | re.DOTALL)


def commands() -> list[str]:
    return [line for block in blocks("sh") for line in block.splitlines()]


def test_every_command_of_the_page_does_what_it_says(machine: Machine) -> None:
    lines = commands()
    assert len(lines) >= 12
    for line in lines:
        machine.run(line)
    machine.end()
