"""How to record: `Recording`."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePath

from gamecast.arguments import check_numbers
from sequencing.errors import UsageError
from sequencing.extras import require


@dataclass(frozen=True, slots=True)
class Recording:
    """What `gamecast.connect` takes as ``record`` where a directory alone does not say enough.

    ``directory``: of the session; any number of connections, processes and hosts (with a shared file system) may record
    into one; those of a process share a recorder, and the first one's options count. ``host``: whose clock this is, the
    host's name when None; name hosts that share a clock alike.

    ``probe_host``: an address of this host, by which other recording servers of the network reach it; then they probe
    each other by UDP, each peer every ``probe_s`` seconds. None: no probes. ``probe_port``: 0 for any free one.
    """

    directory: str | Path
    roll_s: float = 10.0
    """How often files are finished: what was recorded before survives a kill -9."""
    roll_bytes: int = 64 * 1024 * 1024
    """Files are finished earlier when so much has been written."""
    pending_rows_max: int = 1_000_000
    """Rows of one connection that wait for the writer. Beyond it rows are dropped, and counted in `losses`: a slow disk
    never makes the game wait."""
    host: str | None = None
    probe_host: str | None = None
    probe_port: int = 0
    probe_s: float = 1.0

    def __post_init__(self) -> None:
        check_numbers(self, ("roll_bytes", "pending_rows_max"), ("roll_s", "probe_s"))
        directory: object = self.directory
        if not isinstance(directory, (str, PurePath)) or not str(directory):
            raise UsageError(f"record needs the directory of a session, not {directory!r}")

    @property
    def clock(self) -> str:
        """The host whose clock times are by."""
        return self.host or socket.gethostname()


def as_recording(record: str | Path | Recording) -> Recording:
    """Return how to record; raises `ExtraMissing` where the extra that writes the files is not installed."""
    require_pyarrow()
    return record if isinstance(record, Recording) else Recording(record)


def require_pyarrow() -> None:
    """Raise `ExtraMissing` if there is no pyarrow."""
    require("recording", "recording")


@dataclass(frozen=True, slots=True)
class RecordingStatistics:
    """What a recorder has done so far, for all connections of this process that share it."""

    directory: Path
    session: str
    rolled_rows: Mapping[str, int] = field(default_factory=dict)
    """Table → rows in finished files; of `publishes` and `deliveries` events."""
    rolled_files: int = 0
    lost_rows: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """(table, reason) → what was dropped, or whose file could not be written, counted likewise."""
    trouble: str | None = None
    """The last error of the disk, None if there was none."""
