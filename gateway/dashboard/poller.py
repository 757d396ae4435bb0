"""Surveys the network once for all viewers, again and again."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from typing import Any

import orjson

from adapters.redis.networkstate import NetworkState
from gateway.dashboard.delays import Delays
from gateway.dashboard.history import History, Point
from gateway.dashboard.holding import Arrived
from gateway.dashboard.notes import Note, happened
from gateway.dashboard.rates import Life, delivered_rates
from gateway.dashboard.regionhours import RegionHours
from gateway.dashboard.snapshot import Snapshot
from sequencing.errors import GamecastError

logger = logging.getLogger("gamecast.dashboard")

INTERVAL_S = 2.0
IDLE_INTERVAL_S = 15.0
"""How often to survey while the dashboard is watched, and otherwise: even then, changes must be noticed."""

SHARE_MAX = 0.25
"""The maximum share of the time: a network that takes long to survey is surveyed less often.

Time that passes only because a server does not answer does not count: in an incident, looks go on at the usual pace.
"""

WATCHED_S = 30.0
"""For this long after a request, the dashboard counts as watched."""

NOTES = 200
"""How many notes are kept."""

Look = Callable[[], Awaitable[NetworkState]]


class Poller:
    """The newest `Snapshot`, the notes, and the curves of the totals. It has one task; `run` it."""

    def __init__(
        self,
        look: Look,
        *,
        on_look: Callable[[], None] = lambda: None,
        interval_s: float = INTERVAL_S,
        is_trial: bool = False,
    ) -> None:
        """``look`` surveys the network, regions included; ``on_look`` is called after each survey."""
        self._is_trial = is_trial
        self._look, self._on_look = look, on_look
        self._interval_s = self._soonest_s = interval_s
        self.snapshot: Snapshot | None = None
        self.trouble: str | None = None
        """The reason why the last survey failed, if it did; the snapshot is older then."""
        self.turn = 0
        """Counts surveys, for viewers that wait for the next one."""
        self._looked_at_s = 0.0
        self._waited_s = 0.0
        """For how long the last survey only waited for servers that did not answer."""
        self._watched_until_s = 0.0
        self._looked = asyncio.Condition()
        self._wake = asyncio.Event()
        self._notes: deque[Note] = deque(maxlen=NOTES)
        self._history = History()
        self.delays = Delays()
        self.hours = RegionHours()
        self._answered_ms: dict[str, int] = {}
        """Node → when it last answered."""
        self._arrived = Arrived()
        self._delivered: Mapping[Life, float] = {}
        self._alerts: frozenset[tuple[str, str]] = frozenset()
        self._text: tuple[int, bytes] | None = None

    async def run(self) -> None:
        """Survey until cancelled."""
        while True:
            began_s = time.monotonic()
            self._wake.clear()
            await self._look_once()
            self._on_look()
            async with self._looked:
                self.turn += 1
                self._looked.notify_all()
            await self._pause(began_s)

    async def _pause(self, began_s: float) -> None:
        """Wait for the next survey.

        Two are never closer than the interval: moving counters must have had time to move.
        """
        took_s = time.monotonic() - began_s
        worked_s = max(0.0, took_s - self._waited_s)
        soonest_s = self._soonest_s = min(max(self._interval_s, worked_s / SHARE_MAX), IDLE_INTERVAL_S)
        await asyncio.sleep(max(0.0, soonest_s - took_s))
        if time.monotonic() >= self._watched_until_s:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), IDLE_INTERVAL_S - soonest_s)

    def watched(self) -> None:
        """Note that the dashboard is watched."""
        now_s = time.monotonic()
        if now_s >= self._watched_until_s:
            self._wake.set()  # otherwise the first picture may be as old as the idle interval
        self._watched_until_s = now_s + WATCHED_S

    async def next_turn(self, after: int) -> int:
        """Return the number of the newest survey, as soon as there was one after ``after``."""
        async with self._looked:
            await self._looked.wait_for(lambda: self.turn > after)
            return self.turn

    def note(self, note: Note) -> None:
        """Keep a note that another part of the dashboard made."""
        self._notes.append(note)

    def document(self, **more: Any) -> dict[str, Any]:
        """Return the whole state that one viewer gets."""
        summary = self.snapshot.summary() if self.snapshot is not None else None
        return {
            "trouble": self.trouble,
            "interval_s": round(self._soonest_s, 1),
            "network": summary,
            "notes": [asdict(note) for note in reversed(self._notes)],
            "history": self._history.document(),
            **more,
        }

    def text(self, more: Callable[[], dict[str, Any]]) -> bytes:
        """Return the document as JSON, encoded once a survey for all viewers; ``now_ms`` is when it is sent."""
        if self._text is None or self._text[0] != self.turn:
            self._text = self.turn, orjson.dumps(self.document(**more()))
        return b'{"now_ms":%d,%b' % (_now_ms(), self._text[1][1:])

    async def _look_once(self) -> None:
        began_s = time.monotonic()
        try:
            await self._take(await self._look(), began_s)
        except GamecastError as error:
            if self.trouble is None:
                logger.warning("cannot survey the network: %s", error)
            self._missed(str(error), began_s)
        except Exception as error:  # whatever is in Redis: an end of this task would be the end of all figures
            if self.trouble is None:
                logger.exception("cannot survey the network")
            self._missed(f"{type(error).__name__}: {error}", began_s)

    async def _take(self, state: NetworkState, began_s: float) -> None:
        """Make figures of a look."""
        ended_s = time.monotonic()
        before = self.snapshot.now if self.snapshot is not None else state
        apart_s = began_s - self._looked_at_s if self.snapshot is not None else 0.0
        took_ms = (ended_s - began_s) * 1000
        self._looked_at_s = began_s
        at_ms = _now_ms()
        named = {node.name for node in state.nodes}
        answered = {node.name: at_ms for node in state.nodes if node.server is not None}
        self._answered_ms = {name: at for name, at in self._answered_ms.items() if name in named} | answered
        self._delivered = delivered_rates(self._delivered, before, state)
        snapshot = Snapshot(
            before, state, apart_s, at_ms, took_ms, self._answered_ms, self._arrived, self._delivered, self._is_trial
        )
        if snapshot.stuck:
            await asyncio.to_thread(lambda: snapshot.held)  # in a large world this takes long
        self._arrived = self._arrived.after(state, snapshot.stuck.keys())
        if self.trouble is not None:
            self.note(Note(_now_ms(), "alert", "surveys of the network work again"))
        self.trouble = None
        if self.snapshot is not None:
            for note in happened(before, state, snapshot.at_ms):
                self.note(note)
            rate = snapshot.events_per_s
            self._history.add(Point(at_ms, None if rate is None else round(rate, 1), snapshot.behind))
        self.delays.add(state, at_ms)
        self.hours.add(snapshot)
        self._note_alerts(snapshot)
        self._waited_s = state.waited_s
        self.snapshot = snapshot

    def _missed(self, why: str, began_s: float) -> None:
        """Note a look that failed."""
        if self.trouble is None:
            self.note(Note(_now_ms(), "alert", f"cannot survey the network: {why}", bad=True))
        self.trouble = why
        self.delays.missed(_now_ms())
        self._waited_s = time.monotonic() - began_s

    def _note_alerts(self, snapshot: Snapshot) -> None:
        if snapshot.now.plan is None and snapshot.before.plan is not None:
            self._alerts = frozenset()  # what they were about is gone, and not solved
        problems = {(each.subject, each.seen) for each in snapshot.alerts if each.level == "problem"}
        subjects = {subject for subject, _ in self._alerts}
        for subject, seen in sorted(problems):
            if subject not in subjects:
                self.note(Note(snapshot.at_ms, "alert", f"{subject}: {seen}", bad=True))
        for subject in sorted(subjects - {subject for subject, _ in problems}):
            self.note(Note(snapshot.at_ms, "alert", f"{subject}: solved"))
        self._alerts = frozenset(problems)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
