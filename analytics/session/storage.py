"""Files wherever they lie: this machine's disks, and the object stores and file systems that pyarrow can read.

A place is named by a path, or by a URL: ``file:///…``, ``s3://…`` or ``s3a://…``, ``gs://…``, ``abfss://…``,
``hdfs://…``, or ``fsspec+NAME://…`` where fsspec is installed. Credentials come from each system's own settings. For S3
these are AWS's environment variables, AWS_ENDPOINT_URL among them, and its configuration files.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import unquote, urlparse

from analytics.session.listing import Found, list_local, look
from sequencing.errors import InvalidInput, OtherSideError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import fs

In = TypeVar("In")
Out = TypeVar("Out")

LOOKS_AT_ONCE = 32
"""Files that are looked at side by side in a system far away, which is mostly waiting."""
_S3 = ("s3", "s3a", "s3n")
_LOCAL = ("file", "fsspec+file", "fsspec+local")
_PATTERNS = re.compile(r"([\\*?\[\]{}^])")
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")


class StorageUnavailable(OtherSideError):
    """A file system cannot be reached, refuses, or lacks the library that reads it."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A file or folder. ``name``: an absolute path on this machine, otherwise the URL.

    ``place``: the same in its file system; ``size``: in bytes, 0 for a folder; ``disk_bytes``: less if it has holes, or
    is listed before under another name.
    """

    name: str
    place: str
    system: fs.FileSystem
    is_file: bool
    is_folder: bool
    size: int = 0
    disk_bytes: int = 0

    @property
    def last(self) -> str:
        """The last part of its name."""
        return self.place.rstrip("/").rpartition("/")[2]

    @property
    def for_spark(self) -> str:
        """The name with what Spark would take for patterns escaped."""
        return _PATTERNS.sub(r"\\\1", self.name)

    @property
    def is_local(self) -> bool:
        """Whether it is in this machine's own file system."""
        return "://" not in self.name

    @property
    def exists(self) -> bool:
        """Whether there is such a file or folder."""
        return self.is_file or self.is_folder

    def open(self) -> pa.NativeFile:
        """Open the file to read, also at any position."""
        return self.system.open_input_file(self.place)

    def read_bytes(self) -> bytes:
        """Return the whole content."""
        with self.open() as stream:
            return bytes(stream.read())

    def within(self, *parts: str) -> Stored:
        """Return what has this name in the folder; asks the file system.

        On this machine, nothing that `listing` leaves out exists.
        """
        inner = "/".join(parts)
        if self.is_local:
            return self._local(look(self.place, *parts), inner)
        [info] = _asked(self, lambda: self.system.get_file_info([f"{self.place.rstrip('/')}/{inner}"]))
        return self._inner(info)

    def listing(self, *, everywhere: bool = False) -> Listing:
        """List the folder, in order of names; ``everywhere``: also the folders in it, and only files.

        All commands list sessions and directories of logs here, by the rule of `analytics.session.listing`.
        """
        from pyarrow import fs

        if self.is_local:
            local = _asked(self, lambda: list_local(self.place, everywhere=everywhere))
            start = len(self.place.rstrip("/")) + 1
            return Listing([self._local(each, each.file[start:]) for each in local.content], local.left_out)
        selector = fs.FileSelector(self.place, recursive=everywhere)
        content: list[Stored] = []
        left_out: dict[str, str] = {}
        for info in sorted(_asked(self, lambda: self.system.get_file_info(selector)), key=lambda each: each.path):
            inner = self._inner(info)
            # Keys of an object store may have such parts.
            if not {"", ".", ".."}.isdisjoint(inner.parts_in(self)):
                left_out[inner.name] = "the name leads out of the folder"
            elif not inner.exists:
                left_out[inner.name] = "not a regular file: only regular files are read"
            elif inner.is_file or not everywhere:
                content.append(inner)
        return Listing(content, left_out)

    def parts_in(self, folder: Stored) -> tuple[str, ...]:
        """Return the parts of its name below a folder."""
        return tuple(self.place[len(folder.place.rstrip("/")) + 1 :].split("/"))

    def resolved(self) -> Stored:
        """Return it without links in its name, if it is on this machine."""
        return stored(os.path.realpath(self.place)) if self.is_local else self

    def fetch(self, file: Path) -> Stored:
        """Copy it to a file on this machine, whose folders are made."""
        file.parent.mkdir(parents=True, exist_ok=True)
        with self.open() as stream:
            stream.download(str(file))
        return stored(str(file))

    def _local(self, entry: Found | None, inner: str) -> Stored:
        place = f"{self.place.rstrip('/')}/{inner}"
        if entry is None:
            return Stored(place, place, self.system, is_file=False, is_folder=False)
        is_file, is_folder = not entry.is_folder, entry.is_folder
        return Stored(place, place, self.system, is_file, is_folder, entry.size, entry.disk_bytes)

    def _inner(self, info: fs.FileInfo) -> Stored:
        name = f"{self.name.rstrip('/')}/{info.path[len(self.place.rstrip('/')) + 1 :]}"
        return _of(name, info, self.system)

    def __str__(self) -> str:
        return self.name


class Listing(NamedTuple):
    """What is in a folder. ``left_out``: name → why it is not read, of what is neither a regular file nor a folder."""

    content: Sequence[Stored]
    left_out: Mapping[str, str]


def stored(name: str | Path) -> Stored:
    """Return the file or folder of a path or URL, whether it exists or not. Follows links: the user names it.

    Raises `InvalidInput` for a URL of an unknown kind, and `StorageUnavailable`.
    """
    from pyarrow import fs

    text = str(name)
    scheme = urlparse(text).scheme if "://" in text or text.lower().startswith("file:/") else ""
    if scheme in ("", *_LOCAL):
        local = Path(_path_of(text.removeprefix("fsspec+")) if scheme else text).absolute()
        system: fs.FileSystem = fs.LocalFileSystem()
        return _of(str(local), system.get_file_info(str(local)), system)
    system, place = _system_of(text, scheme)
    missing = Stored(text.rstrip("/"), place, system, is_file=False, is_folder=False)
    return _of(missing.name, _asked(missing, lambda: system.get_file_info(place)), system)


def _path_of(url: str) -> str:
    """Return the path of a file URL: with one slash, as Hadoop writes it, or more; percent-encoded or not."""
    path = "/" + url.partition(":")[2].lstrip("/").removeprefix("localhost/")
    return path if Path(path).exists() else unquote(path)


def side_by_side(work: Callable[[In], Out], items: Sequence[In], *, far: bool) -> Iterator[Out]:
    """Yield the results in order; ``far``: many at once, because most of the time is waiting."""
    if len(items) < 2:
        yield from map(work, items)
        return
    with ThreadPoolExecutor(LOOKS_AT_ONCE if far else min(8, os.cpu_count() or 1)) as threads:
        yield from threads.map(work, items)


def _of(name: str, info: fs.FileInfo, system: fs.FileSystem) -> Stored:
    from pyarrow import fs

    place = Stored(
        name,
        info.path,
        system,
        is_file=info.type == fs.FileType.File,
        is_folder=info.type == fs.FileType.Directory,
    )
    size = info.size or 0
    return replace(place, size=size, disk_bytes=size) if place.is_file else place


def _system_of(url: str, scheme: str) -> tuple[fs.FileSystem, str]:
    from pyarrow import ArrowInvalid, fs

    endpoint = next((os.environ[each] for each in _ENDPOINTS if os.environ.get(each)), None)
    _, _, behind = url.partition("://")
    host, _, place = behind.rstrip("/").partition("/")
    if scheme in _S3 and not host:
        raise InvalidInput(f"{url} names no bucket")
    try:
        if scheme in _S3 and endpoint is not None:
            # pyarrow does not read these variables, which every other client of S3 does.
            at = urlparse(endpoint)
            return fs.S3FileSystem(endpoint_override=at.netloc, scheme=at.scheme or "https"), f"{host}/{place}"
        system, root = fs.FileSystem.from_uri(f"{'s3' if scheme in _S3 else scheme}://{host}/")
    except ArrowInvalid as error:
        raise InvalidInput(f"{url}: {_first_line(error)}") from error
    except (OSError, ImportError) as error:
        raise StorageUnavailable(f"{url} cannot be read from here: {_first_line(error)}") from error
    return system, f"{root.rstrip('/')}/{place}"


def _asked(about: Stored, ask: Callable[[], Any]) -> Any:
    try:
        return ask()
    except OSError as error:
        raise StorageUnavailable(f"{about.name} cannot be listed: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
