"""What a server publishes, in one region or in several, with keys or without, its updates, and the notes of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from gamecast import Authority, Client
from gamecast.errors import Conflict, GamecastError
from gamecast.event import JointReceipt, Receipt
from laboratory.chaos.items import joint_name

KEYS = "xyz"
KEYED = 0.2
"""So many of the events name a key."""
CONDITIONAL = 0.7
"""So many of these are published on the condition that the key is as the server knows it."""

JOINT = 0.2
"""So many of the events for a region that is in a set go to all regions of the set."""

Note = Callable[[dict[str, object]], None]


class Publisher:
    """The events and updates of one connection."""

    def __init__(
        self,
        client: Client,
        random: Random,
        session: int,
        sets: Sequence[tuple[str, ...]],
        heads: dict[tuple[str, str], str | None],
        *,
        note: Note,
        count: Callable[[], None],
    ) -> None:
        """``session``: its number; ``sets``: of regions that some events go to at once; ``heads``: (region, key) →
        where it was set last, as far as the server was told; ``count``: called with each event."""
        self._client, self._random, self._session, self._sets, self._heads = client, random, session, sets, heads
        self._note, self._count = note, count
        self.unresolved: set[str] = set()
        self._published = self._updated = 0
        self._last_event: dict[str, str] = {}
        """Region → the last event that was published there."""

    async def publish_owned(self, mine: Authority, key: str | None) -> None:
        """Publish an event by an authority, and note what becomes of it."""
        event = self._next_event()
        about = {"entity": mine.entity, "token": mine.position}
        self._note({"did": "publish", "event": event, "region": mine.region, **about})
        self._count()
        self.unresolved.add(event)
        try:
            self._note_receipt(event, await mine.publish(event.encode(), key=key))
        except GamecastError as error:
            self._note_failure(event, error)
        finally:
            self.unresolved.discard(event)

    def _next_event(self) -> str:
        self._published += 1
        return f"{self._client.name}/{self._session}/{self._published}"

    def update(self, region: str) -> None:
        """Send an update, which says what this connection had published before it."""
        self._updated += 1
        payload = {"session": self._session, "number": self._updated, "behind": self._last_event.get(region, "")}
        self._client.update(region, self._random.choice(KEYS), payload)

    def publish(self, region: str) -> None:
        """Publish an event to a region, or to all of its set."""
        event = self._next_event()
        regions: tuple[str, ...] = (region,)
        if self._random.random() < JOINT:
            regions = next((found for found in self._sets if region in found), regions)
        if len(regions) > 1:
            event = joint_name(regions, event)
        about = self._about(regions)
        only_if = about.get("only_if")
        noted_if = {"only_if": {of: at for (of, _), at in only_if.items()}} if isinstance(only_if, dict) else {}
        where = {"regions": regions} if len(regions) > 1 else {"region": region}
        self._note({"did": "publish", "event": event, **where, **about, **noted_if})
        self._count()
        filling = b" " * self._random.choice((0, 0, 0, 100, 3000))
        try:
            to = regions if len(regions) > 1 else region
            receipt = self._client.publish_async(to, event.encode() + filling, **about)
        except GamecastError as error:
            self._note_failure(event, error)
            return
        self.unresolved.add(event)
        self._last_event |= dict.fromkeys(regions, event)
        receipt.add_done_callback(lambda done: self._resolved(event, about.get("key"), done))

    def _about(self, regions: tuple[str, ...]) -> dict[str, Any]:
        """Return what the next event says of keys."""
        if self._random.random() >= KEYED:
            return {}
        key = self._random.choice(KEYS)
        if self._random.random() >= CONDITIONAL:
            return {"key": key}
        heads = {(region, key): self._heads.get((region, key)) for region in regions}
        return {"key": key, "only_if": heads if len(regions) > 1 else heads[regions[0], key]}

    def _resolved(self, event: str, key: str | None, done: asyncio.Future[Receipt]) -> None:
        self.unresolved.discard(event)
        if done.cancelled():
            return
        if (error := done.exception()) is not None:
            self._note_failure(event, error)
            return
        if key is not None:
            positions = done.result().positions
            self._heads |= {(region, key): position for region, position in positions.items()}
        self._note_receipt(event, done.result())

    def _note_receipt(self, event: str, receipt: Receipt) -> None:
        note: dict[str, object] = {"event": event, "epoch": receipt.epoch, "sequence": receipt.sequence}
        if isinstance(receipt, JointReceipt):
            note["also"] = {region: sequence for region, sequence in receipt.parts if region != receipt.region}
        self._note({"did": "receipt", **note})

    def _note_failure(self, event: str, error: BaseException) -> None:
        uncertain = not (isinstance(error, GamecastError) and error.definite)
        note: dict[str, object] = {"event": event, "error": type(error).__name__, "uncertain": uncertain}
        note["says"] = str(error)[:200]
        if isinstance(error, Conflict):
            note["position"] = self._heads[error.region, error.key] = error.position
            note["region"] = error.region
        self._note({"did": "fail", **note})

    def updates(self) -> list[dict[str, object]]:
        """Return the notes of the updates that there are."""
        return [
            {
                "did": "update",
                "region": each.region,
                "key": each.key,
                "sender": each.sender,
                "epoch": each.epoch,
                "sequence": each.sequence,
                **each.payload,
            }
            for each in self._client.updates()
        ]
