"""A connection's part in a recording: its tap of the recorder, and its clock probes."""

from __future__ import annotations

import asyncio
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
        recorder = await asyncio.to_thread(
            open_recorder,
            record,
            version=__version__,
            ordering=configuration.ordering,
            url=network.url,
            is_private=urlsplit(configuration.url).scheme in ("embedded", "memory"),
        )
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
