"""Reports of a connection to its application: its status, gaps, and events that were not published."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal, NamedTuple, TypeVar

from adapters.redis.deadline import Overdue
from gamecast.arguments import check_pattern, checked_handler
from gamecast.event import Event, Gap, Item, JointEvent, Presence, State
from sequencing.errors import GamecastError, Unreachable
from sequencing.names import RegionPatterns

StatusName = Literal["opening", "connected", "disconnected", "failed", "closed"]

Handler = Callable[[Event], Awaitable[None] | None]
GapHandler = Callable[[Gap], Awaitable[None] | None]
SomeHandler = TypeVar("SomeHandler", bound=Handler)
SomeGapHandler = TypeVar("SomeGapHandler", bound=GapHandler)

logger = logging.getLogger("gamecast")


class Status(NamedTuple):
    """The status of a connection.

    ``disconnected``: a Redis that it needs cannot be reached; it retries by itself. ``failed``: it has ended, and every
    call raises the reason. ``error``: the reason for one of these two.
    """

    name: StatusName
    error: Exception | None = None


class PublishFailure(NamedTuple):
    """Events of a region that were not published, or may not have been, and whose futures no task has awaited.

    ``payloads``: the payloads of the events, in order, as subscribers would get them: JSON, or `bytes`. Publish them
    again if ``error.definite`` is true; otherwise some of them may be published already.
    """

    region: str | tuple[str, ...]
    """Or all regions of events of several."""
    events: int
    error: GamecastError
    payloads: Sequence[Any] = ()


SomeStateHandler = TypeVar("SomeStateHandler", bound=Callable[[State], Awaitable[None] | None])

SomePresenceHandler = TypeVar("SomePresenceHandler", bound=Callable[[Presence], Awaitable[None] | None])


class Handlers:
    """Functions that are called with events, by region, and with gaps."""

    def __init__(self) -> None:
        self._of_events: list[tuple[RegionPatterns, Handler]] = []
        self._of_gaps: list[GapHandler] = []
        self._of_states: list[Callable[[State], Awaitable[None] | None]] = []
        self._of_presence: list[Callable[[Presence], Awaitable[None] | None]] = []

    def on(self, region_pattern: str) -> Callable[[SomeHandler], SomeHandler]:
        """See `Client.on`."""
        check_pattern(region_pattern)

        def register(handler: SomeHandler) -> SomeHandler:
            self._of_events.append((RegionPatterns([region_pattern]), checked_handler(handler)))
            return handler

        return register

    def on_gap(self, handler: SomeGapHandler) -> SomeGapHandler:
        """See `Client.on_gap`."""
        self._of_gaps.append(checked_handler(handler))
        return handler

    def on_state(self, handler: SomeStateHandler) -> SomeStateHandler:
        """See `Client.on_state`."""
        self._of_states.append(checked_handler(handler))
        return handler

    def on_presence(self, handler: SomePresenceHandler) -> SomePresenceHandler:
        """See `Client.on_presence`."""
        self._of_presence.append(checked_handler(handler))
        return handler

    def of(self, item: Item) -> Sequence[Callable[[Any], Awaitable[None] | None]]:
        """Return the handlers to call with an event, a gap or a state; a gap or state without a handler is logged."""
        if isinstance(item, State):
            if not self._of_states:
                logger.warning("no handler takes the state of %s: register one with on_state", ", ".join(item.values))
            return self._of_states
        if isinstance(item, Presence):
            return self._of_presence
        if isinstance(item, JointEvent):
            here = item.regions
            return [handler for pattern, handler in self._of_events if any(region in pattern for region in here)]
        if isinstance(item, Event):
            return [handler for pattern, handler in self._of_events if item.region in pattern]
        if not self._of_gaps:
            logger.warning("no handler takes %s: register one with on_gap", item)
        return self._of_gaps


class Callbacks:
    """Functions that are called with one argument each, and may be coroutine functions. Their errors are logged."""

    def __init__(self, what: str) -> None:
        """``what``: the subject of the calls, for the log."""
        self._what = what
        self._callbacks: list[Callable[[Any], Awaitable[None] | None]] = []
        self._running: set[asyncio.Future[None]] = set()

    def __bool__(self) -> bool:
        return bool(self._callbacks)

    def add(self, callback: Callable[[Any], Awaitable[None] | None]) -> None:
        """Add a function to call."""
        self._callbacks.append(callback)

    def tell(self, item: Any) -> None:
        """Call all of them, without waiting for coroutines."""
        for callback in self._callbacks:
            try:
                result = callback(item)
            except Exception:
                logger.exception("a callback for %s failed", self._what)
                continue
            if result is not None:
                running = asyncio.ensure_future(result)
                self._running.add(running)
                running.add_done_callback(self._ended)

    def _ended(self, running: asyncio.Future[None]) -> None:
        self._running.discard(running)
        if not running.cancelled() and (error := running.exception()) is not None:
            logger.error("a callback for %s failed", self._what, exc_info=error)


class Health:
    """The server paths that a connection has lost, and the resulting status of the connection."""

    def __init__(self) -> None:
        self.status = Status("opening")
        self.callbacks = Callbacks("the connection's state")
        self._lost: dict[str, Exception] = {}

    def mark_down(self, way: str, error: Exception) -> None:
        """Note that a path is lost, and retried. If it is the first one lost, the application is notified."""
        self._lost[way] = error
        if self.status.name == "connected":
            self._go(Status("disconnected", error))

    def mark_up(self, way: str) -> None:
        """Note that a path works. This is cheap while none is lost."""
        if self._lost and self._lost.pop(way, None) is not None and not self._lost:
            self._go(Status("connected"))

    def opened(self) -> None:
        """Note that the connection is open."""
        self._go(Status("connected"))

    def begin_again(self) -> None:
        """Note that the connection, which has ended, is opened again."""
        self._lost.clear()
        self.status = Status("opening")

    def ended(self, error: Exception | None = None) -> None:
        """Note that the connection has been closed, or has failed."""
        self._go(Status("failed", error) if error is not None else Status("closed"))

    def _go(self, status: Status) -> None:
        has_ended = self.status.name == "closed" or (self.status.name == "failed" and status.name != "closed")
        if not has_ended:
            self.status = status
            self.callbacks.tell(status)


class Late(Overdue):
    """Counts a path as lost if a request there is not answered in time; the answer may still arrive."""

    def __init__(self, health: Health, way: str, after_s: float) -> None:
        said = f"{way}: the server has not answered for {after_s:g} s: it hangs, is stopped, or has too much to do"
        super().__init__(after_s, lambda: health.mark_down(way, Unreachable(said)))


class PublishErrorReporter:
    """The token of events whose outcome no task awaits: failures are passed to callbacks, and the first is logged."""

    def __init__(self) -> None:
        self.callbacks = Callbacks("events that were not published")
        self._is_logged = False

    def note(
        self,
        region: str | tuple[str, ...],
        outcomes: Sequence[Any],
        payloads: Callable[[], Sequence[Any]] = tuple[Any, ...],
    ) -> None:
        """Note the outcome of the next events in a region; ``payloads`` returns their payloads if they failed."""
        errors = [outcome for outcome in outcomes if isinstance(outcome, GamecastError)]
        if not errors:
            return
        if not self.callbacks and not self._is_logged:
            self._is_logged = True
            logger.warning(
                "an event for region %r %s: %s (of others like it nothing more is said here: see "
                "statistics().refused_events, and on_publish_error)",
                region,
                "was not published" if errors[0].definite else "may not have been published",
                errors[0],
            )
        if self.callbacks:
            self.callbacks.tell(PublishFailure(region, len(errors), errors[0], payloads()))
