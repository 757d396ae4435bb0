"""The recorder of a process in a session: takes what its taps noted, and writes it, in a thread of its own.

The game never waits for it: a tap that is not emptied in time drops, and what is dropped is counted, in `losses` of the
session, in `Recorder.statistics` and, once, in the log. A disk that refuses is tried again with each roll.
"""

from __future__ import annotations

import logging
import secrets
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from adapters.redis_connection import redacted
from analytics.schema import CONNECTIONS, EPOCHS, FRAMES, LOSSES, RECEIVES, STAMPS, TABLE_OF
from analytics.session import Session, begin_session, is_session
from gamecast.recording import columns
from gamecast.recording.columns import Columns
from gamecast.recording.event_rows import DeliveredFrame, DeliveryRows, PublishRows
from gamecast.recording.files import ROW_GROUP_ROWS, SessionFiles
from gamecast.recording.options import Recording, RecordingStatistics
from gamecast.recording.tap import Receipts, Row, Tap, cut
from sequencing.errors import UsageError
from sequencing.frames import FrameKind, parse_meta
from sequencing.plan import Plan

logger = logging.getLogger("gamecast.recording")

LOOK_S = 0.1
"""How often the thread looks whether much waits."""

WAIT_S = 1.0
MUCH_ROWS = 100_000
"""The taps are emptied when so much time has passed or so many rows wait: each time has its price."""

GATHERED_NOTES = 8_192
"""Of what is few a frame, so many notes are gathered before they are turned into columns."""

SLICE_NOTES = 512
"""So many frames are turned into columns at a time; then other threads have their turn. Python lets a thread that
computes go on for 5 ms, and the game is to wait for none of them."""

STREAMS_KEPT = 100_000
"""Of so many streams it is known how far their frames are noted; when there are more, some may be noted twice."""

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
        """Called in the recorder's thread with the files that are finished."""
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
        self._received = _no_receives()
        self._noted_frames: list[Any] = []
        self._delivered = DeliveryRows(self.host)
        self._published = PublishRows(self.host)
        self._plan: tuple[int, int] | None = None
        self._seen_last: dict[tuple[str, int], int] = {}
        self._stop = threading.Event()
        self._complained = False
        self._thread = threading.Thread(target=self._run, name="gamecast recorder", daemon=True)

    def tap(self, name: str, incarnation: int) -> Tap:
        """Return a tap for a connection that is open now."""
        tap = Tap(self, name, incarnation, pending_rows_max=self._recording.pending_rows_max)
        self._taps[tap] = Receipts()
        return tap

    def close_tap(self, tap: Tap) -> None:
        """Take note that a connection is closed, after what its tap still has."""
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
        """Note a plan that somebody follows from now on, unless it or a later one is noted."""
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
            "plan": shown.to_json().decode(),
        }
        self.add(EPOCHS.name, row)

    def statistics(self) -> RecordingStatistics:
        """Return what is written and what is lost."""
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
        """End one use; the last one writes what is left, which blocks."""
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
                    self._roll()  # to tell of what the last roll lost
            except Exception:  # whatever it is, the game goes on, and so does what can be recorded
                logger.exception("what was noted could not be recorded")
                self.count_lost("all", "error", 1)
            if stopping:
                return

    def _roll(self) -> None:
        self._add_gathered()
        self._write_rows(self._delivered, 1)
        self._write_rows(self._published, 1)
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
        """Turn into rows what the taps have noted: of all of them together, for each table has its price."""
        self._emptied += cut(self._closed_taps)  # nothing comes from them after this
        single: dict[str, list[Mapping[str, Any]]] = {}
        delivered: list[list[Any]] = [[] for _ in DeliveredFrame._fields]
        published: list[Any] = []
        new: dict[tuple[str, int, int], tuple[Any, ...]] = {}
        for tap, receipts in list(self._taps.items()):
            taken = tap.take()
            if taken.receives:
                frames = self._take_receives(tap, receipts, taken.receives)
                new.update(zip(frames, taken.receives, strict=True))
            if taken.deliveries:
                region, publisher, epoch, first, events, place, times, last, at = zip(*taken.deliveries, strict=True)
                received_at = receipts.delivered(list(zip(region, epoch, last, strict=True)))
                named = [tap.name] * len(at), [tap.incarnation] * len(at)
                noted: Columns = *named, region, publisher, epoch, first, events, place, times, received_at, at
                for column, found in zip(delivered, noted, strict=True):
                    column += found
            published += [(tap.name, *note) for note in taken.publishes]
            for table, row in taken.single:
                single.setdefault(table, []).append({"host": self.host, **row})
        self._take_frames(new.values())
        for table, row in cut(self._rows):
            single.setdefault(table, []).append(row)
        for table, rows in single.items():
            self._files.add(TABLE_OF[table], columns.rows_of(TABLE_OF[table], rows))
        self._noted_frames += cut(self._frames)
        if max(len(self._received[0]), len(self._noted_frames)) >= GATHERED_NOTES:
            self._add_gathered()
        for part in _slices(cut(self._stamps)):
            self._files.add(STAMPS, columns.stamps(self.host, part))
        for part in _slices_of_columns(delivered):
            self._add_delivered(part)
            self._write_rows(self._delivered, ROW_GROUP_ROWS)
        for part in _slices(published):
            self._published.add(part)
            self._write_rows(self._published, ROW_GROUP_ROWS)

    def _add_gathered(self) -> None:
        received, self._received = self._received, _no_receives()
        noted, self._noted_frames = self._noted_frames, []
        for part in _slices_of_columns(received):
            self._files.add(RECEIVES, columns.receives(self.host, part))
        for part in _slices(noted):
            self._add_frames(part)

    def _write_rows(self, gathered: DeliveryRows | PublishRows, rows_min: int) -> None:
        if gathered.rows >= rows_min:
            self._files.write(gathered.table, gathered.take())

    def _take_receives(self, tap: Tap, receipts: Receipts, notes: list[tuple[Any, ...]]) -> list[tuple[str, int, int]]:
        """Gather what a tap received; return (region, epoch, last number) of each."""
        region, epoch, last, _, _, size, at = zip(*notes, strict=True)
        noted: Columns = [tap.name] * len(at), [tap.incarnation] * len(at), region, epoch, last, size, at
        for column, found in zip(self._received, noted, strict=True):
            column += found
        frames = list(zip(region, epoch, last, strict=True))
        receipts.received(frames, at)
        return frames

    def _take_frames(self, received: Iterable[tuple[Any, ...]]) -> None:
        """Note the frames that no tap showed before."""
        seen_last, reached = self._seen_last, dict[tuple[str, int], int]()
        for region, epoch, last, meta, stamp, size, at in received:
            stream = region, epoch
            if seen_last.get(stream, 0) < last:
                reached[stream] = max(last, reached.get(stream, 0))
                try:
                    kind, events, publisher = parse_meta(meta)
                except UsageError:
                    continue  # what no gamecast wrote; the subscriber's gap tells of it
                if kind == FrameKind.EVENTS:
                    self._noted_frames.append((region, epoch, last, events, publisher, stamp, size, at, None))
        if len(seen_last) + len(reached) >= STREAMS_KEPT:
            seen_last.clear()
        seen_last.update(reached)

    def _add_delivered(self, part: list[list[Any]]) -> None:
        try:
            self._delivered.add(part)
        except columns.UNREADABLE:  # one of them has times that are none
            frames = list(zip(*part, strict=True))
            if len(frames) > 1:
                for frame in frames:
                    self._add_delivered([[field] for field in frame])
            else:
                self.count_lost("deliveries", "unread", DeliveredFrame(*frames[0]).events)

    def _add_frames(self, part: list[Any]) -> None:
        try:
            self._files.add(FRAMES, columns.frames(part))
        except columns.UNREADABLE:  # one of them has a stamp that is none
            if len(part) > 1:
                for each in part:
                    self._add_frames([each])
            else:
                self.count_lost("frames", "unread", 1)


def open_recorder(recording: Recording, *, version: str, ordering: str, url: str, is_private: bool = False) -> Recorder:
    """Return the recorder of a directory in this process, started if it is not there; to be released in the end.

    ``url``: of the network's control Redis. ``is_private``: the network began with this process, so that no session
    that is there already can be of it. Blocks. Raises `UsageError` if the directory cannot be recorded into.
    """
    directory = Path(recording.directory)
    with _opening:
        recorder = _recorders.get(directory.resolve())
        if recorder is None:
            if is_private and is_session(directory):
                raise UsageError(f"{directory} is a session of another network: record into a new directory")
            columns.rows_of(CONNECTIONS, ())  # what Arrow imports when it is first used, it imports now
            session = begin_session(directory, version=version, ordering=ordering, url=redacted(url))
            recorder = _recorders[directory.resolve()] = Recorder(recording, session)
            recorder._thread.start()
        recorder._users += 1
    return recorder


def _no_receives() -> list[list[Any]]:
    return [[] for _ in columns.ReceivedFrame._fields]


def _slices_of_columns(noted: list[list[Any]]) -> Iterator[list[list[Any]]]:
    for start in range(0, len(noted[0]), SLICE_NOTES):
        yield [column[start : start + SLICE_NOTES] for column in noted]
        time.sleep(0)  # let another thread go on that waits


def _slices(notes: list[Any]) -> Iterator[list[Any]]:
    for start in range(0, len(notes), SLICE_NOTES):
        yield notes[start : start + SLICE_NOTES]
        time.sleep(0)  # let another thread go on that waits


def _file_name(host: str) -> str:
    return "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in host)[:40] or "host"
