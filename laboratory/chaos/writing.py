"""The log file of a server's notes."""

from __future__ import annotations

import os
import time
from pathlib import Path

import orjson


class NoteFile:
    """The log file: whole lines, in one write each time."""

    def __init__(self, file: Path) -> None:
        self._fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        if os.fstat(self._fd).st_size:
            os.write(self._fd, b"\n")  # an earlier writer may have been killed in the middle of a line

    def write(self, *notes: dict[str, object]) -> None:
        """Write notes, with the present time."""
        at = time.monotonic_ns()
        os.write(self._fd, b"".join(orjson.dumps({"at": at, **note}) + b"\n" for note in notes))

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)
