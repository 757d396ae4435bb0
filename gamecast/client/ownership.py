"""Who owns an entity, as events say it: the pure half of `gamecast.client.authority`.

The key ``owner:ENTITY`` of a region is set by the event that made somebody its owner. The position of that event is the
owner's *token*: every event of the owner is published only if the key is still there. Each token is drawn by an event
of the connection that holds it, or, for a handover that is not accepted yet, held by no connection.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

from gamecast.client.keys import NoCondition, OnlyIf
from gamecast.event import Event, JointEvent
from sequencing.errors import InvalidName, UsageError
from sequencing.keyed import Snapshot
from sequencing.names import GUEST, OWNER, check_key

CLAIM_BYTES = 8
ACCEPTANCE_BYTES = 3
"""Random bytes of what tells a claim from others. Only acceptances of one handover are to be told from each other; with
so few, the event of one is never longer than that of the handover, so what can be handed over can be accepted."""


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


def owner_key(entity: str) -> str:
    """Return the key of an entity's owner; raises `InvalidName`."""
    return check_key(OWNER + check_key(entity))


def claimed(owner: str, claim: str, *, accepts: Handover | None = None) -> dict[str, Any]:
    """Return the payload of a claim. ``claim``: by which its connection knows it from others."""
    payload: dict[str, Any] = {"owner": owner, "claim": claim}
    if accepts is not None:
        payload |= {"accepts": accepts.claim, "state": accepts.state}
    return payload


def handed(owner: str, claim: str, *, region: str, to: str, state: Any) -> dict[str, Any]:
    """Return the payload of a handover."""
    return {"owner": owner, "claim": claim, "from": region, "to": to, "state": state}


def handover_of(event: object) -> Handover | None:
    """Return the handover that an item of the application's iteration is, None if it is none.

    Anybody who may publish in the region can publish what looks like one. Those of a gateway's clients are none.
    """
    if not isinstance(event, Event) or event.key is None or not event.key.startswith(OWNER):
        return None
    payload = event.payload
    if not isinstance(payload, dict) or event.sender.startswith(GUEST):
        return None
    owner, claim, came_from, to = (payload.get(field) for field in ("owner", "claim", "from", "to"))
    if not (isinstance(owner, str) and isinstance(claim, str) and isinstance(came_from, str) and isinstance(to, str)):
        return None
    entity, positions = event.key.removeprefix(OWNER), event.positions
    try:
        owner_key(entity)
    except InvalidName:
        return None
    if to not in positions:
        return None
    other = None if came_from == to else came_from
    everywhere = dict(event.everywhere) if isinstance(event, JointEvent) else {}
    left_at = f"{event.epoch}-{everywhere[came_from]}" if came_from in everywhere else None
    return Handover(entity, owner, to, positions[to], other, left_at, claim, payload.get("state"))


def position_of(snapshot: Snapshot, key: str, claim: str) -> str | None:
    """Return where a claim, or what accepts it, set an owner's key; None if something else did, or deleted it."""
    position, payload = _value(snapshot, key)
    return position if claim in (payload.get("claim"), payload.get("accepts")) else None


def left_position(snapshot: Snapshot, key: str, region: str, *, offer: Handover | None = None) -> str | None:
    """Return where a handover out of a region set an owner's key there; None if the key says something else.

    Then the entity is elsewhere. ``offer``: only if it was this handover.
    """
    position, payload = _value(snapshot, key)
    to = payload.get("to")
    if payload.get("from") != region or to in (None, region):
        return None
    if offer is not None and (payload.get("owner"), payload.get("claim"), to) != (
        offer.owner,
        offer.claim,
        offer.region,
    ):
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
