"""What all sessions and requests of one gateway share: network access, guard, sessions and counters."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from aiohttp import web

from gamecast.client.client import Client
from gateway.access import ClientAccess
from gateway.audit import AuditLog
from gateway.connections import Connections
from gateway.eventmessages import is_presence
from gateway.eventtexts import EventTexts
from gateway.grants import ANYBODY, SEPARATOR, Grant, Subject, Subjects
from gateway.guard import Guard
from gateway.hooks import Hooks
from gateway.listening import Addresses
from gateway.metrics import GatewayMetrics
from gateway.parked import KeptPlaces, ParkedSession
from gateway.refusal import Close, Code, Refusal
from gateway.regions import check_visible
from gateway.replaycache import ReplayCache
from gateway.revocations import Revocation
from gateway.settings import GatewaySettings
from gateway.states import is_state
from sequencing.errors import GamecastError, InvalidName
from sequencing.names import GUEST, check_connection_name, check_own_name

if TYPE_CHECKING:
    from gateway.tracing import Tracing

logger = logging.getLogger("gamecast.gateway")


REGIONS_LOOK_S = 1.0
"""The minimum interval between two requests for the list of regions."""


class Leaving(Protocol):
    """A session, or an event stream: it can be told to end."""

    @property
    def grant(self) -> Grant:
        """What its client may do now."""

    def leave(self, close_code: int, reason: str) -> None:
        """End the session or the stream."""


class Named(Leaving, Protocol):
    """A session: it has a name, which another session of its subject may take over."""

    gone: asyncio.Event
    """Set when its name is free for another session."""
    closed: asyncio.Event
    """Set after that, when its client has the close reason, or cannot get it."""

    @property
    def name(self) -> str:
        """The name that other clients see as the sender; empty before the hello."""

    @property
    def subject(self) -> str | None:
        """The subject of the session."""

    @property
    def place(self) -> ParkedSession | None:
        """Where it is in the network, None while it is undecided."""


Tap = Callable[[Sequence[Any]], None]
"""Called with each batch of events and gaps at its delivery; must return quickly."""


class Gateway:
    """One gateway, from `open` to `close`."""

    def __init__(
        self,
        access: ClientAccess,
        settings: GatewaySettings,
        *,
        guard: Guard,
        replay_cache: ReplayCache,
        audit: AuditLog | None = None,
    ) -> None:
        self.id = f"g-{secrets.token_hex(4)}"
        self.access, self.settings, self.guard, self.replay_cache = access, settings, guard, replay_cache
        self.audit = audit or AuditLog(None)
        self.audit.gateway = self.id
        self.metrics = GatewayMetrics()
        self.hooks = Hooks(settings, self.metrics, gateway=self.id)
        self.texts = EventTexts(self._first_seen)
        self.addresses = Addresses(settings.limits.connections_per_address_max)
        self.sessions: set[Named] = set()
        self.before_metrics: list[Callable[[], Awaitable[None]]] = []
        """Called before metrics are read."""
        self.tracing: Tracing | None = None
        self._subjects = Subjects(settings.limits)
        self._regions: set[str] = set()
        """The known regions, as of the last request for them."""
        self._regions_at = -REGIONS_LOOK_S
        self._by_name: dict[str, Named] = {}
        self.connections = Connections(access, lambda error: self.log("connection-broke", error=repr(error)))
        self._kept = KeptPlaces(settings.limits, self.connections.close_soon)
        self.metrics.kept_sessions.set_function(lambda: len(self._kept))
        self._entered: dict[Leaving, Subject] = {}
        self._nobody_is_here = asyncio.Event()
        self._nobody_is_here.set()
        self._keys_error: str | None = None
        """The error of the last check of the keys."""
        self.is_leaving = False
        self.taps: list[Tap] = []
        """Called with what sessions and event streams deliver."""

    def seconds_left(self, grant: Grant) -> float | None:
        """Return how many seconds a grant is still accepted, None if it does not expire."""
        return grant.seconds_left(self.settings.limits.token_leeway_s)

    def new_id(self, kind: str) -> str:
        """Return an id for logs."""
        return f"{kind}-{secrets.token_hex(6)}"

    def subject(self, grant: Grant) -> Subject:
        """Return what all sessions and requests of a subject share."""
        return self._subjects.of(grant)

    async def admit_regions(self, grant: Grant, regions: Iterable[str]) -> None:
        """Count the regions that do not exist yet and are about to; raises `Refusal` if there are too many."""
        new = set(regions) - self._regions
        if new and time.monotonic() >= self._regions_at + REGIONS_LOOK_S:
            self._regions_at = time.monotonic()
            self._regions = set(await self.access.regions())
            new -= self._regions
        if new:
            self.subject(grant).require_regions(len(new))
            self._regions |= new

    def session_name(self, grant: Grant, wanted: str | None) -> str:
        """Return a session's name: the wanted one, with the guests' prefix where it is needed; raises `Refusal`."""
        if wanted is None:
            prefix = "web" if grant.subject == ANYBODY else grant.subject
            return f"{GUEST}{prefix}{SEPARATOR}{secrets.token_hex(6)}"
        try:
            name = grant.require_name(check_own_name(wanted.removeprefix(GUEST)))
            return check_connection_name(GUEST + check_visible(name, "connection name"))
        except InvalidName as error:
            raise Refusal(Code.MALFORMED, str(error)) from error

    def enter_session(self, session: Named, grant: Grant) -> None:
        """Count a session; raises `Refusal` if there are too many."""
        self.enter(session, grant)
        self.sessions.add(session)

    def enter(self, leaving: Leaving, grant: Grant) -> None:
        """Count an event stream; raises `Refusal` if there are too many."""
        limits = self.settings.limits
        if self.is_leaving:
            raise Refusal(
                Code.LIMIT, "the gateway is shutting down: connect to another one", status=503, retriable=True
            )
        if len(self._entered) >= limits.sessions_max:
            raise Refusal(Code.LIMIT, "the gateway is full: connect to another one", status=503, retriable=True)
        subject = self.subject(grant)
        subject.enter(grant)
        self._entered[leaving] = subject
        self._nobody_is_here.clear()
        self.metrics.sessions.set(len(self._entered))

    def leave_session(self, session: Named) -> None:
        """Note that a session has ended; has no effect when repeated."""
        self.sessions.discard(session)
        if self._by_name.get(session.name) is session:
            del self._by_name[session.name]
        self.leave(session)

    def leave(self, leaving: Leaving) -> None:
        """Note that an event stream has ended; has no effect when repeated."""
        if (subject := self._entered.pop(leaving, None)) is not None:
            subject.leave()
        if not self._entered:
            self._nobody_is_here.set()
        self.metrics.sessions.set(len(self._entered))

    async def connect(self, name: str) -> Client:
        """Return an open connection for a reader; see `Connections.open`."""
        connection = self.access.connection(
            name, when_behind=self.settings.when_behind, **self.settings.limits.connection
        )
        await self.connections.open(connection)
        return connection

    async def place_of(self, session: Named) -> ParkedSession | None:
        """End an earlier session of this name and subject, if there is one; return its parked session."""
        assert session.subject is not None
        before = self._by_name.get(session.name)
        self._by_name[session.name] = session
        if before is not None and before.subject == session.subject:
            before.leave(Close.SUPERSEDED, "another session took over this name")
            await before.gone.wait()
        return self._kept.take(session.name, session.subject)

    def places(self) -> list[tuple[str, ParkedSession]]:
        """Return the name and the place of each session, and of each parked one."""
        open_places = [(session.name, session.place) for session in self.sessions]
        return [*self._kept.items(), *((name, place) for name, place in open_places if place is not None)]

    def keep(self, name: str, place: ParkedSession) -> None:
        """Park a session for some seconds after its client disconnected."""
        if self.is_leaving:
            self.connections.close_soon(place.connection)
        else:
            self._kept.put(name, place)

    def delivered(self, batch: Sequence[Any]) -> None:
        """Pass the events and gaps of a batch to all taps."""
        for tap in self.taps:
            tap([item for item in batch if not is_state(item) and not is_presence(item)])

    async def look_after(self) -> None:
        """End the sessions and streams whose tokens are no longer valid."""
        new: list[Revocation] = []
        try:
            new = await self.guard.look()
        except GamecastError as error:
            self.log("revocations-unknown", error=error)
        except Exception as error:  # noqa: BLE001 - whatever it is, the next look may do
            self.incident("revocations-broke", error)
        for leaving in list(self._entered):
            if (told := self.guard.ends(leaving.grant, new)) is not None:
                leaving.leave(*told)
        keys_error = self.guard.keys_error
        self.metrics.keys_broken.set(keys_error is not None)
        if keys_error is not None and keys_error != self._keys_error:
            self.log("keys-broken", error=keys_error)
        self._keys_error = keys_error

    def refused(self, code: Code, message: str, **ids: Any) -> None:
        """Count and log a refusal."""
        self.metrics.refused(str(code))
        self.audit.note("refused", code=str(code), reason=message, **ids)

    def _first_seen(self, event: Any) -> None:
        self.metrics.delivered(event.region, (event.delivered_at_ns - event.sent_at_ns) / 1e9)
        if self.tracing is not None:
            self.tracing.delivered(event)

    def log(self, what: str, **fields: Any) -> None:
        """Write a structured line to the log."""
        logger.warning("%s %s", what, _listed(fields))

    def incident(self, what: str, error: Exception, **fields: Any) -> str:
        """Log an unexpected error with its traceback; return the id by which the log entry can be found."""
        incident = self.new_id("i")
        logger.error("%s incident=%s %s", what, incident, _listed(fields), exc_info=error)
        return incident

    async def drain(self) -> None:
        """Tell all clients to use another gateway; wait up to ``drain_s`` for their sessions to end."""
        self.is_leaving = True
        self._kept.clear()
        sessions = list(self.sessions)
        for session in list(self._entered):
            session.leave(Close.GOING_AWAY, "the gateway is shutting down: connect to another one")
        with suppress(TimeoutError):
            async with asyncio.timeout(self.settings.limits.drain_s):
                await self.everybody_left()
                for each in sessions:
                    await each.closed.wait()

    async def everybody_left(self) -> None:
        """Wait until no session and no event stream is left."""
        await self._nobody_is_here.wait()


GATEWAY: web.AppKey[Gateway] = web.AppKey("gateway", Gateway)
Extension = Callable[[web.Application, Gateway], None]
"""Adds its own routes to a gateway: the dashboard, for example."""


def _listed(fields: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in fields.items())
