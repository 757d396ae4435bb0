"""The client of a session: its name, its token, its regions, and the time of its last message."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from gateway.ended import Ended
from gateway.grants import Grant
from gateway.historybudget import HistoryBudget
from gateway.refusal import Close
from gateway.schema import PROTOCOL
from gateway.settings import GatewayLimits


class Caller:
    """The client of one session, as all parts of the session see it."""

    def __init__(self, session: str, *, peer: str, grant: Grant | None) -> None:
        """``session``: its id; ``grant``: from a token in the request; the hello may have another token."""
        self.session, self.peer = session, peer
        self.name = ""
        self.regions: set[str] = set()
        """The regions that the client asked for."""
        self.past = HistoryBudget()
        self.given = grant
        """The grant of the client's token, None until the token is checked; a running session always has `grant`."""
        self._heard_at = self._begun_at = time.monotonic()
        self._renewed = asyncio.Event()

    @property
    def grant(self) -> Grant:
        """What the client may do; available after the check of its token."""
        assert self.given is not None
        return self.given

    @property
    def subject(self) -> str | None:
        """The subject of the session."""
        return self.given.subject if self.given is not None else None

    @property
    def ids(self) -> dict[str, Any]:
        """The fields that identify the session in the audit log."""
        token_id = self.given.token_id if self.given is not None else None
        return {
            "session": self.session,
            "subject": self.subject,
            "token_id": token_id,
            "name": self.name or None,
            "peer": self.peer,
        }

    @property
    def asker(self) -> dict[str, Any]:
        """What the game's backend receives about the session, besides its token."""
        return {"transport": "websocket", "session": self.session, "name": self.name, "peer": self.peer}

    def heard(self) -> None:
        """Note that the client sent something."""
        self._heard_at = time.monotonic()

    def renew(self, grant: Grant) -> None:
        """Continue with a newer token."""
        self.given = grant
        self._begun_at = time.monotonic()
        self._renewed.set()

    def welcome(self, gateway: str, limits: GatewayLimits) -> dict[str, Any]:
        """Return the fields of the welcome message. ``gateway``: its id."""
        grant = self.grant
        return {
            "protocol": PROTOCOL,
            "gateway": gateway,
            "session": self.session,
            "name": self.name,
            "heartbeat_ms": round(limits.heartbeat_s * 1000),
            "expires_at_ms": round(grant.expires_at_s * 1000) if grant.expires_at_s is not None else None,
            "limits": {
                "message_bytes": limits.message_bytes_max,
                "payload_bytes": min(grant.payload_bytes_max or limits.payload_bytes_max, limits.payload_bytes_max),
                "messages_per_array": limits.messages_per_array_max,
                "regions": limits.regions_per_session_max,
                "unanswered": limits.unanswered_max,
            },
        }

    async def watch(self, limits: GatewayLimits) -> None:
        """Wait until the session must end, then raise `Ended`.

        Reasons are an expired token, idleness and the maximum age.
        """
        while True:
            self._renewed.clear()
            now = time.monotonic()
            waits = [limits.idle_timeout_s - (now - self._heard_at), limits.session_s - (now - self._begun_at)]
            if waits[-1] <= 0:
                raise Ended(Close.GOING_AWAY, "the session has reached its maximum age: connect again")
            if (left_s := self.grant.seconds_left(limits.token_leeway_s)) is not None:
                waits.append(left_s)
                if waits[-1] <= 0:
                    raise Ended(Close.EXPIRED, "the token has expired: send a hello with a new token before it expires")
            if waits[0] <= 0:
                if not self.regions:
                    raise Ended(Close.IDLE, "the session was idle too long: it had no subscription and sent no message")
                self._heard_at = time.monotonic()
            try:
                async with asyncio.timeout(max(0.01, min(waits))):
                    await self._renewed.wait()
            except TimeoutError:
                pass
