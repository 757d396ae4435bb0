"""The one rule of what is read of a folder that others made: regular files below it, and nothing else.

A session may be an archive from a stranger. A symbolic link in it leads to private files, or in circles. A FIFO, a
device or a socket blocks, or has no end. None of them is opened or followed, and each is reported. The folder itself is
named by the user: it may be a link.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from pathlib import Path

INLINE_BYTES = 4096
"""Some file systems keep so much in a file's directory entry, and say that it takes no block."""
_KINDS = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


@dataclass(frozen=True, slots=True)
class Found:
    """A regular file or a folder. ``size``: in bytes, 0 for a folder.

    ``disk_bytes``: what it takes on disk, less than ``size`` if it has holes, and 0 for a further hard link.
    """

    file: str
    is_folder: bool
    size: int = 0
    disk_bytes: int = 0


@dataclass(frozen=True, slots=True)
class LocalListing:
    """The content of a folder. ``left_out``: what is neither a regular file nor a folder → why it is not read."""

    content: list[Found] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)


def list_local(folder: str | Path, *, everywhere: bool = False) -> LocalListing:
    """List a folder of this machine, in order of names; ``everywhere``: also the folders in it, and only files.

    Raises `OSError` if a folder cannot be listed.
    """
    listing = LocalListing()
    linked: set[tuple[int, int]] = set()
    waiting = [str(folder)]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                try:
                    status = entry.stat(follow_symlinks=False)
                except FileNotFoundError:  # a recorder has renamed it
                    continue
                reason = why_not(entry.name, status.st_mode)
                if reason:
                    listing.left_out[os.fsencode(entry.path).decode(errors="backslashreplace")] = reason
                elif not stat.S_ISDIR(status.st_mode):
                    again = (status.st_dev, status.st_ino) in linked
                    if status.st_nlink > 1:
                        linked.add((status.st_dev, status.st_ino))
                    on_disk = 0 if again else min(status.st_size, max(status.st_blocks * 512, INLINE_BYTES))
                    listing.content.append(Found(entry.path, False, status.st_size, on_disk))
                elif everywhere:
                    waiting.append(entry.path)
                else:
                    listing.content.append(Found(entry.path, is_folder=True))
    listing.content.sort(key=lambda each: each.file)
    return listing


def look(folder: str | Path, *parts: str) -> Found | None:
    """Return what has this name below a folder, None if it is not there, or is not read."""
    file = str(folder)
    status: os.stat_result | None = None
    for part in parts:
        file = os.path.join(file, part)  # noqa: PTH118 - Path would drop a part like "."
        try:
            status = os.lstat(file)
        except (FileNotFoundError, NotADirectoryError):
            return None
        if why_not(part, status.st_mode):
            return None
    if status is None:
        return None
    is_folder = stat.S_ISDIR(status.st_mode)
    size = 0 if is_folder else status.st_size
    return Found(file, is_folder, size, size)


def why_not(name: str, mode: int) -> str:
    """Return why something of this name and mode is not read, "" if it is."""
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        return f"{_KINDS.get(stat.S_IFMT(mode), 'not a regular file')}: only regular files are read"
    try:
        name.encode()
    except UnicodeEncodeError:
        return "its name is not UTF-8"
    return "the name leads out of the folder" if name in ("", ".", "..") else ""


def read_regular(file: Path) -> bytes:
    """Read a regular file that is named by others. Raises `OSError` for what is none, without waiting for it."""
    handle = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(handle, "rb") as stream:
        if reason := why_not(file.name, os.fstat(handle).st_mode):
            raise OSError(reason)
        return stream.read()
