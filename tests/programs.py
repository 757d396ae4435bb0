"""The programs that pages show, run as they stand."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from adapters.embedded.server import EmbeddedServer
from tests.patience import scaled


def printed_by(folder: Path, name: str, *, nodes: int) -> str:
    """Run a program of a folder, with GAMECAST_URL for one real node, or for several in its process; return its output.

    Fails with what it complains about if it does not end well.
    """
    with EmbeddedServer() as server:
        done = subprocess.run(
            [sys.executable, name],
            cwd=folder,
            env={**os.environ, "GAMECAST_URL": server.url if nodes == 1 else f"memory://game?nodes={nodes}"},
            capture_output=True,
            text=True,
            timeout=scaled(60),
            check=False,
        )
    assert done.returncode == 0, done.stderr
    return done.stdout
