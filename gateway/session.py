"""One WebSocket session: a subscriber with a name of its own, while its socket is open.

A session has three tasks. `Requests` reads what the client sends. `Subscriptions` joins and leaves regions, one message
after the other. `Outbox` writes, as one message, everything that gathered while the socket wrote the previous message.
When one task ends, all end, and the reason becomes the close code.

A client knows the position of the last event that it received of each region, and these events are a prefix of its
session's order. If it comes back soon, it continues its `ParkedSession` and gets the events after that prefix (see
`Resumption`). Otherwise it begins a new session at those positions, at this gateway or another one. That session
replays the events after that cut by their stamps, and continues live. `docs/gateway.md` says why that is the same
order.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from aiohttp import WSMsgType, web

from gateway.caller import Caller
from gateway.ended import ABNORMAL, Ended, forget_frames, is_cancelled, most_telling
from gateway.frames import Frames
from gateway.gateway import Gateway
from gateway.grants import Grant
from gateway.messages import Hello, read_json, read_message
from gateway.outbox import Outbox
from gateway.parked import ParkedSession
from gateway.refusal import Close, Code, Refusal
from gateway.requests import Requests
from gateway.resumption import Resumption
from gateway.settings import GatewayLimits
from gateway.subscriptions import Subscriptions
from sequencing.errors import GamecastError, NetworkRestarted, NotConnected, Superseded, TooSlow

PINGS_BEFORE_HELLO = 8
_CLOSES = {
    Code.LIMIT: Close.LIMIT,
    Code.EXPIRED: Close.EXPIRED,
    Code.RATE: Close.RATE,
    Code.UNREACHABLE: Close.TRY_LATER,
    Code.DENIED: Close.DENIED,
    Code.BACKEND_DOWN: Close.TRY_LATER,
}
"""The close codes of refused hellos; any other refusal has the code of a bad token."""


class Session:
    """One session, from the hello to the close."""

    def __init__(self, gateway: Gateway, socket: web.WebSocketResponse, *, peer: str, grant: Grant | None) -> None:
        """``grant``: from a token in the request; the hello may have another token."""
        self.gone = asyncio.Event()
        """Set when its name is free for another session."""
        self.closed = asyncio.Event()
        """Set after that, when its client has the close reason, or cannot get it."""
        self._gateway, self._limits, self._socket = gateway, gateway.settings.limits, socket
        self._caller = Caller(gateway.new_id("s"), peer=peer, grant=grant)
        self._outbox = Outbox(gateway, socket, self._caller)
        self._resumption = Resumption(gateway, self._caller, self._outbox)
        self._frames: Frames | None = None
        self._leaving = asyncio.Event()
        self._leaving_reason: tuple[int, str] = Close.GOING_AWAY, "the gateway is shutting down: connect to another one"

    @property
    def name(self) -> str:
        """The name that other clients see as the sender; empty before the hello."""
        return self._caller.name

    @property
    def subject(self) -> str | None:
        """The subject of the session."""
        return self._caller.subject

    @property
    def grant(self) -> Grant:
        """What the client may do."""
        return self._caller.grant

    @property
    def place(self) -> ParkedSession | None:
        """Where the session is in the network, None while it is undecided."""
        return self._resumption.place

    def leave(self, close_code: int, reason: str) -> None:
        """End the session."""
        self._leaving_reason = close_code, reason
        self._leaving.set()

    def count_frames(self, limits: GatewayLimits) -> Frames:
        """Return what counts the frames of the socket, and ends the session if there are too many."""
        of = weakref.ref(self)

        def end(close_code: int, reason: str) -> None:
            if (session := of()) is not None:
                session._gateway.refused(Code.RATE, reason, **session._caller.ids)
                session.leave(close_code, reason)

        self._frames = Frames(limits, end)
        return self._frames

    async def run(self) -> None:
        """Run until the socket closes or the session ends; then close the socket with the reason."""
        close_code, reason = 1000, ""
        try:
            try:
                hello = await self._begin()
                await self._go_on(batch_s=hello.batch_ms / 1000, updates=hello.updates)
            except* Ended as ended:
                close_code, reason = most_telling(ended)
                forget_frames(ended)
            except* Superseded:
                self._resumption.give_up()
                close_code, reason = Close.SUPERSEDED, "another session took over this name"
            except* TooSlow:
                self._resumption.give_up()
                close_code, reason = Close.TOO_SLOW, "events were read too slowly"
            except* NetworkRestarted as error:
                self._resumption.give_up()
                self._gateway.log("session-broken", session=self._caller.session, reason=repr(error.exceptions[0]))
                close_code, reason = Close.TRY_LATER, "the network lost its data: subscribe again, without since"
            except* GamecastError as error:
                self._resumption.give_up()
                self._gateway.log("session-broken", session=self._caller.session, reason=repr(error.exceptions[0]))
                close_code, reason = Close.TRY_LATER, "the network behind the gateway does not answer now"
            except* (ConnectionError, asyncio.CancelledError) as broken:
                close_code, reason = ABNORMAL, "the connection broke"
                forget_frames(broken)
            except* Exception as unexpected:  # noqa: BLE001 - whatever it is, the client is told, and the log has the traceback
                # It is unknown how much of a batch was sent: the client continues by its own positions.
                self._resumption.give_up()
                incident = self._gateway.incident("session-broke", unexpected, session=self._caller.session)
                close_code, reason = Close.INTERNAL, f"internal error, logged by the gateway as incident {incident}"
        finally:
            await self._end(close_code, reason)

    async def _begin(self) -> Hello:
        """Read the hello, check it, and find a place under its name."""
        gateway, caller = self._gateway, self._caller
        try:
            async with asyncio.timeout(self._limits.hello_timeout_s):
                hello = await self._hello()
        except TimeoutError as error:
            raise Ended(Close.HELLO_TIMEOUT, f"no hello arrived within {self._limits.hello_timeout_s:g} s") from error
        try:
            caller.given = await gateway.guard.grant(hello.token, caller.given)
            gateway.subject(caller.given).require_request()
            caller.name = gateway.session_name(caller.grant, hello.name)
            gateway.enter_session(self, caller.grant)
            approval = await gateway.hooks.connect(caller.grant, **self._caller.asker)
        except Refusal as refusal:
            await self._outbox.refuse(refusal)
            raise Ended(_CLOSES.get(refusal.code, Close.UNAUTHORIZED), refusal.message) from refusal
        if self._frames is not None:
            self._frames.welcome()
        await self._resumption.begin(await gateway.place_of(self))
        gateway.audit.note("session-opened", **caller.ids)
        bytes_max = self._outbox.bound_messages(hello.message_bytes_max)
        welcome = caller.welcome(gateway.id, self._limits) | approval.fields
        self._outbox.reply("welcome", **welcome, message_bytes_max=bytes_max)
        return hello

    async def _hello(self) -> Hello:
        message = await self._socket.receive()
        for _ in range(PINGS_BEFORE_HELLO):
            if message.type is WSMsgType.PING:
                await self._outbox.pong(message.data)
            elif message.type is not WSMsgType.PONG:
                break
            message = await self._socket.receive()
        if message.type in (WSMsgType.CLOSE, WSMsgType.CLOSING, WSMsgType.CLOSED):
            raise Ended(1000, "the client disconnected before the hello")
        try:
            if message.type is not WSMsgType.TEXT:
                raise Refusal(Code.MALFORMED, "the first message must be a hello, as text")
            hello = read_message(read_json(message.data))
            if not isinstance(hello, Hello):
                raise Refusal(Code.MALFORMED, "the first message must be a hello")
        except Refusal as refusal:
            await self._outbox.refuse(refusal)
            raise Ended(Close.MALFORMED, refusal.message) from refusal
        return hello

    async def _go_on(self, *, batch_s: float, updates: bool) -> None:
        caller, outbox, resumption = self._caller, self._outbox, self._resumption
        subscriptions = Subscriptions(self._gateway, caller, outbox=outbox, resumption=resumption)
        requests = Requests(self._gateway, caller, outbox=outbox, resumption=resumption, subscriptions=subscriptions)
        async with asyncio.TaskGroup() as group:
            works = [
                requests.take(self._socket),
                subscriptions.run(),
                self._deliver(),
                outbox.write(batch_s),
                caller.watch(self._limits),
                self._leave(),
            ]
            if updates:
                works.append(self._deliver_updates())
            if self._gateway.hooks.asks("publish"):
                works.append(requests.publish_in_turn())
            for work in works:
                group.create_task(self._ending(work), name=f"gamecast session {caller.session}")

    @staticmethod
    async def _ending(work: Coroutine[Any, Any, None]) -> None:
        await work
        raise Ended(1000, "")

    async def _deliver(self) -> None:
        await self._outbox.deliver(await self._resumption.until_placed())

    async def _deliver_updates(self) -> None:
        place = await self._resumption.until_placed()
        with suppress(NotConnected):
            await self._outbox.deliver_updates(place)
        await asyncio.Event().wait()  # the connection has ended, and `_deliver` says why

    async def _leave(self) -> None:
        await self._leaving.wait()
        raise Ended(*self._leaving_reason)

    async def _end(self, close_code: int, reason: str) -> None:
        self._gateway.leave_session(self)
        self._resumption.leave(close_code)
        self.gone.set()
        try:
            if not self._socket.closed:
                await self._close(close_code, reason)
        finally:
            self.closed.set()
            if (error := self._socket.exception()) is not None:
                forget_frames(error)
            self._gateway.audit.note("session-closed", **self._caller.ids, code=close_code, reason=reason)

    async def _close(self, close_code: int, reason: str) -> None:
        """Close the socket with the reason, unless the client accepts nothing for ``drain_s``."""
        deadline_s = asyncio.get_running_loop().time() + self._limits.drain_s
        try:
            if close_code == Close.GOING_AWAY:
                with suppress(TimeoutError, ConnectionError, Ended):
                    async with asyncio.timeout(self._limits.drain_s / 2):
                        await self._outbox.flush()
            text = reason.encode()[:120].decode(errors="ignore")
            told = Close.GOING_AWAY if close_code == ABNORMAL else close_code
            async with asyncio.timeout_at(deadline_s):
                await self._socket.close(code=told, message=text.encode())
        except (TimeoutError, ConnectionError):
            pass
        except asyncio.CancelledError as error:
            if is_cancelled(error):
                raise
