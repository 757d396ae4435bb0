"""Who is at the other end of a session: the name, the token, what it reads, and when it was last heard."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from adapters.gateway.ended import Ended
from adapters.gateway.grants import Grant
from adapters.gateway.historybudget import HistoryBudget
from adapters.gateway.messages import PROTOCOL, Close
from adapters.gateway.settings import GatewayLimits


class Caller:
    """The client of one session, as all parts of the session know it."""

    def __init__(self, session: str, *, peer: str, grant: Grant | None) -> None:
        """``session``: its id; ``grant``: of a token that came with the request; the hello may bring another."""
        self.session, self.peer = session, peer
        self.name = ""
        self.regions: set[str] = set()
        """Those that were asked for."""
        self.past = HistoryBudget()
        self.given = grant
        """None until it is clear what the client may do; a session that has begun has `grant`."""
        self._heard_at = self._begun_at = time.monotonic()
        self._renewed = asyncio.Event()

    @property
    def grant(self) -> Grant:
        """What the client may do, once that is clear."""
        assert self.given is not None
        return self.given

    @property
    def subject(self) -> str | None:
        """Whose session it is."""
        return self.given.subject if self.given is not None else None

    @property
    def ids(self) -> dict[str, Any]:
        """What the audit log tells sessions apart by."""
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
        """What the game's backend learns of the session, besides its token."""
        return {"transport": "websocket", "session": self.session, "name": self.name, "peer": self.peer}

    def heard(self) -> None:
        """Note that something came from the client."""
        self._heard_at = time.monotonic()

    def renew(self, grant: Grant) -> None:
        """Go on with a newer token."""
        self.given = grant
        self._begun_at = time.monotonic()
        self._renewed.set()

    def welcome(self, gateway: str, limits: GatewayLimits) -> dict[str, Any]:
        """Return the fields of the message that greets the client. ``gateway``: its id."""
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
        """Wait until the token expires, the session is of no use, or has lasted long enough; then raise `Ended`."""
        while True:
            self._renewed.clear()
            now = time.monotonic()
            waits = [limits.idle_timeout_s - (now - self._heard_at), limits.session_s - (now - self._begun_at)]
            if waits[-1] <= 0:
                raise Ended(Close.GOING_AWAY, "the session has lasted long enough: go on in a new one")
            if self.grant.expires_at_s is not None:
                waits.append(self.grant.expires_at_s - time.time())
                if waits[-1] <= 0:
                    raise Ended(Close.EXPIRED, "the token has expired: say hello with a new one before")
            if waits[0] <= 0:
                if not self.regions:
                    raise Ended(Close.IDLE, "no subscription and no message for too long")
                self._heard_at = time.monotonic()
            try:
                async with asyncio.timeout(max(0.01, min(waits))):
                    await self._renewed.wait()
            except TimeoutError:
                pass
