"""How the other keys of an entity follow it into another region, when it is accepted, taken back, or claimed.

A key is deleted in the region that was left only after it was set in the new one, and the owner's key there last. So as
long as that says where the entity went, the move is not finished, and a later claim finishes it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable, Mapping
from typing import Any, NamedTuple

from adapters.network import Network
from gamecast.client.keys import about_event
from gamecast.client.outgoing import Outgoing
from gamecast.client.ownership import Handover, left_position, not_set_since
from sequencing.errors import BufferFull, Conflict, GamecastError, PublishUncertain, Unreachable
from sequencing.keyed import Snapshot

_log = logging.getLogger(__name__)

LOOK_AGAIN_S = 0.02
LOOKS_MAX = 100
"""A region that moves to another node is there within some 30 ms."""
CLEARING_MAX = 16
"""Keys that one connection looks for at once in regions that entities have left."""


async def keys_of(network: Network, region: str) -> Snapshot:
    """Return the keys of a region.

    Asks the region's ingress, which decides on conditions. Raises `Unreachable` if that cannot tell.
    """
    for _ in range(LOOKS_MAX):
        plan = await network.latest_plan()
        if plan is not None and region in plan.paths:
            reader = network.reader(plan.paths[region][0], plan)
            try:
                by_region = await reader.snapshots([(region, plan.epoch_of(region))])
            finally:
                await reader.close()
            if by_region is not None:
                return by_region[region]
        await asyncio.sleep(LOOK_AGAIN_S)
    raise Unreachable(f"no node has region {region!r} now, so nothing tells what its keys are")


class Moved(NamedTuple):
    """What became of an entity's keys."""

    not_moved: Mapping[str, GamecastError]
    """Keys that stay in the region that was left, and why."""
    clearing: asyncio.Task[None] | None
    """What deletes the others there."""


NOTHING_MOVED = Moved({}, None)


class Mover:
    """Moves the keys of entities for one open connection."""

    def __init__(self, outgoing: Outgoing, network: Network, clearing: set[asyncio.Task[None]]) -> None:
        """``clearing``: tasks that end with the connection."""
        self._outgoing = outgoing
        self._network = network
        self._clearing = clearing
        self._deleting: set[asyncio.Task[None]] = set()

    async def move(self, offer: Handover, owner: str, token: str) -> Moved:
        """Set an entity's keys in the region that it has come into, and begin to delete those in the one it has left.

        ``token``: the position of the owner's key, ``owner``, in the new region.
        """
        values = {key: value for key, value in offer.keys.items() if value is not None}
        failed = await self._publish_each(offer.region, values, {key: {owner: token} for key in values})
        return Moved(_told(offer, failed), self.clear(offer, owner, failed))

    async def finish(self, offer: Handover, owner: str, token: str) -> Moved:
        """Do what an earlier owner has left undone of a move; nothing if it was finished."""
        assert offer.came_from is not None
        try:
            left = await keys_of(self._network, offer.came_from)
            left_at = left_position(left, owner, offer.came_from, offer=offer)
            if left_at is None:
                return NOTHING_MOVED
            # Of what its owners have set since, nothing is set back.
            unset = not_set_since(await keys_of(self._network, offer.region), offer.keys, offer.position)
        except GamecastError as error:
            _log.warning("keys of %r may be left in region %r: %s", owner, offer.came_from, error)
            return NOTHING_MOVED
        values = {key: offer.keys[key] for key in unset if offer.keys[key] is not None}
        failed = await self._publish_each(
            offer.region, values, {key: {owner: token, key: unset[key]} for key in values}
        )
        newer = {key for key, error in failed.items() if isinstance(error, Conflict) and error.key == key}
        failed = {key: error for key, error in failed.items() if key not in newer}
        return Moved(_told(offer, failed), self.clear(offer._replace(left_at=left_at), owner, failed))

    def clear(self, offer: Handover, owner: str, kept: Iterable[str] = ()) -> asyncio.Task[None] | None:
        """Delete the keys in the region that an entity has left but for some, without waiting for that."""
        if offer.came_from is None:
            return None
        if offer.left_at is not None:
            # Its events end with the connection, and those under way when it closes are still sent.
            return _owned(self._deleting, self._delete(offer.came_from, owner, offer.left_at, offer.keys, kept))
        if len(self._clearing) < CLEARING_MAX:
            return _owned(self._clearing, self._ask_and_clear(offer.came_from, owner, offer, kept))
        _log.warning("key %r may be left in region %r: too many others are looked for", owner, offer.came_from)
        return None

    async def _ask_and_clear(self, region: str, owner: str, offer: Handover, kept: Iterable[str]) -> None:
        """Delete the keys if this very handover has set the owner's: an event of another region cannot say so."""
        try:
            left_at = left_position(await keys_of(self._network, region), owner, region, offer=offer)
        except GamecastError as error:
            _log.warning("key %r may be left in region %r: %s", owner, region, error)
        else:
            if left_at is not None:
                await self._delete(region, owner, left_at, offer.keys, kept)

    async def _delete(self, region: str, owner: str, left_at: str, keys: Iterable[str], kept: Iterable[str]) -> None:
        """Delete keys on the condition of the owner's, and then, if none is to stay, that."""
        kept = set(kept)
        gone = dict.fromkeys(set(keys) - kept)
        failed = await self._publish_each(region, gone, {key: {owner: left_at} for key in gone})
        if not kept and not failed:
            failed = await self._publish_each(region, {owner: None}, {owner: {owner: left_at}})
        for key, error in failed.items():
            if not isinstance(error, Conflict):  # else another has deleted it
                _log.warning("key %r may be left in region %r: %s", key, region, error)

    async def _publish_each(
        self, region: str, values: Mapping[str, Any], conditions: Mapping[str, Mapping[str, str | None]]
    ) -> dict[str, GamecastError]:
        """Publish the values of keys; return those that failed. What finds the buffer full follows after the others."""
        failed: dict[str, GamecastError] = {}
        while values:
            calls = (self._publish(region, value, key, conditions[key]) for key, value in values.items())
            results = dict(zip(values, await asyncio.gather(*calls), strict=True))
            full = {key: value for key, value in values.items() if isinstance(results[key], BufferFull)}
            again = full if len(full) < len(values) else {}
            failed |= {key: error for key, error in results.items() if error is not None and key not in again}
            values = again
        return failed

    async def _publish(
        self, region: str, payload: Any, key: str, only_if: Mapping[str, str | None]
    ) -> GamecastError | None:
        try:
            first, about = about_event(region, key, only_if)
            try:
                await self._outgoing.publish(first, payload, about)
            except PublishUncertain:
                await self._outgoing.publish(first, payload, about)
        except GamecastError as error:
            return error
        return None


def _told(offer: Handover, failed: Mapping[str, GamecastError]) -> Mapping[str, GamecastError]:
    for key, error in failed.items():
        _log.warning(
            "key %r of entity %r stays in region %r: region %r has not taken it: %s",
            *(key, offer.entity, offer.came_from, offer.region, error),
        )
    return failed


def _owned(tasks: set[asyncio.Task[None]], work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    task = asyncio.ensure_future(work)
    tasks.add(task)
    task.add_done_callback(tasks.discard)
    return task
