"""One publisher that posts to the gateway over HTTP (docs/gateway.md), one event at a time.

The idempotency key is the event's ID, so a request whose answer was lost can be repeated safely.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from urllib.parse import quote, urlsplit

from gamecast.errors import Unreachable
from loadtest.crew import Crew
from loadtest.presence import Mark, Presence, marked
from loadtest.socket_session import answered
from sequencing.errors import GamecastError

WAY = "http"
ANSWER_S_MAX = 60.0
TRIES = 2
OK = 200


class PosterSession:
    """A session from `open` to `close`, without regions. The gateway's name is the events' sender: see `Presence`."""

    def __init__(self, crew: Crew, user: str, number: int) -> None:
        self.crew = crew
        self.presence = Presence(crew, user, number, way=WAY)
        parts = urlsplit(crew.options.gateway)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._connection = kind(parts.netloc, timeout=ANSWER_S_MAX)
        self._prefix = parts.path.rstrip("/")
        self.lost = False
        self._closing = False

    def open(self) -> None:
        """Connect. Raises `GamecastError`."""
        try:
            self._connection.connect()
        except OSError as error:
            raise Unreachable(f"no gateway at {self.crew.options.gateway}: {error}") from error
        self.crew.sessions.add(self)

    @property
    def regions(self) -> list[str]:
        """None: it only publishes."""
        return []

    def join(self, *regions: str) -> None:
        """Do nothing."""

    def leave(self, region: str) -> None:
        """Do nothing."""

    def publish(self, mark: Mark, region: str, payload: Mapping[str, object]) -> None:
        """Post an event, and wait for the answer."""
        event, body = mark.event, marked(payload, mark, run=self.crew.options.run)
        self.presence.calls(event, region, mark.due_ns)
        error: GamecastError | None = None
        for _ in range(TRIES):
            try:
                position = self._post(event, region, body)
            except GamecastError as raised:
                error = raised
                if error.definite:
                    break
            else:
                self.presence.acknowledged(event, position)
                return
        assert error is not None
        self.presence.failed(event, error, definite=error.definite)

    def sample(self) -> dict[str, int]:
        """See `loadtest.crew.Reporting`."""
        return {"outstanding": self.presence.outstanding}

    def close(self) -> None:
        """Close the session. Calling it again is harmless."""
        if not self._closing:
            self._closing = True
            self._connection.close()
            self.presence.end()
            self.crew.sessions.discard(self)

    def _post(self, event: str, region: str, payload: Mapping[str, object]) -> str:
        headers = {"Content-Type": "application/json", "Idempotency-Key": event}
        if self.crew.options.token:
            headers["Authorization"] = f"Bearer {self.crew.options.token}"
        body = json.dumps({"payload": payload})
        place = f"{self._prefix}/v1/regions/{quote(region, safe='')}/events"
        try:
            self._connection.request("POST", place, body, headers)
            response = self._connection.getresponse()
            said = json.loads(response.read())
        except (OSError, ValueError, http.client.HTTPException) as error:
            self._connection.close()  # the next request connects again
            raise Unreachable(f"no answer from {self.crew.options.gateway}: {error}") from error
        if response.status != OK:
            raise answered(said.get("error", said))
        return str(said["position"])
