"""The session that a demo records: every server its own, and a tap beside them for the times at the nodes."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from analytics.session.manifest import is_session
from gamecast.recording.options import Recording
from gamecast.version import __version__
from sequencing.errors import UsageError, unwritable
from sequencing.extras import first_missing

PROBE_S_MIN = 0.5
PROBES_PER_S_MAX = 200
"""Of all servers together: one process has them all."""


def session_recording(directory: Path, *, servers: int, probes: bool) -> Recording | None:
    """Return the recording options of a demo's servers, None without pyarrow. An existing session is removed.

    ``probes``: whether the servers' direct connection is this machine's. Raises `UsageError` if another file is there.
    """
    if first_missing("recording", "recording"):
        return None
    if directory.exists() and not is_session(directory) and (not directory.is_dir() or any(directory.iterdir())):
        raise UsageError(f"--record: {directory} is there and is no session: name another directory")
    if is_session(directory):
        try:
            shutil.rmtree(directory)
        except OSError as error:
            raise unwritable(f"--record: {directory} cannot be replaced", error) from error
    probe_s = max(PROBE_S_MIN, servers * servers / PROBES_PER_S_MAX)
    return Recording(directory, probe_host="127.0.0.1" if probes else None, probe_s=probe_s)


@asynccontextmanager
async def stamps_recorded(url: str, record: Recording | None) -> AsyncIterator[None]:
    """Record frames and their stamps from outside, into the session of servers that are connected."""
    if record is None:
        yield
        return
    from gamecast.recording.outside import OutsideTap
    from gamecast.recording.recorder import open_recorder

    recorder = await asyncio.to_thread(open_recorder, record, version=__version__, ordering="acyclic", url=url)
    tap = OutsideTap(recorder, url)
    try:
        await tap.start()
        yield
    finally:
        await tap.close()
        await asyncio.to_thread(recorder.release)
