"""The command `gamecast`, run by tests: in a process of its own, and in this one."""

from __future__ import annotations

import subprocess
import sys

from click.testing import CliRunner, Result

from cli.main import cli
from tests.patience import scaled


def gamecast_command(*arguments: object, seconds: float = 115) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own."""
    command = [sys.executable, "-m", "gamecast", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=scaled(seconds))


def call(*arguments: object) -> Result:
    """Run the command in this process, where a test can break it."""
    return CliRunner().invoke(cli, [*map(str, arguments)], auto_envvar_prefix="GAMECAST")
