"""Where a session continues: in the parked session of an earlier one of its name, or in a new place."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from gateway.caller import Caller
from gateway.ended import ABNORMAL
from gateway.gateway import Gateway
from gateway.messages import Position
from gateway.outbox import Outbox
from gateway.parked import ParkedSession
from gateway.refusal import Close
from sequencing.errors import NetworkError, Superseded

COMES_BACK = frozenset({1000, ABNORMAL, Close.SUPERSEDED, Close.EXPIRED})
"""Close codes after which a client may resume: it disconnected, needs a new token, or its next session is here."""


class Resumption:
    """The place of one session.

    A parked session is pending until the new session's first message about regions. That message shows whether the
    client received a prefix of what was sent there.
    """

    def __init__(self, gateway: Gateway, caller: Caller, outbox: Outbox) -> None:
        self._gateway, self._caller, self._outbox = gateway, caller, outbox
        self._place: ParkedSession | None = None
        self._kept: ParkedSession | None = None
        """Of an earlier session, until it is clear whether this session can continue it."""
        self._has_place = asyncio.Event()
        self._moves = 0
        """Subscribes, unsubscribes and retries in progress."""
        self._is_over = False

    @property
    def place(self) -> ParkedSession | None:
        """The place, None while it is undecided."""
        return self._place

    @property
    def is_pending(self) -> bool:
        """Whether there is a parked session, and it is undecided whether this session continues it."""
        return self._kept is not None

    async def begin(self, kept: ParkedSession | None) -> None:
        """Begin with the parked session of an earlier one, or open a new place."""
        self._kept = kept
        if kept is None:
            await self._open()

    async def settle(self, since: Mapping[str, Position] | None) -> bool:
        """Continue the parked session if its client received a prefix of what was sent there; resend what it missed.

        Otherwise, replace it with a new place. Returns whether the parked session was continued.
        """
        kept = self._kept
        assert kept is not None
        missed = kept.sent.after(since) if since is not None else None
        if missed is not None:
            try:
                await kept.connection.ping()
            except (Superseded, NetworkError):  # the client used another gateway meanwhile, or this is unknown
                missed = None
        self._kept = None
        if missed is None:
            self._gateway.connections.close_soon(kept.connection)
            await self._open()
            return False
        self._outbox.resend(missed)
        self._gateway.metrics.resumed(len(missed))
        self._gateway.audit.note("session-resumed", **self._caller.ids, missed=len(missed))
        self._take(kept)
        return True

    async def until_placed(self) -> ParkedSession:
        """Return the place, as soon as there is one."""
        await self._has_place.wait()
        assert self._place is not None
        return self._place

    async def place_to_publish(self) -> ParkedSession:
        """Return the place. A message that is not about a subscription decides against the parked session."""
        if self._kept is not None and not self._moves:
            await self.settle(None)
        return await self.until_placed()

    def move_begins(self) -> None:
        """Note that regions are about to be joined or left.

        Until `move_ended`, no other session can continue this place.
        """
        self._moves += 1

    def move_ended(self) -> None:
        """Note that the move is done."""
        self._moves -= 1

    def give_up(self) -> None:
        """Note that this session leaves no place to continue from."""
        self._is_over = True

    def leave(self, close_code: int) -> None:
        """Park the place if the client can resume there; otherwise close its connection."""
        place = self._place or self._kept
        if place is None:
            return
        may_come_back = close_code in COMES_BACK and not self._is_over
        if may_come_back and not (self._moves and place is self._place) and not place.is_uncertain:
            self._gateway.keep(self._caller.name, place)
        else:
            self._gateway.connections.close_soon(place.connection)

    async def _open(self) -> None:
        connection = await self._gateway.connect(self._caller.name)
        limits, subject = self._gateway.settings.limits, self._caller.grant.subject
        most = {"resent_events_max": limits.resent_events_max, "resent_bytes_max": limits.resent_bytes_max}
        self._take(ParkedSession(connection, subject=subject, **most))

    def _take(self, place: ParkedSession) -> None:
        self._place = place
        self._has_place.set()
