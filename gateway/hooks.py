"""Hooks: the game's own backend decides whether clients may connect, subscribe and publish.

Each hook is a URL to which the gateway POSTs JSON, signed with a secret that it shares with the backend. If a hook
fails several times in a row, it is not called for a while: its circuit breaker is open (Nygard 2007, "Release It!"). A
call continues to its end, or its time-out, even if the client disconnects meanwhile. So every call counts for the
breaker.
"""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeVar

import aiohttp
import orjson
import pybreaker

from gateway.grants import ANYBODY, Grant
from gateway.listening import SeldomLog
from gateway.messages import read_json, read_payload, read_region, written_about
from gateway.metrics import GatewayMetrics
from gateway.refusal import Code, Refusal
from gateway.settings import GatewayLimits, GatewaySettings, HookName, HookSettings

logger = logging.getLogger("gamecast.gateway")
Decision = TypeVar("Decision")

CALLS_AT_ONCE = 8
"""How many calls may be in progress at a time for events of one session, or of one HTTP request."""
IDLE_S = 2.0
"""How long an idle connection to the backend is kept. Servers usually keep it longer, so that none closes in use."""
REASON_LETTERS_MAX = 200
NEVER_S = 1e9
"""Disables the breaker's own timer, which uses the time of day and may jump; the event loop ends the pause instead."""
_BREAKER_STATES = {pybreaker.STATE_CLOSED: 0.0, pybreaker.STATE_HALF_OPEN: 0.5, pybreaker.STATE_OPEN: 1.0}


@dataclass(frozen=True, slots=True)
class Approval:
    """What the backend adds when it lets a client connect."""

    fields: dict[str, Any]
    """Fields of the welcome: ``subscribe``, regions to subscribe to, and ``data``; each only if the backend sent it."""


class Hooks:
    """Calls the game's backend; without hooks, everything is allowed at once."""

    def __init__(self, settings: GatewaySettings, metrics: GatewayMetrics, *, gateway: str) -> None:
        """``gateway``: its id."""
        self._gateway, self._limits = gateway, settings.limits
        given = settings.hooks
        self._hooks = {name: _Hook(name, given, self._limits, metrics) for name in (given.urls if given else ())}

    def asks(self, name: HookName) -> bool:
        """Return whether this hook is configured."""
        return name in self._hooks

    async def connect(self, grant: Grant, **asker: Any) -> Approval:
        """Ask whether a session or an event stream may begin; raises `Refusal`."""
        if (hook := self._hooks.get("connect")) is None:
            return Approval({})
        return await hook.ask(self._question(grant, asker), lambda answer: self._approval(answer, grant), Approval({}))

    async def subscribe(self, grant: Grant, regions: Sequence[str], **asker: Any) -> None:
        """Ask whether the client may subscribe to all of the regions; raises `Refusal`."""
        if (hook := self._hooks.get("subscribe")) is not None:
            await hook.ask(self._question(grant, asker) | {"regions": list(regions)}, lambda answer: None, None)

    async def publish(
        self,
        grant: Grant,
        region: str,
        payload: Any,
        *,
        about: Mapping[str, Any] = MappingProxyType({}),
        regions: Sequence[str] = (),
        retry: bool = False,
        **asker: Any,
    ) -> Any:
        """Ask whether an event may be published; return its payload, which the backend may replace; raises `Refusal`.

        ``about``: what the event says of keys; ``regions``: all that it has, where it lists them; ``retry``: it may
        have been published before, so a refusal says nothing about the first attempt.
        """
        if (hook := self._hooks.get("publish")) is None:
            return payload
        question = self._question(grant, asker) | {"region": region, "retry": retry, **_content(payload)}
        question |= written_about(about)
        if regions:
            question["regions"] = list(regions)
        try:
            return await hook.ask(question, lambda answer: self._payload(answer, grant, payload), payload)
        except Refusal as refusal:
            refusal.definite = not retry
            raise

    async def close(self) -> None:
        """Cancel all calls."""
        for hook in self._hooks.values():
            await hook.close()

    def _question(self, grant: Grant, asker: Mapping[str, Any]) -> dict[str, Any]:
        subject = None if grant.subject == ANYBODY else grant.subject
        return {"gateway": self._gateway, **asker, "subject": subject, "claims": grant.claims}

    def _approval(self, answer: Mapping[str, Any], grant: Grant) -> Approval:
        fields: dict[str, Any] = {}
        if (regions := answer.get("subscribe")) is not None:
            most = self._limits.regions_per_session_max
            if not isinstance(regions, list) or len(regions) > most:
                raise Refusal(Code.MALFORMED, f"subscribe must be a list of at most {most} regions")
            fields["subscribe"] = list(dict.fromkeys(map(read_region, regions)))
            for region in fields["subscribe"]:
                grant.require_read(region)
        if "data" in answer:
            fields["data"], _ = read_payload({"payload": answer["data"]})
        return Approval(fields)

    def _payload(self, answer: Mapping[str, Any], grant: Grant, payload: Any) -> Any:
        if "payload" not in answer and "base64" not in answer:
            return payload
        replaced, size = read_payload(answer)
        most = min(grant.payload_bytes_max or self._limits.payload_bytes_max, self._limits.payload_bytes_max)
        if size > most:
            raise Refusal(Code.TOO_LARGE, f"its payload has {size} bytes, and the limit is {most}")
        return replaced


class _Down(Exception):
    """The backend did not answer. ``reason``: for metrics and logs."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class _Hook:
    """One hook: its calls in progress, and its circuit breaker."""

    def __init__(
        self, name: HookName, settings: HookSettings | None, limits: GatewayLimits, metrics: GatewayMetrics
    ) -> None:
        assert settings is not None
        self._name, self._url, self._secret = name, settings.urls[name], settings.secret
        self._when_down, self._limits, self._metrics = settings.when_down, limits, metrics
        self._slots = asyncio.Semaphore(limits.hook_calls_max)
        self._client: aiohttp.ClientSession | None = None
        self._under_way: set[asyncio.Task[bytes]] = set()
        self._log = SeldomLog()
        self._breaker = pybreaker.CircuitBreaker(
            fail_max=limits.hook_failures_max,
            reset_timeout=NEVER_S,
            listeners=[_BreakerListener(self)],
            name=name,
            throw_new_error_on_trip=False,
        )
        self._pause: asyncio.TimerHandle | None = None
        metrics.hook_breaker(name, 0.0)

    async def ask(
        self, question: Mapping[str, Any], read: Callable[[Mapping[str, Any]], Decision], undecided: Decision
    ) -> Decision:
        """Return what ``read`` makes of the backend's answer, if it allows the request; raises `Refusal`.

        ``read`` raises `Refusal` for an invalid answer. ``undecided``: the result if the backend does not answer and
        the operator allows requests in that case.
        """
        try:
            text = await self._answer(_written({"hook": self._name, **question}))
        except _Down as down:
            self._metrics.hook_failed(self._name, down.reason)
            self._log.note(f"hook-failed hook={self._name} reason={down.reason}")
            if self._when_down == "allow":
                self._metrics.hook_decided(self._name, "let-through")
                return undecided
            self._metrics.hook_decided(self._name, "refused")
            raise self._refusal("the game's backend does not answer: try again later") from down
        try:
            answer = _read_answer(text, self._limits.message_bytes_max)
            decision = read(answer) if answer["allow"] else undecided
        except Refusal as broken:
            self._metrics.hook_failed(self._name, "nonsense")
            self._metrics.hook_decided(self._name, "refused")
            self._log.note(f"hook-answered-nonsense hook={self._name}: {broken.message[:REASON_LETTERS_MAX]}")
            raise self._refusal("the game's backend gave an invalid answer: see the gateway's log") from broken
        if not answer["allow"]:
            self._metrics.hook_decided(self._name, "denied")
            reason = answer.get("reason") or "the game does not allow it"
            raise Refusal(Code.DENIED, reason[:REASON_LETTERS_MAX], status=403)
        self._metrics.hook_decided(self._name, "allowed")
        return decision

    def state_changed(self, state: str) -> None:
        """Note the breaker's new state; schedule the end of its pause."""
        self._metrics.hook_breaker(self._name, _BREAKER_STATES[state])
        logger.warning("hook-breaker hook=%s state=%s", self._name, state)
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None
        if state == pybreaker.STATE_OPEN:
            self._pause = asyncio.get_running_loop().call_later(self._limits.hook_pause_s, self._breaker.half_open)

    async def close(self) -> None:
        """Cancel all calls."""
        if self._pause is not None:
            self._pause.cancel()
        for task in self._under_way:
            task.cancel()
        if self._under_way:
            await asyncio.wait(self._under_way)
        if self._client is not None:
            await self._client.close()

    async def _answer(self, body: bytes) -> bytes:
        """Return the body of the backend's answer; raises `_Down`."""
        self._require_closed()
        deadline_s = asyncio.get_running_loop().time() + self._limits.hook_timeout_s
        try:
            async with asyncio.timeout_at(deadline_s):
                await self._slots.acquire()
        except TimeoutError as error:
            raise _Down("too-many-calls") from error
        try:
            self._require_closed()  # the breaker may have opened meanwhile
        except _Down:
            self._slots.release()
            raise
        task = asyncio.create_task(self._call(body), name=f"gamecast gateway {self._name} hook")
        self._under_way.add(task)
        task.add_done_callback(self._done)
        return await asyncio.shield(task)

    def _done(self, task: asyncio.Task[bytes]) -> None:
        self._under_way.discard(task)
        self._slots.release()
        if not task.cancelled():
            task.exception()  # retrieved here, as a disconnected client does not retrieve it

    def _require_closed(self) -> None:
        """Raise `_Down` while the breaker is open; after its pause, let one call at a time try the backend again."""
        state = self._breaker.current_state
        if state == pybreaker.STATE_OPEN or (state == pybreaker.STATE_HALF_OPEN and self._under_way):
            raise _Down("breaker-open")

    async def _call(self, body: bytes) -> bytes:
        begun = time.perf_counter()
        try:
            with self._breaker.calling():
                try:
                    async with asyncio.timeout(self._limits.hook_timeout_s):
                        return await self._post(body)
                except TimeoutError as error:
                    raise _Down("timeout") from error
                except (aiohttp.ClientError, OSError) as error:
                    raise _Down("connection") from error
        except pybreaker.CircuitBreakerError as error:
            raise _Down("breaker-open") from error
        finally:
            self._metrics.hook_took(self._name, time.perf_counter() - begun)

    async def _post(self, body: bytes) -> bytes:
        if self._client is None:
            self._client = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=self._limits.hook_calls_max, keepalive_timeout=IDLE_S),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
            )
        headers = {
            "Content-Type": "application/json",
            "Accept-Encoding": "identity",
            "User-Agent": "gamecast-gateway",
            "Gamecast-Signature": signature(self._secret, body, at_s=int(time.time())),
        }
        async with self._client.post(self._url, data=body, headers=headers, allow_redirects=False) as response:
            if 400 <= response.status < 500 and response.status not in _PASSING:
                return b""  # an invalid answer to this request, which says nothing about the backend
            if response.status != 200:
                raise _Down(f"status-{response.status // 100}xx")
            text = bytearray()
            async for chunk in response.content.iter_any():
                text += chunk
                if len(text) > self._limits.message_bytes_max:
                    response.close()
                    break
            return bytes(text)

    @staticmethod
    def _refusal(message: str) -> Refusal:
        return Refusal(Code.BACKEND_DOWN, message, status=503, retriable=True, retry_after_s=1)


_PASSING = frozenset({408, 429})
"""Refusals that concern the backend and not the request."""


class _BreakerListener(pybreaker.CircuitBreakerListener):
    def __init__(self, hook: _Hook) -> None:
        self._hook = hook

    def state_change(self, cb: Any, old_state: Any, new_state: Any) -> None:
        self._hook.state_changed(new_state.name)


def signature(secret: bytes, body: bytes, *, at_s: int) -> str:
    """Return the header that authenticates a call.

    It has the time, and the HMAC-SHA256 of the time, a full stop and the body.
    """
    signed = hmac.digest(secret, f"{at_s}.".encode() + body, "sha256")
    return f"t={at_s},v1={signed.hex()}"


def _content(payload: Any) -> dict[str, Any]:
    return {"base64": base64.b64encode(payload).decode()} if isinstance(payload, bytes) else {"payload": payload}


def _written(document: Mapping[str, Any]) -> bytes:
    try:
        return orjson.dumps(document)
    except TypeError:  # a token's claims may have integers of more than 64 bits
        return json.dumps(document).encode()


def _read_answer(text: bytes, bytes_max: int) -> Mapping[str, Any]:
    """Return what the backend answered; raises `Refusal`."""
    if len(text) > bytes_max:
        raise Refusal(Code.TOO_LARGE, f"the answer has more than {bytes_max} bytes")
    answer = read_json(text)
    if not isinstance(answer, dict) or not isinstance(answer.get("allow"), bool):
        raise Refusal(Code.MALFORMED, 'the answer must be {"allow": true} or {"allow": false, "reason": …}')
    if not isinstance(answer.get("reason"), str | None):
        raise Refusal(Code.MALFORMED, "reason must be a string")
    return answer
