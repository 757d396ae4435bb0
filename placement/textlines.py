"""The lines of a file from another program: plain or gzip-compressed, bounded, and numbered for error messages."""

from __future__ import annotations

import codecs
import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import BinaryIO, cast

from sequencing.errors import InvalidInput

LINE_BYTES_MAX = 1 << 20
"""The maximum length of a line.

Lines that gamecast reads take some hundred bytes; an endless line must not fill the memory.
"""
BUFFER_BYTES = 1 << 20
_GZIP_MAGIC = b"\x1f\x8b"


def read_lines(file: Path) -> Iterator[tuple[int, bytes]]:
    """Yield each line with its number from 1; it ends in a newline, except perhaps the last.

    Raises `InvalidInput`, naming the file and, where there is one, the line, for what cannot be read: a missing file, a
    directory, a line of more than ``LINE_BYTES_MAX`` bytes, damaged or incomplete gzip data.
    """
    number = 0
    try:
        with _open(file) as stream:
            for number, line in enumerate(iter(partial(stream.readline, LINE_BYTES_MAX + 1), b""), start=1):
                if len(line) > LINE_BYTES_MAX:
                    raise InvalidInput(f"{file}, line {number}: is longer than {LINE_BYTES_MAX} bytes")
                yield number, line
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise InvalidInput(f"{file}, line {number + 1}: the gzip data is cut off or damaged: {error}") from error
    except OSError as error:
        raise InvalidInput(f"{file}: cannot be read: {error.strerror or error}") from error


def foreign_encoding(line: bytes) -> str | None:
    """Return what is wrong with a line that is not UTF-8, None for a valid line."""
    try:
        line.decode()
    except UnicodeDecodeError as error:
        if line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            return "is UTF-16, and should be UTF-8"
        return f"is not UTF-8: {error.reason}"
    return None


@contextmanager
def _open(file: Path) -> Iterator[BinaryIO]:
    if file.is_dir():
        raise InvalidInput(f"{file}: is a directory, not a file")
    with io.BufferedReader(io.FileIO(file), BUFFER_BYTES) as raw:
        # Look ahead without seeking, so that pipes can be read, too.
        compressed = raw.peek(2)[:2] == _GZIP_MAGIC
        if not compressed and file.suffix == ".gz":
            raise InvalidInput(f"{file}: is named .gz but is not gzip data")
        if not compressed:
            yield raw
            return
        with gzip.GzipFile(fileobj=raw) as plain, io.BufferedReader(cast(io.RawIOBase, plain), BUFFER_BYTES) as stream:
            yield stream
