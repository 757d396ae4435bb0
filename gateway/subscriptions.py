"""The subscriptions of a session: regions are joined and left, one message after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import orjson

from gateway.caller import Caller
from gateway.ended import ENDS_CONNECTION
from gateway.eventmessages import position_text
from gateway.gateway import Gateway
from gateway.messages import Position, Subscribe, Unsubscribe, position_of
from gateway.outbox import Outbox
from gateway.parked import ParkedSession
from gateway.refusal import Code, Refusal
from gateway.resumption import Resumption
from sequencing.errors import GamecastError, TooSlow, UsageError

PRESENCE_BYTES_MAX = 4_096
"""What a client says of itself, as JSON: all others in the region keep it."""

COMMANDS_MAX = 64
"""Subscribes and unsubscribes that wait for earlier ones; at this limit nothing more is read."""

STATES_AT_ONCE = 8
"""Of so many regions the states are read together."""


class Subscriptions:
    """Carries out the subscribes and unsubscribes of one session, in order."""

    def __init__(self, gateway: Gateway, caller: Caller, *, outbox: Outbox, resumption: Resumption) -> None:
        self._gateway, self._caller, self._outbox, self._resumption = gateway, caller, outbox, resumption
        self._commands: asyncio.Queue[Subscribe | Unsubscribe] = asyncio.Queue(COMMANDS_MAX)

    async def put(self, message: Subscribe | Unsubscribe) -> None:
        """Queue a message; waits while too many are unfinished. Raises `Refusal`."""
        if isinstance(message, Subscribe):
            for region in message.regions:
                self._caller.grant.require_read(region)
            most = self._gateway.settings.limits.regions_per_session_max
            if len(self._caller.regions | set(message.regions)) > most:
                raise Refusal(Code.LIMIT, f"a session may have at most {most} regions", status=429)
            await self._gateway.hooks.subscribe(self._caller.grant, message.regions, **self._caller.asker)
            self._require_presence(message)
            if message.since is not None or message.state:
                self._gateway.subject(self._caller.grant).require_history()
            if message.since is not None:
                self._caller.past.asked_for()
            await self._gateway.admit_regions(self._caller.grant, message.regions)
            self._caller.regions |= set(message.regions)
        self._resumption.move_begins()
        await self._commands.put(message)

    def _require_presence(self, message: Subscribe) -> None:
        """Raise `Refusal` if the client may not say that it is there, which is an event in each region."""
        limits, arrivals = self._gateway.settings.limits, 0
        for region, info in message.presence.items():
            if info == "watch":
                continue
            arrivals += 1
            self._caller.grant.require_write(region)
            size = len(orjson.dumps(info))
            if size > PRESENCE_BYTES_MAX or size > limits.payload_bytes_max:
                told = f"what a client says of itself has {size} bytes, and the limit is {PRESENCE_BYTES_MAX}"
                raise Refusal(Code.TOO_LARGE, told, status=413)
        if arrivals:
            self._gateway.subject(self._caller.grant).require_events(arrivals)

    async def until_done(self) -> None:
        """Wait until all queued messages are done."""
        await self._commands.join()

    async def run(self) -> None:
        """Carry out queued messages, without end.

        Raises the errors of `ENDS_CONNECTION` and `TooSlow`, after which the session cannot continue.
        """
        while True:
            message = await self._commands.get()
            if not (self._resumption.is_pending and await self._resumed(message)):
                place = self._resumption.place
                assert place is not None
                try:
                    await self._carry_out(message, place)
                except (*ENDS_CONNECTION, TooSlow):
                    raise
                except UsageError as error:
                    self._outbox.deny(Refusal(Code.MALFORMED, str(error)), {"id": message.id})
                except GamecastError as error:
                    self._outbox.deny(Refusal.of(error), {"id": message.id})
            self._resumption.move_ended()
            self._commands.task_done()

    async def _resumed(self, message: Subscribe | Unsubscribe) -> bool:
        """Decide where the session continues. Return whether it resumed, so that the message is done."""
        since = _positions(message)
        if not await self._resumption.settle(since):
            return False
        assert since is not None
        self._reply_subscribed(message, {region: position_text(at) for region, at in since.items()})
        return True

    async def _carry_out(self, message: Subscribe | Unsubscribe, place: ParkedSession) -> None:
        if isinstance(message, Subscribe):
            self._caller.regions |= set(message.regions)  # an earlier message may have left them
            positions = await self._join(message, place)
            place.sent.joined({region: position_of(position) for region, position in positions.items()})
            self._reply_subscribed(message, positions)
            self._gateway.audit.note("subscribed", **self._caller.ids, regions=list(message.regions))
        else:
            await self._leave(message.regions, place)
            self._outbox.reply("unsubscribed", message.id, regions=list(message.regions))

    async def _join(self, message: Subscribe, place: ParkedSession) -> dict[str, str]:
        if message.presence:
            place.connection.watch_presence(*message.presence)
        if message.state:
            positions = await self._begin(message.regions, place)
        else:
            positions = await place.connection.subscribe(*message.regions, since=message.since)
        coming = {region: info for region, info in message.presence.items() if info != "watch"}
        try:
            await place.connection.arrive(coming)
        except ENDS_CONNECTION:
            raise
        except GamecastError:
            await self._leave(message.regions, place)
            raise
        return positions

    async def _begin(self, regions: tuple[str, ...], place: ParkedSession) -> dict[str, str]:
        """Join regions and begin with their state; return when all of it has been given to the outbox.

        A few at a time, and of one client's sessions one after the other: states may be large. So the client knows no
        position of a region before it has the state. Until then no other session can continue
        this place: a move is in progress. If it fails, the regions are left, so that the client can ask again.
        """
        positions: dict[str, str] = {}
        async with self._gateway.subject(self._caller.grant).beginning:
            for first in range(0, len(regions), STATES_AT_ONCE):
                part = regions[first : first + STATES_AT_ONCE]
                place.begins(part)
                try:
                    positions |= await place.connection.subscribe(*part, state=True)
                except (*ENDS_CONNECTION, TooSlow):
                    raise
                except GamecastError as error:
                    begun = (*regions[:first], *(() if isinstance(error, UsageError) else part))
                    if begun:  # after a usage error nothing has changed
                        await self._leave(begun, place)
                    raise
                await place.until_begun()
        return positions

    async def _leave(self, regions: tuple[str, ...], place: ParkedSession) -> None:
        await place.connection.unsubscribe(*regions)
        self._outbox.leave(regions, place)
        place.sent.left(regions)

    def _reply_subscribed(self, message: Subscribe | Unsubscribe, positions: Mapping[str, str]) -> None:
        self._outbox.reply("subscribed", message.id, regions=positions)


def _positions(message: Subscribe | Unsubscribe) -> dict[str, Position] | None:
    """Return the positions from which a client wants all its regions, None if it gave no positions."""
    since = message.since if isinstance(message, Subscribe) else None
    if isinstance(since, str):
        since = dict.fromkeys(message.regions, since)
    if not isinstance(since, Mapping):
        return None
    positions = {region: position_of(at) for region, at in since.items() if isinstance(at, str)}
    return positions if len(positions) == len(since) else None
