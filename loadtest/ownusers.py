"""Find the users in a locustfile of your own, before a run begins.

The file is imported in a process of its own, because importing locust patches the process for gevent.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import orjson

from sequencing.errors import UsageError

IMPORT_S_MAX = 60.0
_FOUND = b"gamecast-users: "
"""Begins the line with the result: the file itself may print, too."""


def kinds_in(file: Path) -> dict[str, str]:
    """Return the subclasses of `GameServerUser` in a file that locust could run, each with its kind.

    Raises `UsageError` if the file is missing, cannot be imported, or has none.
    """
    if not file.is_file():
        raise UsageError(f"there is no file {file}: --scenario names a Python file with subclasses of GameServerUser")
    command = [sys.executable, "-c", f"from {__name__} import tell_kinds; tell_kinds()", str(file)]
    try:
        ran = subprocess.run(command, capture_output=True, timeout=IMPORT_S_MAX, check=False)
    except subprocess.TimeoutExpired as error:
        raise UsageError(f"importing {file} took more than {IMPORT_S_MAX:g} s") from error
    return read_kinds(ran.stdout, ran.stderr, file)


def read_kinds(stdout: bytes, stderr: bytes, file: Path) -> dict[str, str]:
    """Return what the process that imported the file has found. Raises `UsageError`."""
    said = [line.removeprefix(_FOUND) for line in stdout.splitlines() if line.startswith(_FOUND)]
    if not said:
        lines = stderr.decode(errors="replace").strip().splitlines()
        raise UsageError(f"importing {file} ended the process: {lines[-1] if lines else 'without a message'}")
    answer = orjson.loads(said[-1])
    if error := answer.get("error"):
        raise UsageError(f"cannot import {file}: {error}")
    kinds: dict[str, str] = answer["kinds"]
    if not kinds:
        raise UsageError(f"{file} has no users: define a subclass of gamecast.loadtest.GameServerUser in it")
    return kinds


def tell_kinds() -> None:
    """Import the file that the first argument names, and print what it has. Runs in a process of its own."""
    from locust.util.load_locustfile import load_locustfile

    from loadtest.gameserver import GameServerUser

    try:
        users, _ = load_locustfile(str(Path(sys.argv[1]).resolve()))
    except Exception as error:  # noqa: BLE001 - whatever the user's file raises
        answer: dict[str, object] = {"error": f"{type(error).__name__}: {error}"}
    else:
        own = {name: user.kind for name, user in users.items() if issubclass(user, GameServerUser)}
        answer = {"kinds": own}
    sys.stdout.buffer.write(b"\n" + _FOUND + orjson.dumps(answer) + b"\n")
