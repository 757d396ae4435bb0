"""`gamecast node`, in processes of its own."""

from __future__ import annotations

import signal
import subprocess
import sys

from tests.patience import scaled


def start_node(name: str, url: str, control: str) -> subprocess.Popen[str]:
    """Start `gamecast node` and wait until it says that it is there."""
    command = [sys.executable, "-m", "gamecast", "node"]
    process = subprocess.Popen(
        [*command, "--name", name, "--redis", url, "--control", control], stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    assert "is registered" in process.stderr.readline()
    return process


def end(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=scaled(5)) == 0
    assert process.stderr is not None
    process.stderr.close()
