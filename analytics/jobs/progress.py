"""The directory that `--follow` keeps its progress in: whose it is, and which files its sums have.

A process may be killed at any moment: each file is replaced whole, and a batch that was not finished is repeated. The
sums count only if the session now has exactly the files that they were made of.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from analytics.session.schema import SESSION_FILE
from analytics.session.storage import stored
from sequencing.errors import InvalidInput, UsageError, unwritable

OWNER = "following.json"
"""Names the session; it is written before all others."""


def begin_progress(state: Path, directory: str | Path) -> str:
    """Return the id of the session in a directory, after a check that ``state`` is new, or has the progress of it.

    Raises `InvalidInput` for an invalid session, `UsageError` for another's progress, and `CannotWrite`.
    """
    session, place = _session(directory), stored(directory).resolved().place
    own = {"session": session, "directory": place}
    if state.resolve().is_relative_to(place):
        raise UsageError(f"{state} is within the session that is followed: name a directory elsewhere for --follow")
    try:
        state.mkdir(parents=True, exist_ok=True)
        file = state / OWNER
        if not file.is_file():
            if any(each.name != f"{OWNER}.new" for each in state.iterdir()):
                raise UsageError(f"{state} is not empty, and no progress of --follow: name a new directory")
            replace_json(file, own)
        owner = read_json(file)
    except OSError as error:
        raise unwritable(f"{state} cannot be written", error) from error
    if owner != own:
        whose = "a session that it does not name"
        if isinstance(owner, dict) and own.keys() <= owner.keys():
            whose = f"session {owner['session']} in {owner['directory']}"
        raise UsageError(
            f"{state} has the progress of {whose}, and {directory} is session {session}: "
            "name another directory for --follow"
        )
    return session


def replace_json(file: Path, value: object) -> None:
    """Write a file that is whole, or as it was, if the process is killed."""
    new = file.with_name(f"{file.name}.new")
    new.write_text(json.dumps(value))
    new.replace(file)


def read_json(file: Path) -> object:
    """Return what a file has, None if it is not there, or not whole."""
    try:
        return json.loads(file.read_text())
    except (OSError, ValueError):
        return None


def sizes_of(names: Iterable[str]) -> dict[str, int]:
    """Return the files that are there, by their full names, and their sizes."""
    files = (stored(name).resolved() for name in names)
    return {file.place: file.size for file in files if file.is_file}


def noted(file: Path) -> Mapping[str, int] | None:
    """Return the files of a batch and their sizes, None if none were noted."""
    files = read_json(file)
    return files if isinstance(files, dict) else None


def is_of_files(state: Path, files: Mapping[str, int]) -> bool:
    """Return whether the sums of all batches are there, and are those of these files as they are now."""
    summed: dict[str, int] = {}
    for note in sorted((state / "files").glob("*.json")):
        if not (state / "cells" / f"batch={int(note.stem)}" / "_SUCCESS").is_file():
            return False
        summed |= noted(note) or {}
    return bool(summed) and summed == files


def _session(directory: str | Path) -> str:
    try:
        file = stored(directory).within(SESSION_FILE)
        if not file.is_file:
            raise FileNotFoundError(file.name)
        return str(json.loads(file.read_bytes())["session"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidInput(f"{directory} is not a recorded session: its {SESSION_FILE} cannot be read") from error
