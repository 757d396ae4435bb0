"""The master's part of a run: direct the users, collect their reports, and judge them.

A run is *playing* for the time that was asked for. Then it is *quiet*: no user publishes, and events in flight arrive.
Then the master asks for the *last* chunks and judges everything, and the run is *over*. A violation that is seen while
the run plays ends it.

This module does not import locust or gevent: `tick` is called about every second, with the time as an argument.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any

from loadtest.course import percentiles_ms
from loadtest.journal import NS, Ledger
from loadtest.judging import Judge, Judgement
from loadtest.options import Options
from loadtest.planting import PLANT_AT
from loadtest.shapes import SHAPES, Moment
from sequencing.checkers import Offence, Verdict, judge
from sequencing.errors import InvalidInput

LOOK_EVERY_S = 2.0
STILL_S = 2.0
"""Seconds without a delivery after which no event counts as in flight."""
LAST_CHUNKS_S_MAX = 10.0


class Phase(StrEnum):
    """The phases of a run, in order."""

    PLAYING = "playing"
    QUIET = "quiet"
    LAST = "last"
    OVER = "over"


Tell = Callable[[dict[str, Any]], None]
"""Sends a message to all workers."""


@dataclass(slots=True, eq=False)
class Conductor:
    """``workers``: how many processes send chunks; ``violated``: called with each violation that is seen."""

    options: Options
    tell: Tell
    violated: Callable[[Offence], None]
    workers: int = 1
    crowd: str = ""
    """Who the users are, for the report; empty for those of the options."""
    broken_at_s: int | None = None
    """The second, on the wall clock, in which the first violation was seen while the run played."""
    phase: Phase = Phase.PLAYING
    judgement: Judgement | None = None
    ledger: Ledger = field(default_factory=Ledger)
    settled_s: float | None = None
    """Seconds from the start of the quiet phase to the last delivery; None if deliveries did not settle."""
    played_s: float = 0.0
    full: bool = False
    """Whether the run ended early, at the limit of deliveries that the judge may keep."""
    is_enough: bool = False
    """Whether the run should end before its time, in order: set by the user's own load shape."""
    interrupted: bool = False
    """Whether the run was ended at once, so that losses were not judged."""
    _judge: Judge = field(init=False)
    _moment: Moment | None = None
    _began_s: float | None = None
    _since_s: float = 0.0
    _looked_s: float = 0.0
    _grown_s: float = 0.0
    _deliveries: int = 0
    _broken: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._judge = Judge(self.ledger, late_s=self.options.late, clock_margin_ms=self.options.clock_margin)

    def hear(self, data: bytes) -> None:
        """Add a chunk to the ledger."""
        try:
            self.ledger.add(data)
        except InvalidInput as error:
            self.ledger.missing.append(str(error))

    def lost_worker(self, name: str) -> None:
        """Note that a worker was lost, with the reports that it had not sent."""
        if self.phase != Phase.OVER:
            self.ledger.missing.append(f"worker {name} was lost, with the last reports of its users")
            self.workers -= 1
            self._judge.only_order = True  # what it had delivered, and published, is not known

    def tick(self, now_s: float, now_ns: int) -> float | None:
        """Advance the run. Return the share of users that should be running, or None when the run is over."""
        if self._began_s is None:
            self._began_s = self._looked_s = now_s
        if self.ledger.deliveries != self._deliveries:
            self._deliveries, self._grown_s = self.ledger.deliveries, now_s
        match self.phase:
            case Phase.PLAYING:
                self._play(now_s, now_ns)
            case Phase.QUIET:
                self._settle(now_s)
            case Phase.LAST:
                self._await_last(now_s)
            case Phase.OVER:
                pass
        if self.phase == Phase.OVER:
            return None
        return self._moment.users if self._moment is not None else 1.0

    def interrupt(self) -> None:
        """Judge an interrupted run: only its order, since other events were still in flight."""
        if self.judgement is not None:
            return
        self.phase, self.interrupted = Phase.OVER, True
        self.ledger.missing.insert(0, "the run was interrupted before its end: losses were not judged")
        try:
            verdict = judge(self.ledger.sequences(), publication_order=self.ledger.publication_order())
        except InvalidInput as error:
            self._unjudged(error)
        else:
            self._judged(verdict)

    @property
    def stopped_in_order(self) -> bool:
        """Whether the run was ended at once, and nothing is wrong but that: no violation, and no report missing."""
        judgement = self.judgement
        return self.interrupted and judgement is not None and judgement.verdict.fine and len(judgement.incomplete) == 1

    @property
    def users(self) -> str:
        """Who the users are."""
        kinds = {
            "game servers": self.options.servers,
            "WebSocket clients": self.options.sockets,
            "publishers": self.options.posters,
        }
        return self.crowd or ", ".join(f"{count} {who}" for who, count in kinds.items() if count)

    @property
    def broken(self) -> tuple[str, ...]:
        """What was broken, as far as it was seen while the run played, and then at its end."""
        judged = [offence.describe() for offence in self.judgement.verdict.examples] if self.judgement else []
        return tuple(dict.fromkeys([*self._broken, *judged]))

    @property
    def is_broken(self) -> bool:
        """Whether a promise was broken, or the logs contradict themselves; reports that are missing break none."""
        return bool(self._broken) or (self.judgement is not None and not self.judgement.verdict.fine)

    def figures(self) -> dict[str, Any]:
        """Return the figures of the run beside its judgement."""
        totals: dict[str, int] = {}
        for figures in self.ledger.figures.values():
            for name, value in figures.items():
                if not isinstance(value, bool):
                    totals[name] = totals.get(name, 0) + value
        course: dict[str, Any] = {
            "played_s": self.played_s,
            "settled_s": self.settled_s,
            "stopped_in_order": self.stopped_in_order,
        }
        delays_ms = percentiles_ms(self.ledger.course.delays())
        course["delay_ms"] = {name: round(value, 3) for name, value in delays_ms.items()}
        return {**course, "is_broken": self.is_broken, "broken_while_playing": self._broken, **totals}

    def _play(self, now_s: float, now_ns: int) -> None:
        assert self._began_s is not None
        self.played_s = round(now_s - self._began_s, 3)
        if now_s - self._looked_s >= LOOK_EVERY_S:
            self._looked_s = now_s
            self._look(now_ns)
        self.full = self.ledger.deliveries >= self.options.deliveries_max
        if self.played_s >= self.options.seconds or self._broken or self.full or self.is_enough:
            self.phase, self._since_s = Phase.QUIET, now_s
            self.tell({"quiet": True})
            return
        moment = SHAPES[self.options.shape](self.played_s / self.options.seconds)
        if moment != self._moment:
            self._moment = moment
            self.tell({"moment": asdict(moment)})

    def _look(self, now_ns: int) -> None:
        try:
            offences = self._judge.look(now_ns)
        except InvalidInput as error:
            self._broken.append(str(error))
            return
        for offence in offences:
            self.broken_at_s = self.broken_at_s or now_ns // NS
            self._broken.append(offence.describe())
            self.violated(offence)

    def _settle(self, now_s: float) -> None:
        waited_s = now_s - self._since_s
        reported = self.ledger.figures.values()
        under_way = any(
            not figures.get("quiet") or figures.get("outstanding") or figures.get("held") for figures in reported
        )
        still = now_s - max(self._grown_s, self._since_s) >= STILL_S
        if not under_way and still:
            self.settled_s = round(max(self._grown_s - self._since_s, 0.0), 3)
        if self.settled_s is None and waited_s >= self.options.settle:
            totals = self.figures()
            unanswered, held = totals.get("outstanding", 0), totals.get("held", 0)
            self.ledger.missing.append(
                f"{waited_s:.0f} s after the last event was published, {unanswered} publishes or joins had no answer, "
                f"{held} frames or events were held, and the last delivery was {now_s - self._grown_s:.0f} s ago"
            )
        if self.settled_s is not None or waited_s >= self.options.settle:
            self.phase, self._since_s = Phase.LAST, now_s
            self.tell({"last": True})

    def _await_last(self, now_s: float) -> None:
        last = sum(bool(figures.get("last")) for figures in self.ledger.figures.values())
        if last < self.workers and now_s - self._since_s < LAST_CHUNKS_S_MAX:
            return
        if last < self.workers:
            self.ledger.missing.append(
                f"{self.workers - last} of {self.workers} processes did not send their last chunk"
            )
        if not self.ledger.deliveries:
            self.ledger.missing.append("nothing was delivered, so nothing was judged")
        if self.options.plant and not self.figures().get("planted"):
            self.ledger.missing.append(
                f"--plant {self.options.plant}: nothing was planted, because no user had {PLANT_AT} deliveries"
            )
        self.phase = Phase.OVER
        try:
            self.judgement = self._judge.conclude()
        except InvalidInput as error:
            self._unjudged(error)
            return
        for offence in self.judgement.verdict.examples:
            self.violated(offence)
        if self._broken and self.judgement.fine:
            # Events that were so late that they counted as lost, and arrived in the end.
            late = tuple(f"while it ran: {violation}" for violation in self._broken)
            self.judgement = replace(self.judgement, incomplete=late)

    def _unjudged(self, error: InvalidInput) -> None:
        """Record that the logs cannot be judged, so the run is not fine."""
        self.ledger.missing.append(f"the logs cannot be judged: {error}")
        self._broken.append(str(error))
        self._judged(judge([]))

    def _judged(self, verdict: Verdict) -> None:
        self.judgement = Judgement(
            verdict=verdict,
            published=len(self.ledger.placed),
            uncertain=0,
            gaps=len(self.ledger.gaps),
            incomplete=tuple(self.ledger.missing),
            looks=self._judge.looks,
        )
