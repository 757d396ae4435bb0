"""How much may be written of a session: a bounded number of times what was read of it.

A few hundred bytes of Parquet can say a value a billion times. A session may be an archive from a stranger, so what
is made of it must not fill the disk. Files may have holes, and several names.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from sequencing.errors import InvalidInput

if TYPE_CHECKING:
    from analytics.session.storage import Stored

FREE_BYTES = 64 * 1024 * 1024
"""This much may be written of any session: it fills no disk."""
PARQUET_TIMES = 16
"""Rows of a recorder take less room in large files than in small ones: 0.7 of it for 100,000 synthetic ones."""
LOG_TIMES = 1000
"""A line of a log has some 300 bytes, and a delivery some bytes of Parquet: 18 times for the same, compacted. The
rest is room for runs of many events, of which a row may stand for many lines."""


class Allowance:
    """Counts what is written, and raises when that is too much for what was read."""

    def __init__(self, source: object, files: Iterable[Stored], *, times: int) -> None:
        """``files``: all that is read."""
        read_bytes = sum(file.disk_bytes for file in files)
        self._source = source
        self._read_bytes = read_bytes
        self._times = times
        self._left_bytes = FREE_BYTES + times * read_bytes

    def take(self, written_bytes: int) -> None:
        """Count bytes that were written, or are about to be; raises `InvalidInput` if they are too many."""
        self._left_bytes -= written_bytes
        if self._left_bytes < 0:
            raise InvalidInput(
                f"{self._source} is refused: its {self._read_bytes:,} bytes on disk would become more than "
                f"{self._times:,} times as many and {FREE_BYTES:,}: no recorder writes such files"
            )
