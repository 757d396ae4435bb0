"""The options of a recording: `Recording`."""

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
    """The value of ``record`` in `gamecast.connect` if a directory alone is not enough.

    ``directory``: of the session. Any number of connections, processes and hosts (with a shared file system) may record
    into one. Those of a process share a recorder, and the options of the first one count. ``host``: the name of the
    host whose clock is used, this host's name if None. Give hosts that share a clock the same name.

    ``probe_host``: an address of this host that other recording servers of the network can reach; they then probe each
    other by UDP, each peer every ``probe_s`` seconds. None: no probes. ``probe_port``: 0 for any free one.
    """

    directory: str | Path
    roll_s: float = 10.0
    """Seconds between rolls of the files: everything recorded before a roll survives a kill -9."""
    roll_bytes: int = 64 * 1024 * 1024
    """Files are finished earlier when this many bytes have been written."""
    pending_rows_max: int = 1_000_000
    """The most rows of one connection that wait for the writer. Beyond it rows are dropped, and counted in `losses`: a
    slow disk never makes the game wait."""
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
        """The name of the host whose clock is used."""
        return self.host or socket.gethostname()


def as_recording(record: str | Path | Recording) -> Recording:
    """Return the options of a recording; raises `ExtraMissing` if the extra that writes the files is not installed."""
    require_pyarrow()
    return record if isinstance(record, Recording) else Recording(record)


def require_pyarrow() -> None:
    """Raise `ExtraMissing` if pyarrow is not installed."""
    require("recording", "recording")


@dataclass(frozen=True, slots=True)
class RecordingStatistics:
    """The state of a recorder, for all connections of this process that share it."""

    directory: Path
    session: str
    rolled_rows: Mapping[str, int] = field(default_factory=dict)
    """Table → rows in finished files; events for `publishes` and `deliveries`."""
    rolled_files: int = 0
    lost_rows: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """(table, reason) → rows that were dropped, or whose file could not be written; counted likewise."""
    trouble: str | None = None
    """The last error of the disk, None if there was none."""
