"""Clocks that jump: Redis servers that see another time of day than the machine has.

Debian's libfaketime, preloaded into a server, adds what a file says to the time of day; monotonic clocks go on as they
are. It reads the file once a second or so. Python processes are left alone: gamecast's own waits are monotonic.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

from adapters.embedded.server import AppendFsync, EmbeddedServer
from adapters.redis.connection import RedisConnection
from demo.patience import Deadline
from sequencing.errors import GamecastError

LIBRARY = "faketime/libfaketimeMT.so.1"
"""For programs with threads, as Redis is."""

FOLDERS = tuple(Path(root) for root in ("/usr/lib", "/usr/local/lib"))

C_LIBRARY = "libc.so.6"
"""It is preloaded, too: its allocator replaces Debian's jemalloc, which asks for the time before libfaketime can
answer, and hangs."""

SHARED_MEMORY = Path("/dev/shm")
SEEN_S_MAX = 4.0
SEEN_EVERY_S = 0.05
NEAR_S = 1.0
TRIED_S = 3_600


class Clock:
    """The time of day that one server sees."""

    def __init__(self, file: Path, library: Path | None) -> None:
        """``file``: is written now, and says how many seconds to add; ``library``: see `clock_library`, without which
        the clock is the machine's."""
        self._file = file
        self._library = library
        self.ahead_s = 0
        self.set(0)

    def set(self, ahead_s: int) -> None:
        """Say how far the clock is ahead; it jumps within some two seconds."""
        self.ahead_s = ahead_s
        whole = self._file.with_suffix(".new")
        whole.write_text(f"{ahead_s:+d}\n")
        whole.replace(self._file)

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables to start a server with."""
        if self._library is None:
            return {}
        return {
            "LD_PRELOAD": f"{self._library}:{C_LIBRARY}",
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_CACHE_DURATION": "1",
        }


class ClockedServer(EmbeddedServer):
    """An embedded server with a clock of its own."""

    def __init__(self, clock: Clock, *, appendfsync: AppendFsync | None = None) -> None:
        super().__init__(appendfsync=appendfsync, environment=clock.environment)
        self._clock = clock

    def start(self) -> None:
        """See `EmbeddedServer.start`."""
        super().start()
        self._forget_shared()

    def restart(self) -> None:
        """See `EmbeddedServer.restart`."""
        super().restart()
        self._forget_shared()

    async def jump(self, ahead_s: int) -> bool:
        """Set the clock ahead of the machine's, or back; return whether the server was seen to have it.

        A server that does not answer meanwhile has it when it does.
        """
        self._clock.set(ahead_s)
        deadline = Deadline(SEEN_S_MAX)
        connection = RedisConnection(self.url)
        try:
            while not deadline.passed:
                with suppress(GamecastError):
                    seconds, micros = await connection.call("TIME", timeout_s=SEEN_S_MAX)
                    if abs(int(seconds) + int(micros) / 1e6 - time.time() - ahead_s) < NEAR_S:
                        return True
                await asyncio.sleep(SEEN_EVERY_S)
            return False
        finally:
            await connection.close()

    def _forget_shared(self) -> None:
        """Remove the names of what the library shares with children of the server, of which there are none that ask.

        It would remove them itself in the end, but not when it is killed; and who gets the same process id does not
        start.
        """
        for name in (f"faketime_shm_{self.pid}", f"sem.faketime_sem_{self.pid}"):
            (SHARED_MEMORY / name).unlink(missing_ok=True)


@lru_cache(maxsize=1)
def clock_library() -> Path | None:
    """Return the library, if it is installed and works with the Redis that is; else None.

    Blocks for some 0.2 s the first time, and then not within an event loop.
    """
    found = (path for folder in FOLDERS for path in (*folder.glob(LIBRARY), *folder.glob(f"*/{LIBRARY}")))
    library = next(found, None)
    if library is None:
        return None
    with TemporaryDirectory(prefix="gamecast-clock-") as directory:
        clock = Clock(Path(directory) / "clock", library)
        clock.set(TRIED_S)
        try:
            with ClockedServer(clock) as server:
                return library if asyncio.run(server.jump(TRIED_S)) else None
        except GamecastError:
            return None
