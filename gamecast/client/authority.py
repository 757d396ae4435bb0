"""Ownership of entities: one connection at a time publishes for an entity, and the node refuses all others.

There is no protocol behind it: a key of the region, and conditions on it, see `gamecast.client.ownership`. So what a
paused or disconnected owner sends is refused in the step that would give it a place in the order. No clock is involved.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from adapters.network import Network
from gamecast.client.keys import NO_CONDITION, OnlyIf, about_event
from gamecast.client.moving import NOTHING_MOVED, Moved, Mover, keys_of
from gamecast.client.outgoing import Outgoing
from gamecast.client.ownership import (
    ACCEPTANCE_BYTES,
    CLAIM_BYTES,
    Handover,
    claimed,
    guarded,
    handed_again,
    handover_at,
    handover_of,
    left_position,
    moved_keys,
    moving,
    owner_key,
    position_of,
    set_at,
    unfinished_at,
)
from gamecast.event import Receipt
from sequencing.errors import Conflict, GamecastError, PayloadTooLarge, PublishUncertain, UsageError
from sequencing.keyed import Snapshot
from sequencing.names import check_connection_name, check_region

_log = logging.getLogger(__name__)

MOVING_S_MAX = 5.0
"""How long an entity that is released or handed on waits for its keys to have moved. Those of a region that is away are
left then."""


class Authority:
    """The right of one connection to publish for an entity in a region. Use `Client.authority` or `Client.accept`.

    It is held from the position of the event that gave it, `position`, until another event sets or deletes the key
    ``owner:ENTITY``. Between the two, the region has no event that another connection published for the entity by its
    authority, and after it none of this connection. This is so in the region's order, for all subscribers, and whatever
    fails: the node that orders the region refuses all others.

    ``async with`` releases the entity at its end, also after an exception. An authority belongs to one connection as it
    was opened: after `Client.reconnect`, claim again with ``after=authority.position``.
    """

    def __init__(
        self,
        owners: Owners,
        region: str,
        entity: str,
        position: str,
        offer: Handover | None = None,
        moved: Moved = NOTHING_MOVED,
    ) -> None:
        """Use `Client.authority` or `Client.accept`."""
        self.region = region
        """The region in which it holds."""
        self.entity = entity
        """The name of the entity."""
        self.position = position
        """The fencing token: the position of the event that made this connection the owner."""
        self.state: Any = None if offer is None else offer.state
        """What the owner before passed to `hand_to`, None after a claim."""
        self.not_moved: Mapping[str, GamecastError] = moved.not_moved
        """Keys of the entity that this region did not take, and why: they stay in the region that it has left."""
        self._owners = owners
        self._key = owner_key(entity)
        self._ended: Conflict | None = None
        self._keys = set() if offer is None else set(offer.keys) - set(moved.not_moved)
        """Other keys that the entity has in the region, as far as this connection knows."""
        self._clearing = moved.clearing
        self._offer: Handover | None = None
        self._handing: asyncio.Task[Receipt] | None = None

    @property
    def is_held(self) -> bool:
        """Whether this connection is the owner, as far as it knows: only the node can tell for certain."""
        return self._ended is None

    async def publish(self, payload: Any, *, key: str | None = None, only_if: OnlyIf = NO_CONDITION) -> Receipt:
        """Publish an event to the region if this connection still owns the entity. Otherwise as `Client.publish`.

        ``only_if``: further conditions, which must hold as well.

        Raises `Conflict`, with nothing published, if the entity has another owner or none: from then on `is_held` is
        false, and every call raises it. If a condition of ``only_if`` failed, the error has its key, and the entity
        stays owned. After `PublishUncertain`, the event may still be published, but only while the entity is owned:
        never after a handover, a release, or another's claim.
        """
        self._require_held()
        conditions = guarded(self._key, self.position, key, only_if)
        if key is not None:
            (self._keys.discard if payload is None else self._keys.add)(key)
        try:
            return await self._owners.publish((self.region,), payload, key, conditions)
        except Conflict as lost:
            self._note(lost)
            raise

    async def hand_to(
        self,
        owner: str,
        *,
        to: str | None = None,
        state: Any = None,
        keys: Mapping[str, Any] | None = None,
        after: str | None = None,
    ) -> Receipt:
        """Hand the entity to the connection of a name, by one event; return its receipt.

        ``to``: the region into which the entity walks; None: it stays. The event goes to both regions at once, and sets
        the entity's key in both. Whatever this connection published for the entity precedes it, for every subscriber,
        and nothing follows it. The new owner begins when it delivers the event: see `Client.accept`. Until then nothing
        can be published for the entity. Nothing checks that there is a connection of this name: if it does not accept,
        `take_back`. ``state``: JSON, which the new owner finds in `state`.

        ``keys``: the entity's other keys in this region, at most 64, with the JSON that each is set to in the new one
        (None: it is not set there). They move when the entity is accepted. Without ``keys``, they stay in this region,
        where subscribers with ``state=True`` still find them, and a warning is logged for those that this connection
        set. ``{}`` says that they are to stay.

        ``after``: the position of the key in ``to``, to replace an entity of this name there. Without it, raises
        `Conflict` if there is one, and this one stays owned; what a handover out of ``to`` has left there is no
        hindrance. Raises `Conflict` as `publish` does, too. Raises `NotTogether` where no event can be in both regions:
        in causal order, and on several nodes that order double overlaps only. Raises `PublishUncertain` if the outcome
        stays unknown after it was tried twice; both together are accepted once at most. Then the key's next event shows
        it; until then, `publish` is safe, and raises `Conflict` if the entity was handed over. After a lost answer, the
        receipt may have the position in `region` only. A call that is cancelled goes on: `take_back` tells.
        """
        await self._settled()
        self._require_held()
        check_connection_name(owner)
        target = self.region if to is None else check_region(to)
        if after is not None and (target == self.region or not isinstance(after, str)):
            raise UsageError(f"after is the position of key {self._key!r} in another region, which to=… names")
        if keys and target == self.region:
            raise UsageError("keys move into another region, which to=… names; here they stay as they are")
        moved = moved_keys({} if keys is None else keys)
        claim = os.urandom(CLAIM_BYTES).hex()
        came_from = None if target == self.region else self.region
        before, self._offer = (
            self._offer,
            Handover(self.entity, owner, target, "", came_from, None, claim, state, moved),
        )
        self._handing = asyncio.ensure_future(self._hand_over(self._offer, before, after))
        self._handing.add_done_callback(_retrieve)  # if the call is cancelled, `take_back` tells what came of it
        receipt = await asyncio.shield(self._handing)
        if keys is None and came_from is not None and self._keys:
            _log.warning(
                "keys %s of entity %r stay in region %r, which it has left: name them in hand_to(…, keys={…})",
                ", ".join(map(repr, sorted(self._keys))),
                self.entity,
                self.region,
            )
        return receipt

    async def _hand_over(self, offer: Handover, before: Handover | None, after: str | None) -> Receipt:
        """Publish a handover and note it; one that was certainly refused leaves what was noted before."""
        try:
            receipt = await self._hand(handed_again(offer), offer.region, after, offer.claim)
        except Conflict as lost:
            self._note(lost)
            if lost.__cause__ is not None:  # an answer was lost before
                raise PublishUncertain(
                    f"{self.entity!r} has another owner by now, and no answer tells whether it was handed to "
                    f"{offer.owner!r} before that"
                ) from lost
            self._offer = before
            raise
        except GamecastError as error:
            if not isinstance(error, PublishUncertain):
                self._offer = before
            raise
        self._end(receipt.position, f"{self.entity!r} was handed to {offer.owner!r}")
        there, left_at = receipt.positions.get(offer.region, ""), receipt.positions[self.region]
        self._offer = offer._replace(position=there, left_at=left_at)
        return receipt

    async def _settled(self) -> None:
        """Wait for a handover that is under way, and for the keys to be deleted where the entity came from."""
        if self._handing is not None:
            await asyncio.wait([self._handing])
        if self._clearing is not None and self._keys:
            await asyncio.wait([self._clearing], timeout=MOVING_S_MAX)

    async def take_back(self) -> Authority | None:
        """Take back an entity that this connection handed over and that was not accepted; None if it was.

        Call it when you have waited long enough for the new owner, or when its leave has come. It is one claim, in the
        region of the handover: of this call and of `Client.accept` there, one gets the authority. Use the result as
        that of `Client.authority`; its `state` is what was handed over. After a `hand_to` that was cancelled or
        refused, or whose answer was lost, it is this authority if that still holds. Raises `UsageError` if `hand_to`
        was not called. Otherwise raises as `Client.authority` does, but for `Conflict`.
        """
        if self._handing is None:
            raise UsageError(f"{self.entity!r} was not handed over by this authority: there is nothing to take back")
        await asyncio.wait([self._handing])
        back = None if self._offer is None else await self._owners.take_back(self._offer)
        if back is None and self.is_held and await self._owners.is_at(self.region, self._key, self.position):
            return self
        return back

    async def _hand(self, payload: Any, target: str, after: str | None, claim: str) -> Receipt:
        """Publish a handover. What one out of the target has left there is replaced."""
        own: dict[tuple[str, str], str | None] = {(self.region, self._key): self.position}
        if target == self.region:
            return await self._owners.decide((target,), payload, own, claim)
        regions, there = (self.region, target), (target, self._key)
        try:
            return await self._owners.decide(regions, payload, own | {there: after}, claim)
        except Conflict as taken:
            left = None
            if taken.region == target and after is None:
                with suppress(GamecastError):
                    left = await self._owners.left_position(*there)
            if left is None:
                raise
        return await self._owners.decide(regions, payload, own | {there: left}, claim)

    async def release(self) -> None:
        """Give the entity up: its key is deleted, and the first to claim it is its owner. Harmless when repeated.

        It is no error if the entity has another owner by now. Raises `Unreachable`, `PublishUncertain`, `BufferFull` or
        `NotConnected` if the node cannot be asked. Then the key may stay: try again, or others claim ``after`` it.
        """
        await self._settled()
        if self._ended is not None:
            return
        await self._owners.delete(self.region, self._key, self.position)
        self._end(None, f"{self.entity!r} was released")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release the entity. Errors of that are logged if there is an exception already."""
        try:
            await self.release()
        except GamecastError as failed:
            if kind is None:
                raise
            _log.warning("entity %r of region %r was not released: %s", self.entity, self.region, failed)

    def __repr__(self) -> str:
        held = "held" if self.is_held else "ended"
        return f"<Authority {held}: {self.entity!r} in {self.region!r} since {self.position}>"

    def _require_held(self) -> None:
        if self._ended is not None:
            raise _conflict(self.region, self._key, self._ended.position, str(self._ended))

    def _note(self, lost: Conflict) -> None:
        """Count the region as lost to its next owner, if it is the owner's key that another one has set."""
        if (lost.region, lost.key) == (self.region, self._key):
            self._ended = lost

    def _end(self, position: str | None, message: str) -> None:
        self._ended = _conflict(self.region, self._key, position, f"{message}: nothing was published")


class Owners:
    """Claims entities for one open connection."""

    def __init__(
        self, name: str, outgoing: Outgoing, network: Network, clearing: set[asyncio.Task[None]] | None = None
    ) -> None:
        """Use `Client.authority` and `Client.accept`. ``clearing``: tasks that end with the connection."""
        self._name = name
        self._outgoing = outgoing
        self._network = network
        self._clearing = set() if clearing is None else clearing
        self._mover = Mover(outgoing, network, self._clearing)

    async def claim(self, region: str, entity: str, after: str | None) -> Authority:
        """See `Client.authority`."""
        key, claim = owner_key(entity), os.urandom(CLAIM_BYTES).hex()
        if after is not None and not isinstance(after, str):
            raise UsageError(f"after is the position of the event that set {key!r}, or None, not {after!r}")
        check_region(region)
        offer = unfinished = None
        if after is not None:
            with suppress(GamecastError):  # where that cannot be told, no keys are moved
                snapshot = await self._snapshot(region)
                offer = handover_at(snapshot, key, region, after)
                unfinished = unfinished_at(snapshot, key, region, after)

        async def take() -> Authority:
            moves = moving(offer or unfinished)
            position = await self._take(region, key, claimed(self._name, claim), moves, after, claim)
            if unfinished is not None:
                moved = await self._mover.finish(unfinished, key, position)
                return Authority(self, region, entity, position, unfinished, moved)
            if offer is None or not offer.keys:
                return Authority(self, region, entity, position)
            return Authority(
                self, region, entity, position, offer._replace(state=None), await self._mover.move(offer, key, position)
            )

        return await self._unless_cancelled(take(), region, key, offer)

    async def accept(self, event: object) -> Authority | None:
        """See `Client.accept`."""
        offer = handover_of(event)
        if offer is None or offer.owner != self._name:
            return None
        return await self._take_up(offer)

    async def take_back(self, offer: Handover) -> Authority | None:
        """See `Authority.take_back`."""
        await self._given_back(offer.region, owner_key(offer.entity))
        if not offer.position:  # its answer was lost
            snapshot = await self._snapshot(offer.region)
            position = position_of(snapshot, owner_key(offer.entity), offer.claim, or_accepted=False)
            if position is None:
                return None
            offer = offer._replace(position=position)
        return await self._take_up(offer)

    async def _take_up(self, offer: Handover) -> Authority | None:
        """Claim an entity after its handover, and move its keys; None if another has claimed it."""
        key = owner_key(offer.entity)
        await self._given_back(offer.region, key)
        while True:
            try:
                return await self._unless_cancelled(self._accept(offer, key), offer.region, key, offer)
            except Conflict as lost:
                # A call that was cancelled may have set the same offer again.
                if lost.position is None or lost.position == offer.position:
                    return None
                again = handover_at(await self._snapshot(offer.region), key, offer.region, lost.position)
                if again is None or (again.owner, again.claim) != (offer.owner, offer.claim):
                    return None
                offer = offer._replace(position=again.position)

    async def _accept(self, offer: Handover, key: str) -> Authority:
        claim = os.urandom(ACCEPTANCE_BYTES).hex()
        payload = claimed(self._name, claim, accepts=offer)
        position = await self._take(offer.region, key, payload, moving(offer), offer.position, claim)
        moved = await self._mover.move(offer, key, position)
        return Authority(self, offer.region, offer.entity, position, offer, moved)

    async def is_at(self, region: str, key: str, position: str) -> bool:
        """Return whether an owner's key is still at a position."""
        return set_at(await self._snapshot(region), key) == position

    async def left_position(self, region: str, key: str) -> str | None:
        """Return where a handover out of a region set an owner's key there, None if the key says something else."""
        return left_position(await self._snapshot(region), key, region)

    async def publish(
        self, regions: tuple[str, ...], payload: Any, key: str | None, only_if: Mapping[Any, str | None]
    ) -> Receipt:
        """Publish an event on conditions."""
        first, about = about_event(regions if len(regions) > 1 else regions[0], key, only_if)
        return await self._outgoing.publish(first, payload, about)

    async def decide(
        self, regions: tuple[str, ...], payload: Any, only_if: Mapping[tuple[str, str], str | None], claim: str
    ) -> Receipt:
        """Set an owner's key on conditions that hold once; return the receipt. Tries again where that is uncertain.

        Raises `Conflict` if the key is not set by it, and `PublishUncertain` if that cannot be told. After a lost
        answer, the conflict has that as its cause: then it may have been done, and something else have come after it.
        """
        [key] = {key for _, key in only_if}
        conditions: Mapping[Any, str | None] = only_if if len(regions) > 1 else {key: only_if[regions[0], key]}
        try:
            return await self.publish(regions, payload, key, conditions)
        except PublishUncertain as first:
            # The conditions hold once: of several tries, one is accepted at most.
            try:
                return await self.publish(regions, payload, key, conditions)
            except Conflict as lost:
                position = await self._looked(regions[0], key, claim, first)
                if position is None:
                    before = only_if[regions[0], key]
                    if before is not None and await self._is_still(regions[0], key, before, first):
                        raise  # what was accepted would have replaced it: the conflict is of another's event
                    raise lost from first
                epoch, _, sequence = position.partition("-")
                return Receipt(regions[0], int(epoch), int(sequence))
            except GamecastError as second:
                raise first from second

    async def _looked(self, region: str, key: str, claim: str, uncertain: PublishUncertain) -> str | None:
        try:
            return await self._position_of(region, key, claim)
        except GamecastError as error:
            raise uncertain from error

    async def _is_still(self, region: str, key: str, position: str, uncertain: PublishUncertain) -> bool:
        try:
            return await self.is_at(region, key, position)
        except GamecastError as error:
            raise uncertain from error

    async def delete(self, region: str, key: str, position: str) -> None:
        """Delete an owner's key if it is still at a position."""
        for last in (False, True):
            try:
                await self.publish((region,), None, key, {key: position})
            except Conflict:
                return
            except PublishUncertain:
                if last:
                    raise
            else:
                return

    async def _take(
        self, region: str, key: str, payload: dict[str, Any], moves: dict[str, Any], after: str | None, claim: str
    ) -> str:
        """Set an owner's key; return the position. ``moves``: left out where the payload is too large with it."""
        only_if = {(region, key): after}
        try:
            try:
                return (await self.decide((region,), payload | moves, only_if, claim)).position
            except PayloadTooLarge:
                return (await self.decide((region,), payload, only_if, claim)).position
        except Conflict as lost:
            if lost.__cause__ is not None:  # an answer was lost before
                raise PublishUncertain(
                    f"key {key!r} of region {region!r} was set by another by now, and no answer tells whether this "
                    "connection had set it before that"
                ) from lost
            raise

    async def _unless_cancelled(
        self, taking: Awaitable[Authority], region: str, key: str, offer: Handover | None
    ) -> Authority:
        """Return an authority; if the caller is cancelled, what it got is given back.

        ``offer``: the handover that it is taken after: that is set again then.
        """
        task = asyncio.ensure_future(taking)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            returning = asyncio.create_task(self._give_back(task, offer), name=_giving_back(region, key))
            self._clearing.add(returning)
            returning.add_done_callback(self._clearing.discard)
            raise

    async def _give_back(self, taking: asyncio.Future[Authority], offer: Handover | None) -> None:
        await asyncio.wait([taking])
        if taking.cancelled() or taking.exception() is not None:
            return
        mine = taking.result()
        try:
            if offer is None:
                await mine.release()
            else:
                only_if = {(mine.region, owner_key(mine.entity)): mine.position}
                await self.decide((mine.region,), handed_again(offer), only_if, offer.claim)
        except Conflict:
            return  # another has it
        except GamecastError as error:
            _log.warning("entity %r of region %r was not given back: %s", mine.entity, mine.region, error)

    async def _given_back(self, region: str, key: str) -> None:
        """Wait until cancelled calls of this connection have given an entity back."""
        name = _giving_back(region, key)
        returning = [task for task in self._clearing if task.get_name() == name]
        if returning:
            await asyncio.wait(returning)

    async def _position_of(self, region: str, key: str, claim: str) -> str | None:
        """Return where a claim, or what accepts it, set a key; None if something else did, or deleted it.

        Raises as `keys_of` does.
        """
        return position_of(await self._snapshot(region), key, claim)

    async def _snapshot(self, region: str) -> Snapshot:
        return await keys_of(self._network, region)


def _giving_back(region: str, key: str) -> str:
    return f"give back {key} of {region}"


def _conflict(region: str, key: str, position: str | None, message: str) -> Conflict:
    error = Conflict(message)
    error.region, error.key, error.position = region, key, position
    return error


def _retrieve(task: asyncio.Future[Receipt]) -> None:
    if not task.cancelled():
        task.exception()
