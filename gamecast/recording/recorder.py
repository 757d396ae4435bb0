"""The recorder of a process in a session: takes its taps' notes and writes them, in a thread of its own.

The game never waits for it. A tap that is not emptied in time drops rows. Dropped rows are counted, in `losses` of the
session, in `Recorder.statistics` and, once, in the log. A disk that refuses is tried again with each roll.
"""

from __future__ import annotations

import logging
import secrets
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from adapters.urls import redacted
from analytics.session.manifest import Session, begin_session, is_session
from analytics.session.schema import (
    CONNECTIONS,
    DELIVERIES,
    EPOCHS,
    FRAMES,
    LOSSES,
    PUBLISHES,
    RECEIVES,
    STAMPS,
    TABLE_OF,
)
from gamecast.recording import columns
from gamecast.recording.columns import DeliveredFrame, NotedFrame, NotedStamp, ReceivedFrame, ResolvedFrame
from gamecast.recording.files import SessionFiles
from gamecast.recording.gathering import Gathering, let_others_go_on
from gamecast.recording.options import Recording, RecordingStatistics
from gamecast.recording.tap import Receipts, Row, Tap, cut
from sequencing.errors import UsageError
from sequencing.listing import listing
from sequencing.plan import Plan

logger = logging.getLogger("gamecast.recording")

LOOK_S = 0.1
"""Seconds between checks whether many rows wait."""

WAIT_S = 1.0
MUCH_ROWS = 100_000
"""The taps are emptied after this time, or when this many rows wait: each time has its cost."""

STREAMS_KEPT = 100_000
"""The most streams for which the recorder knows how far frames are noted; beyond it, some may be noted twice."""

REASON_FIRST, REASON_IN_PLACE, REASON_REARRANGED = "first", "in place", "rearranged"

_recorders: dict[Path, Recorder] = {}
_opening = threading.Lock()


class Recorder:
    """Records what its taps note, until the last of its users has released it. Safe to use from several threads."""

    def __init__(self, recording: Recording, session: Session) -> None:
        """Use `open_recorder`."""
        self.session = session
        self.directory = Path(recording.directory)
        self.host = recording.clock
        self.name = f"{_file_name(socket.gethostname())}-{secrets.token_hex(6)}"
        self.on_rolled: Callable[[list[Path]], None] | None = None
        """Called in the recorder's thread with the files that are complete."""
        self._recording = recording
        self._files = SessionFiles(self.directory, session=session.session, recorder=self.name)
        self._users = 0
        self._taps: dict[Tap, Receipts] = {}
        self._closed_taps: list[Tap] = []
        self._emptied: list[Tap] = []
        self._rows: list[tuple[str, Row]] = []
        self._frames: list[tuple[Any, ...]] = []
        self._stamps: list[tuple[Any, ...]] = []
        self._lost: Counter[tuple[str, str]] = Counter()
        self._counting = threading.Lock()
        self._told: Counter[tuple[str, str]] = Counter()
        self._delivered = Gathering(DELIVERIES, DeliveredFrame, partial(columns.deliveries, self.host))
        self._published = Gathering(PUBLISHES, ResolvedFrame, partial(columns.publishes, self.host))
        self._received = Gathering(RECEIVES, ReceivedFrame, partial(columns.receives, self.host))
        self._noted = Gathering(FRAMES, NotedFrame, columns.frames)
        self._stamped = Gathering(STAMPS, NotedStamp, partial(columns.stamps, self.host))
        self._gatherings = self._delivered, self._published, self._received, self._noted, self._stamped
        self._plan: tuple[int, int] | None = None
        self._sole: tuple[Plan, dict[str, Any]] | None = None
        """A plan that lists no region, and its row."""
        self._listed: set[str] = set()
        """The regions that rows of this plan have: as they are seen first."""
        self._seen_last: dict[tuple[str, int], int] = {}
        self._stop = threading.Event()
        self._complained = False
        self._thread = threading.Thread(target=self._run, name="gamecast recorder", daemon=True)

    def tap(self, name: str, incarnation: int) -> Tap:
        """Return a tap for a connection that is open now."""
        tap = Tap(self.planned, name, incarnation, pending_rows_max=self._recording.pending_rows_max)
        self._taps[tap] = Receipts()
        return tap

    def close_tap(self, tap: Tap) -> None:
        """Note that a connection is closed, after the rest of its tap's notes."""
        tap.close()
        self._closed_taps.append(tap)

    def add(self, table: str, row: Row) -> None:
        """Note one row."""
        if len(self._rows) >= self._recording.pending_rows_max:
            self.count_lost(table, "full", 1)
        else:
            self._rows.append((table, row))

    def add_frame(self, note: tuple[Any, ...]) -> None:
        """Note a frame, the fields of `columns.NotedFrame`."""
        self._add(self._frames, "frames", [note])

    def add_stamps(self, notes: Sequence[tuple[Any, ...]]) -> None:
        """Note the stamps of a frame at a node, the fields of `columns.NotedStamp` each."""
        self._add(self._stamps, "stamps", notes)

    def _add(self, queue: list[tuple[Any, ...]], table: str, notes: Sequence[tuple[Any, ...]]) -> None:
        if len(queue) + len(notes) > self._recording.pending_rows_max:
            self.count_lost(table, "full", len(notes))
        else:
            queue.extend(notes)

    def count_lost(self, table: str, reason: str, rows: int) -> None:
        """Count rows that could not be noted."""
        with self._counting:
            self._lost[table, reason] += rows

    def planned(self, plan: Plan) -> None:
        """Note a plan that a connection follows from now on, unless it or a later one is noted."""
        number, before = (plan.epoch, plan.version), self._plan
        if before is not None and number <= before:
            return
        self._plan = number
        changed = REASON_IN_PLACE if before is not None and before[0] == plan.epoch else REASON_REARRANGED
        shown = replace(plan, nodes={name: redacted(url) for name, url in plan.nodes.items()})
        row = {
            "host": self.host,
            "epoch": plan.epoch,
            "version": plan.version,
            "began_at_ns": time.time_ns(),
            "reason": REASON_FIRST if before is None else changed,
            "plan": listing(shown, ()).to_json().decode(),
        }
        self.add(EPOCHS.name, row)
        self._listed, self._sole = set(), (shown, row) if plan.sole else None

    def list_regions(self, regions: Iterable[str]) -> None:
        """Note regions that are in use, where the plan lists none."""
        if self._sole is None or not (new := set(regions) - self._listed):
            return
        plan, row = self._sole
        self._listed |= new
        self.add(EPOCHS.name, {**row, "plan": listing(plan, new).to_json().decode()})

    def statistics(self) -> RecordingStatistics:
        """Return the numbers of rows written and lost."""
        trouble = self._files.trouble
        return RecordingStatistics(
            directory=self.directory,
            session=self.session.session,
            rolled_rows=dict(self._files.rolled_rows),
            rolled_files=self._files.rolled_files,
            lost_rows=dict(self._losses()),
            trouble=str(trouble) if trouble is not None else None,
        )

    def release(self) -> None:
        """End one use; the last one writes the rest, which blocks."""
        with _opening:
            self._users -= 1
            if self._users:
                return
            if _recorders.get(self.directory.resolve()) is self:
                del _recorders[self.directory.resolve()]
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        next_roll = time.monotonic() + self._recording.roll_s
        next_look = 0.0
        much_rows = min(MUCH_ROWS, self._recording.pending_rows_max // 2)
        while True:
            stopping = self._stop.wait(LOOK_S)
            now = time.monotonic()
            waiting = sum(tap.pending_rows for tap in list(self._taps)) + len(self._frames) + len(self._stamps)
            if not stopping and now < min(next_look, next_roll) and waiting < much_rows:
                continue
            next_look = now + WAIT_S
            try:
                self._empty()
                if stopping or now >= next_roll or self._files.open_bytes >= self._recording.roll_bytes:
                    next_roll = time.monotonic() + self._recording.roll_s
                    self._roll()
                if stopping and self._losses() != self._told:
                    self._roll()  # to record what the last roll lost
            except Exception:  # for any error, the game continues, and so does the rest of the recording
                logger.exception("what was noted could not be recorded")
                self.count_lost("all", "error", 1)
            if stopping:
                return

    def _roll(self) -> None:
        for gathering in self._gatherings:
            self._add_gathered(gathering)
        at_ns = time.time_ns()
        connections = [self._connection(tap, at_ns) for tap in list(self._taps)]
        if connections:
            self._files.add(CONNECTIONS, columns.rows_of(CONNECTIONS, connections))
        for tap in self._emptied:
            for table, count in tap.lost.items():
                self.count_lost(table, "full", count)
            del self._taps[tap]
        self._emptied.clear()
        lost = self._losses()
        if lost != self._told:
            self._complain(lost)
            rows = [
                {
                    "recorder": self.name,
                    "host": self.host,
                    "table": table,
                    "reason": reason,
                    "rows": count,
                    "noted_at_ns": at_ns,
                }
                for (table, reason), count in lost.items()
            ]
            self._files.add(LOSSES, columns.rows_of(LOSSES, rows))
            self._told = lost
        finished = self._files.roll()
        if finished and self.on_rolled is not None:
            self.on_rolled(finished)

    def _complain(self, lost: Counter[tuple[str, str]]) -> None:
        if not self._complained:
            self._complained = True
            trouble = f" (the disk: {self._files.trouble})" if self._files.trouble is not None else ""
            counts = ", ".join(f"{rows:,} of {table} ({reason})" for (table, reason), rows in sorted(lost.items()))
            logger.warning("the recording in %s lacks rows%s: %s; more are counted", self.directory, trouble, counts)

    def _losses(self) -> Counter[tuple[str, str]]:
        with self._counting:
            lost = Counter(self._lost)
        lost.update(dict(self._files.lost))
        for tap in list(self._taps):
            lost.update({(table, "full"): rows for table, rows in list(tap.lost.items())})
        return lost

    def _connection(self, tap: Tap, at_ns: int) -> dict[str, Any]:
        return {
            "name": tap.name,
            "incarnation": tap.incarnation,
            "host": self.host,
            "recorder": self.name,
            "opened_at_ns": tap.opened_at_ns,
            "closed_at_ns": tap.closed_at_ns,
            "noted_at_ns": at_ns,
        }

    def _empty(self) -> None:
        """Turn the taps' notes into rows: those of all taps together, because each table has its cost."""
        self._emptied += cut(self._closed_taps)  # nothing comes from them after this
        single: dict[str, list[Mapping[str, Any]]] = {}
        received: dict[tuple[str, int, int], tuple[Any, ...]] = {}
        for tap, receipts in list(self._taps.items()):
            taken = tap.take()
            if self._sole is not None:
                self.list_regions(taken.regions())
            if taken.receives:
                region, epoch, last, _, _, size, at = zip(*taken.receives, strict=True)
                self._received.add((*_names(tap, len(at)), region, epoch, last, size, at))
                frames = list(zip(region, epoch, last, strict=True))
                receipts.received(frames, at)
                received.update(zip(frames, taken.receives, strict=True))
            if taken.deliveries:
                *noted, last, at, replayed = zip(*taken.deliveries, strict=True)
                region, _, epoch, *_ = noted
                received_at = receipts.delivered(list(zip(region, epoch, last, strict=True)))
                self._delivered.add((*_names(tap, len(at)), *noted, received_at, at, replayed))
            if taken.publishes:
                self._published.add(([tap.name] * len(taken.publishes), *zip(*taken.publishes, strict=True)))
            for table, row in taken.single:
                single.setdefault(table, []).append({"host": self.host, **row})
            let_others_go_on()
        self._take_frames(received)
        for table, row in cut(self._rows):
            single.setdefault(table, []).append(row)
        for table, rows in single.items():
            self._files.add(TABLE_OF[table], columns.rows_of(TABLE_OF[table], rows))
        for gathering, notes in ((self._noted, cut(self._frames)), (self._stamped, cut(self._stamps))):
            if notes:
                gathering.add(list(zip(*notes, strict=True)))
        for gathering in self._gatherings:
            if gathering.is_enough:
                self._add_gathered(gathering)

    def _add_gathered(self, gathering: Gathering) -> None:
        for rows in gathering.take():
            self._files.add(gathering.table, rows)
        if gathering.unreadable_events:
            self.count_lost(gathering.table.name, "unread", gathering.unreadable_events)
            gathering.unreadable_events = 0

    def _take_frames(self, received: Mapping[tuple[str, int, int], tuple[Any, ...]]) -> None:
        """Gather the frames that no tap has shown before."""
        seen_last, reached = self._seen_last, dict[tuple[str, int], int]()
        new: list[tuple[Any, ...]] = []
        for (region, epoch, last), frame in received.items():
            stream = region, epoch
            if seen_last.get(stream, 0) < last:
                new.append(frame)
                if reached.get(stream, 0) < last:
                    reached[stream] = last
        if len(seen_last) + len(reached) >= STREAMS_KEPT:
            seen_last.clear()
        seen_last.update(reached)
        if new:
            self._noted.add((*zip(*new, strict=True), [None] * len(new)))


def open_recorder(recording: Recording, *, version: str, ordering: str, url: str, is_private: bool = False) -> Recorder:
    """Return the recorder of a directory in this process, started if none runs; the caller releases it in the end.

    ``url``: of the network's control Redis. ``is_private``: the network began with this process, so that no existing
    session can belong to it. Blocks. Raises `UsageError` if the directory cannot be recorded into.
    """
    directory = Path(recording.directory)
    with _opening:
        recorder = _recorders.get(directory.resolve())
        if recorder is None:
            if is_private and is_session(directory):
                raise UsageError(f"{directory} is a session of another network: record into a new directory")
            columns.rows_of(CONNECTIONS, ())  # makes Arrow import now what it would import at its first use
            session = begin_session(directory, version=version, ordering=ordering, url=redacted(url))
            recorder = _recorders[directory.resolve()] = Recorder(recording, session)
            recorder._thread.start()
        recorder._users += 1
    return recorder


def _names(tap: Tap, notes: int) -> tuple[list[str], list[int]]:
    return [tap.name] * notes, [tap.incarnation] * notes


def _file_name(host: str) -> str:
    return "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in host)[:40] or "host"
