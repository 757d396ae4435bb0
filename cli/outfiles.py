"""The files that commands write."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sequencing.errors import unwritable


@contextmanager
def writing(what: object) -> Iterator[None]:
    """Turn an `OSError` while writing a file into a gamecast error. ``what`` names the file, and the option if any."""
    try:
        yield
    except OSError as error:
        raise unwritable(f"{what}: cannot be written", error) from error
