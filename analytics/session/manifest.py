"""The description of a session, ``session.json``, and which directories are sessions."""

from __future__ import annotations

import os
import secrets
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson

from analytics.session.listing import list_local, read_regular
from analytics.session.schema import READABLE, READABLE_VERSIONS, SCHEMA_VERSION, SESSION_FILE, TABLE_OF
from sequencing.errors import InvalidInput, UsageError, unwritable


@dataclass(frozen=True, slots=True)
class Session:
    """The description of a session. ``url``: of the network's control Redis, without passwords."""

    schema: int
    session: str
    began_at_ns: int
    gamecast: str
    ordering: str
    url: str


def is_session(directory: Path) -> bool:
    """Return whether a directory has a session's description, of any version, whether it can be read or not."""
    file = directory / SESSION_FILE
    return os.path.lexists(file) and (file.is_symlink() or not file.is_dir())


def read_session(directory: Path) -> Session:
    """Read the description; raises `InvalidInput` if it is missing, invalid or of an unsupported version."""
    file = directory / SESSION_FILE
    try:
        document: Any = orjson.loads(read_regular(file))
    except FileNotFoundError:
        raise InvalidInput(f"{directory} is not a recorded session: it has no {SESSION_FILE}") from None
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{file} cannot be read: {error}") from error
    match document:
        case {
            "schema": int(schema),
            "session": str(session),
            "began_at_ns": int(began_at_ns),
            "gamecast": str(version),
            "ordering": str(ordering),
            "url": str(url),
        }:
            if schema not in READABLE_VERSIONS:
                raise InvalidInput(f"{file}: of schema version {schema}, and this gamecast reads {READABLE}")
            return Session(schema, session, began_at_ns, version, ordering, url)
    raise InvalidInput(f"{file} does not describe a session")


def begin_session(directory: Path, *, version: str, ordering: str, url: str, began_at_ns: int | None = None) -> Session:
    """Make a directory a session, or join its existing session: the first caller describes it, permanently.

    Raises `UsageError` if the directory cannot be written, or has other content; `InvalidInput` if its session cannot
    be read.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        strangers = sorted(name for name in os.listdir(directory) if not name.startswith((".", "_")))  # noqa: PTH208
        if strangers and not is_session(directory):
            raise UsageError(
                f"{directory} has other files, like {strangers[0]}, and no {SESSION_FILE}: name a new directory, or "
                "one that is a session"
            )
        for name, reason in list_local(directory).left_out.items():
            if Path(name).name in TABLE_OF:
                raise UsageError(f"{directory} cannot be recorded into: {name} is {reason}")
        session = Session(
            SCHEMA_VERSION,
            f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{secrets.token_hex(4)}",
            time.time_ns() if began_at_ns is None else began_at_ns,
            version,
            ordering,
            url,
        )
        _write_first(directory, orjson.dumps(asdict(session), option=orjson.OPT_APPEND_NEWLINE))
    except OSError as error:
        raise unwritable(f"{directory} cannot be recorded into", error) from error
    return read_session(directory)


def _write_first(directory: Path, text: bytes) -> None:
    """Write the description unless it exists; no reader ever sees a part of it."""
    draft = directory / f".{SESSION_FILE}.{secrets.token_hex(4)}"
    try:
        with draft.open("xb") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        try:
            os.link(draft, directory / SESSION_FILE)
        except FileExistsError:
            return
        except OSError:  # a file system without links: the rename replaces what a rival wrote at the same moment
            if not is_session(directory):
                draft.replace(directory / SESSION_FILE)
        sync_directory(directory)
    finally:
        draft.unlink(missing_ok=True)


def sync_directory(directory: Path) -> None:
    """Sync a directory, so that the names in it survive a power cut."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
