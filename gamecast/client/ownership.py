"""Who owns an entity, as events say it: the pure half of `gamecast.client.authority`.

The key ``owner:ENTITY`` of a region is set by the event that made somebody its owner. The position of that event is the
owner's *token*: every event of the owner is published only if the key is still there. Each token is drawn by an event
of the connection that holds it, or, for a handover that is not accepted yet, held by no connection.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import orjson

from gamecast.client.keys import NoCondition, OnlyIf
from gamecast.event import Event, JointEvent
from gamecast.positions import parse_position
from sequencing.errors import InvalidName, UsageError
from sequencing.keyed import Snapshot
from sequencing.names import GUEST, OWNER, check_guest_key, check_key

CLAIM_BYTES = 8
ACCEPTANCE_BYTES = 3
"""Random bytes of what tells a claim from others. Only acceptances of one handover are to be told from each other; with
so few, the event of one is never longer than that of the handover, so what can be handed over can be accepted."""
MOVED_KEYS_MAX = 64
"""Each is an event in both regions when the entity is accepted."""


class Handover(NamedTuple):
    """An entity that an event hands to a connection of some name."""

    entity: str
    owner: str
    region: str
    """Where the new owner acts."""
    position: str
    """Of the event there: the new owner takes the entity over after it."""
    came_from: str | None
    """The region that it has left, if it is another one."""
    left_at: str | None
    """The position of the event there, None if this connection does not know it."""
    claim: str
    state: Any
    keys: Mapping[str, Any]
    """The entity's other keys → the values that they get in the new region. They are deleted in the old one."""


def owner_key(entity: str) -> str:
    """Return the key of an entity's owner; raises `InvalidName`."""
    return check_key(OWNER + check_key(entity))


def claimed(owner: str, claim: str, *, accepts: Handover | None = None) -> dict[str, Any]:
    """Return the payload of a claim. ``claim``: by which its connection knows it from others."""
    payload: dict[str, Any] = {"owner": owner, "claim": claim}
    if accepts is not None:
        payload |= {"accepts": accepts.claim, "state": accepts.state}
    return payload


def moving(offer: Handover | None) -> dict[str, Any]:
    """Return what the payload of a claim says of keys that are still to be moved, for claims that come after it."""
    if offer is None or offer.came_from is None or not offer.keys:
        return {}
    still = {"claim": offer.claim, "from": offer.came_from, "after": offer.position, "keys": dict(offer.keys)}
    return {"moves": still}


def handed_again(offer: Handover) -> dict[str, Any]:
    """Return the payload of a handover, as it was."""
    came_from = offer.region if offer.came_from is None else offer.came_from
    return handed(offer.owner, offer.claim, region=came_from, to=offer.region, state=offer.state, keys=offer.keys)


def handed(owner: str, claim: str, *, region: str, to: str, state: Any, keys: Mapping[str, Any]) -> dict[str, Any]:
    """Return the payload of a handover."""
    payload = {"owner": owner, "claim": claim, "from": region, "to": to, "state": state}
    return payload | {"keys": dict(keys)} if keys else payload


def moved_keys(keys: object) -> dict[str, Any]:
    """Return keys that move with an entity, checked; raises `UsageError` and `InvalidName`."""
    if not isinstance(keys, Mapping) or len(keys) > MOVED_KEYS_MAX:
        raise UsageError(f"keys is a mapping of at most {MOVED_KEYS_MAX} keys to their values in the new region")
    return {check_guest_key(key): value for key, value in keys.items()}


def handover_of(event: object) -> Handover | None:
    """Return the handover that an item of the application's iteration is, None if it is none.

    Anybody who may publish in the region can publish what looks like one. Those of a gateway's clients are none.
    """
    if not isinstance(event, Event) or event.key is None or event.sender.startswith(GUEST):
        return None
    everywhere = dict(event.everywhere) if isinstance(event, JointEvent) else {}
    left_at = {region: f"{event.epoch}-{sequence}" for region, sequence in everywhere.items()}
    return _handover(event.key, event.payload, event.positions, left_at)


def handover_at(snapshot: Snapshot, key: str, region: str, position: str) -> Handover | None:
    """Return the handover that set an owner's key at a position of a region; None if the key has another one."""
    last, payload = _value(snapshot, key)
    return _handover(key, payload, {region: position}, {}) if last == position else None


def unfinished_at(snapshot: Snapshot, key: str, region: str, position: str) -> Handover | None:
    """Return the handover whose keys the claim at a position of a region may not have moved yet; None if all are."""
    last, payload = _value(snapshot, key)
    moves = payload.get("moves")
    if last != position or not isinstance(moves, dict) or parse_position(moves.get("after")) is None:
        return None
    offer = _handover(key, moves | {"owner": "", "to": region}, {region: moves["after"]}, {})
    return None if offer is None or offer.came_from is None else offer


def not_set_since(snapshot: Snapshot, keys: Iterable[str], position: str) -> dict[str, str | None]:
    """Return the keys that were not set after a position → where they were set before, None if they were not."""
    positions = {key: snapshot.values[key][0] if key in snapshot.values else None for key in keys}
    begins = parse_position(position)
    return {
        key: None if at is None else f"{at[0]}-{at[1]}"
        for key, at in positions.items()
        if at is None or begins is None or at <= begins
    }


def _handover(key: str, payload: Any, positions: Mapping[str, str], left_at: Mapping[str, str]) -> Handover | None:
    """Return what an event says. ``positions``: those that this connection may rely on; ``left_at``: all of them."""
    if not key.startswith(OWNER) or not isinstance(payload, Mapping):
        return None
    owner, claim, came_from, to = (payload.get(field) for field in ("owner", "claim", "from", "to"))
    if not (isinstance(owner, str) and isinstance(claim, str) and isinstance(came_from, str) and isinstance(to, str)):
        return None
    entity = key.removeprefix(OWNER)
    try:
        owner_key(entity)
        keys = moved_keys(payload.get("keys", {}))
    except (InvalidName, UsageError):
        return None
    if to not in positions:
        return None
    other = None if came_from == to else came_from
    return Handover(entity, owner, to, positions[to], other, left_at.get(came_from), claim, payload.get("state"), keys)


def position_of(snapshot: Snapshot, key: str, claim: str, *, or_accepted: bool = True) -> str | None:
    """Return where a claim, or what accepts it, set an owner's key; None if something else did, or deleted it."""
    position, payload = _value(snapshot, key)
    accepted = payload.get("accepts") if or_accepted else None
    return position if claim in (payload.get("claim"), accepted) else None


def left_position(snapshot: Snapshot, key: str, region: str, *, offer: Handover | None = None) -> str | None:
    """Return where a handover out of a region set an owner's key there; None if the key says something else.

    Then the entity is elsewhere. ``offer``: only if it was this handover.
    """
    position, payload = _value(snapshot, key)
    to = payload.get("to")
    if payload.get("from") != region or to in (None, region):
        return None
    if offer is not None and (payload.get("claim"), to) != (offer.claim, offer.region):
        return None
    return position


def _value(snapshot: Snapshot, key: str) -> tuple[str | None, Mapping[str, Any]]:
    """Return the position of a key, None if it is not set, and its payload, empty if that is no object."""
    value = snapshot.values.get(key)
    if value is None:
        return None, {}
    (epoch, sequence), _, is_binary, _, encoded = value
    payload = None if is_binary else orjson.loads(encoded)
    return f"{epoch}-{sequence}", payload if isinstance(payload, dict) else {}


def set_at(snapshot: Snapshot, key: str) -> str | None:
    """Return the position of a key, None if it is not set."""
    return _value(snapshot, key)[0]


def guarded(owner: str, token: str, key: str | None, only_if: OnlyIf) -> dict[str, str | None]:
    """Return the conditions of an owner's event: its own, and those that the application adds.

    ``owner``: the owner's key. Raises `UsageError` for an event that names this key or has a condition on it.
    """
    if isinstance(only_if, NoCondition):
        added: dict[str, str | None] = {}
    elif isinstance(only_if, Mapping):
        added = dict(only_if)  # `about_event` checks it
    elif key is None:
        raise UsageError("only_if is a condition on key=…: give that, or a mapping of keys to positions")
    else:
        added = {key: only_if}
    if key == owner or owner in added:
        raise UsageError(f"key {owner!r} says who owns the entity: claim, hand over or release it")
    return {owner: token, **added}
