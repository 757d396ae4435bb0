"""A connection's part in a recording: its tap of the recorder, and its clock probes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

from gamecast.recording.probes import Prober
from gamecast.recording.recorder import open_recorder
from gamecast.version import __version__

if TYPE_CHECKING:
    from adapters.network import Network
    from gamecast.client.configuration import Configuration
    from gamecast.recording.options import RecordingStatistics
    from gamecast.recording.recorder import Recorder
    from gamecast.recording.tap import Tap


class AttachedRecorder:
    """Records one connection."""

    def __init__(self, recorder: Recorder, tap: Tap) -> None:
        """Use `open`."""
        self.tap = tap
        self.recorder = recorder
        self.prober: Prober | None = None

    @classmethod
    async def open(cls, configuration: Configuration, network: Network, incarnation: int) -> Self:
        """Join the recording of a configuration, which has one. Raises what opening it raises; nothing is left then."""
        record = configuration.record
        assert record is not None
        opening = _Opening(
            partial(
                open_recorder,
                record,
                version=__version__,
                ordering=configuration.ordering,
                url=network.url,
                is_private=urlsplit(configuration.url).scheme in ("embedded", "memory"),
            )
        )
        try:
            recorder = await asyncio.to_thread(opening.run)
        except asyncio.CancelledError:
            opening.abandon()
            raise
        attached = cls(recorder, recorder.tap(configuration.name, incarnation))
        if record.probe_host is not None:
            prober = Prober(network, recorder, record, configuration.name)
            try:
                await prober.start()
            except BaseException:
                await attached.close()
                raise
            attached.prober = prober
        return attached

    def statistics(self) -> RecordingStatistics:
        """Return what is recorded, and what could not be."""
        return self.recorder.statistics()

    async def close(self) -> None:
        """Leave the recording."""
        if self.prober is not None:
            await self.prober.close()
        self.recorder.close_tap(self.tap)
        await asyncio.to_thread(self.recorder.release)


class _Opening:
    """The opening of a recorder in a thread, which goes on when its caller is cancelled."""

    def __init__(self, opens: Callable[[], Recorder]) -> None:
        self._opens = opens
        self._lock = threading.Lock()
        self._opened: Recorder | None = None
        self._is_abandoned = False

    def run(self) -> Recorder:
        recorder = self._opens()
        with self._lock:
            self._opened, is_abandoned = recorder, self._is_abandoned
        if is_abandoned:
            recorder.release()
        return recorder

    def abandon(self) -> None:
        """Release the recorder, now or as soon as it is open. Does not block."""
        with self._lock:
            self._is_abandoned, opened = True, self._opened
        if opened is not None:
            asyncio.get_running_loop().run_in_executor(None, opened.release)
