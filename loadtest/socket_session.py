"""One WebSocket of a gateway client (docs/gateway.md), and its deliveries."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import websocket

from gamecast.errors import Unreachable
from loadtest.crew import Crew
from loadtest.presence import Mark, Presence, mark_of, marked
from sequencing.errors import GamecastError, NetworkError

WAY = "socket"
ANSWER_S_MAX = 60.0
OUTSTANDING_S_MAX = 5.0


class Answered(NetworkError):
    """The gateway answered with an error."""


class Refused(Answered):
    """The gateway answered with an error, and the request certainly had no effect."""

    definite = True


def answered(error: Mapping[str, Any]) -> Answered:
    """Return the exception for an error message of the gateway."""
    kind = Refused if error.get("definite") else Answered
    return kind(f"{error.get('code')}: {error.get('message')}")


class SocketSession:
    """A session from `open` to `close`. ``user``: the client's name; ``number``: the number of its socket.

    ``token``: its signed token, if the gateway needs one.
    """

    def __init__(self, crew: Crew, user: str, number: int, token: str) -> None:
        self._token = token
        self.crew = crew
        self.user = user
        self.presence = Presence(crew, user, number, way=WAY)
        self._socket: websocket.WebSocket | None = None
        self._ids = itertools.count(1)
        self._events: dict[int, str] = {}
        """Request ID → the event that it publishes."""
        self._answers: dict[int, _Answer] = {}
        self._closing = False
        self.lost = False
        self._reader = threading.Thread(target=self._read, name=f"read {user}", daemon=True)

    def open(self) -> None:
        """Connect and say hello. Raises `GamecastError`."""
        options = self.crew.options
        try:
            self._socket = websocket.create_connection(socket_url(options.gateway), timeout=ANSWER_S_MAX)
            hello = {"type": "hello", "protocol": 1, "name": self.user}
            self._socket.send(json.dumps(hello | ({"token": self._token} if self._token else {})))
            welcome = json.loads(self._socket.recv())
            self._socket.settimeout(None)
        except (OSError, ValueError, websocket.WebSocketException) as error:
            raise Unreachable(f"no session at {options.gateway}: {error}") from error
        if welcome.get("type") != "welcome":
            raise answered(welcome)
        self.presence.user = str(welcome["name"])
        self._reader.start()
        self.crew.sessions.add(self)

    @property
    def regions(self) -> list[str]:
        """The regions that the session has joined or asked for."""
        return list(self.presence.stays)

    def join(self, *regions: str) -> None:
        """Subscribe, and report the duration."""
        stays = self.presence.asked(regions)
        began_s = time.perf_counter()
        # The reader notes the join, so that it precedes the messages after the answer.
        answer = _Answer(lambda: self.presence.joined(stays))
        try:
            self._ask({"type": "subscribe", "regions": list(regions)}, answer)
        except GamecastError as error:
            self.crew.fire("join", WAY, (time.perf_counter() - began_s) * 1e3, error)
        else:
            self.crew.fire("join", WAY, (time.perf_counter() - began_s) * 1e3, None)

    def leave(self, region: str) -> None:
        """Unsubscribe. Returns when no more events of the region can arrive."""
        answer = _Answer(lambda: self.presence.left(region))
        try:
            self._ask({"type": "unsubscribe", "regions": [region]}, answer)
        except GamecastError as error:
            self.crew.fire("leave", WAY, 0, error)

    def publish(self, mark: Mark, region: str, payload: Mapping[str, object]) -> None:
        """Publish, without waiting for the ack. Raises `GamecastError` if the socket is closed."""
        number = next(self._ids)
        self.presence.calls(mark.event, region, mark.due_ns)
        self._events[number] = mark.event
        body = marked(payload, mark, run=self.crew.options.run)
        self._send({"type": "publish", "id": number, "region": region, "payload": body})

    def sample(self) -> dict[str, int]:
        """See `loadtest.crew.Reporting`."""
        return {"outstanding": self.presence.outstanding}

    def close(self) -> None:
        """Wait for pending acks, and close. Calling it again is harmless."""
        if self._closing:
            return
        deadline_s = time.monotonic() + OUTSTANDING_S_MAX
        while self.presence.unanswered and not self.lost and time.monotonic() < deadline_s:
            time.sleep(0.01)
        self._closing = True
        if self._socket is not None:
            self._socket.close(timeout=1)
        if self._reader.is_alive():
            self._reader.join(OUTSTANDING_S_MAX)
        self.presence.end()
        self.crew.sessions.discard(self)

    def _ask(self, message: dict[str, Any], answer: _Answer) -> None:
        number = next(self._ids)
        self._answers[number] = answer
        try:
            self._send(message | {"id": number})
            if not answer.came.wait(ANSWER_S_MAX):
                raise Unreachable(f"no answer to {message['type']} within {ANSWER_S_MAX:g} s")
        finally:
            self._answers.pop(number, None)
        if answer.error is not None:
            raise answer.error

    def _send(self, message: dict[str, Any]) -> None:
        if self._socket is None or self.lost:
            raise Unreachable("the socket is closed")
        try:
            self._socket.send(json.dumps(message))
        except (OSError, websocket.WebSocketException) as error:
            raise Unreachable(f"the socket is closed: {error}") from error

    def _read(self) -> None:
        assert self._socket is not None
        try:
            while text := self._socket.recv():
                self._take(json.loads(text))
            gone = "the gateway closed it"
        except (OSError, ValueError, websocket.WebSocketException) as error:
            gone = str(error)
        self.lost = True
        if not self._closing:
            self.crew.fire("socket", WAY, 0, Unreachable(f"the socket was lost: {gone}"))
        for answer in list(self._answers.values()):
            answer.fail(Unreachable(f"the socket was lost: {gone}"))

    def _take(self, said: dict[str, Any]) -> None:
        match said.get("type"):
            case "events":
                now_ns = time.time_ns()
                for item in said["events"]:
                    self._take_item(item, now_ns)
            case "acks":
                for ack in said["acks"]:
                    if (event := self._events.pop(ack["id"], None)) is not None:
                        self.presence.acknowledged(event, ack["position"])
            case "error":
                self._take_error(said)
            case "subscribed" | "unsubscribed" | "pong":
                if (answer := self._answers.get(said.get("id", 0))) is not None:
                    answer.succeed()

    def _take_item(self, item: dict[str, Any], now_ns: int) -> None:
        if "gap" in item:
            self.crew.journal.gap(self.presence.subscriber, json.dumps(item))
            return
        if (mark := mark_of(item["payload"], run=self.crew.options.run)) is not None:
            self.presence.delivered(
                mark.event,
                item["region"],
                sender=item["sender"],
                position=item["position"],
                late_ms=(now_ns - mark.due_ns) / 1e6,
            )

    def _take_error(self, said: dict[str, Any]) -> None:
        number, error = said.get("id", 0), answered(said)
        if (event := self._events.pop(number, None)) is not None:
            self.presence.failed(event, error, definite=error.definite)
        elif (answer := self._answers.get(number)) is not None:
            answer.fail(error)
        else:
            self.crew.fire("socket", WAY, 0, error)


class _Answer:
    """A pending answer: the reader calls ``then`` when it arrives, and the requester waits for ``came``."""

    def __init__(self, then: Any) -> None:
        self._then = then
        self.came = threading.Event()
        self.error: GamecastError | None = None

    def succeed(self) -> None:
        self._then()
        self.came.set()

    def fail(self, error: GamecastError) -> None:
        self.error = error
        self.came.set()


def socket_url(gateway: str) -> str:
    """Return the WebSocket URL for a gateway's ``http://`` or ``https://`` URL."""
    parts = urlsplit(gateway)
    scheme = {"http": "ws", "https": "wss"}.get(parts.scheme, parts.scheme)
    return urlunsplit((scheme, parts.netloc, f"{parts.path.rstrip('/')}/v1/socket", "", ""))
