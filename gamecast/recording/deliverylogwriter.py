"""Write delivery logs."""

from __future__ import annotations

import gzip
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Self, cast

import orjson

from placement.textlines import BUFFER_BYTES
from sequencing.checkers.stays import Stay


class DeliveryLogWriter:
    """Writes one subscriber's deliveries to one file, in order; gzip-compressed if the file's name ends in ``.gz``.

    Lines go to ``FILE.partial``, which `close` renames to FILE: a file under its own name is a whole log. Leaving the
    ``with`` block by an exception keeps the partial file under that name, for inspection. Writing blocks.
    """

    __slots__ = ("_compressed", "_index", "_partial", "_raw", "_stream", "_subscriber", "file")

    def __init__(self, file: Path, subscriber: str) -> None:
        self.file = Path(file)
        self._subscriber = subscriber
        self._index = 0
        self._partial = self.file.with_name(self.file.name + ".partial")
        self._raw: IO[bytes] = self._partial.open("wb", buffering=BUFFER_BYTES)
        # Without a time and a name, the same deliveries make the same file.
        compress = self.file.suffix == ".gz"
        self._compressed = gzip.GzipFile("", "wb", 6, self._raw, mtime=0) if compress else None
        self._stream = cast(IO[bytes], self._compressed or self._raw)

    def write(
        self,
        event: str,
        region: str,
        sender: str,
        *,
        sent_at_ns: int | None = None,
        delivered_at_ns: int | None = None,
        extra: Mapping[str, object] | None = None,
    ) -> None:
        """Append a delivery; its index is the number of deliveries before. ``extra`` fields come after the known
        ones."""
        line: dict[str, object] = {
            "subscriber": self._subscriber,
            "index": self._index,
            "event": event,
            "region": region,
            "sender": sender,
        }
        if sent_at_ns is not None:
            line["sent_at_ns"] = sent_at_ns
        if delivered_at_ns is not None:
            line["delivered_at_ns"] = delivered_at_ns
        if extra:
            line = {**extra, **line}
        self._stream.write(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))
        self._index += 1

    def write_stay(self, stay: Stay) -> None:
        """Append a stay of this subscriber's; its places are the indices of deliveries."""
        line: dict[str, object] = {"subscriber": self._subscriber, "stay": stay.region, "from": stay.start}
        known = {"to": stay.end, "asked_at_ns": stay.asked_at_ns, "joined_at_ns": stay.joined_at_ns}
        line |= {name: value for name, value in known.items() if value is not None}
        self._stream.write(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))

    def close(self) -> None:
        """Finish the file and give it its name. Does nothing the second time."""
        if not self._raw.closed:
            self._finish()
            self._partial.replace(self.file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if error is None:
            self.close()
        elif not self._raw.closed:
            self._finish()

    def _finish(self) -> None:
        if self._compressed is not None:
            self._compressed.close()
        self._raw.flush()
        os.fsync(self._raw.fileno())
        self._raw.close()
