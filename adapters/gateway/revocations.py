"""What was revoked before its time: tokens, by their ids, and all tokens of a subject.

A revocation refuses tokens until some time, and ends at once the sessions and event streams that began with them. One
that ends at once only ends those: who had them may come back. It is kept where all gateways of a network look for it
every `LOOK_S`, so that within `LOOK_S` and what the network takes it counts everywhere.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import asdict, dataclass
from typing import Literal, Protocol

import orjson

from sequencing.errors import UsageError

LOOK_S = 2.0
KEPT_S = 60.0
"""At least so long, so that each gateway sees it."""
REVOCATIONS_MAX = 10_000
"""At a time. Beyond it, take out the key that signed the tokens."""

Kind = Literal["subject", "token_id"]


@dataclass(frozen=True, slots=True)
class Revocation:
    """One revocation; ``until_s``: by the clock, since 1970; ``id`` tells it from an earlier one of the same."""

    kind: Kind
    value: str
    until_s: float
    id: str

    @property
    def field(self) -> str:
        """What it is kept under; a later one of the same replaces it."""
        return f"{self.kind}:{self.value}"

    def means(self, held: Held) -> bool:
        """Return whether it is one of a token."""
        return (held.subject if self.kind == "subject" else held.token_id) == self.value

    def to_json(self) -> bytes:
        """Write it as `read` reads it."""
        return orjson.dumps(asdict(self))


class RevocationStore(Protocol):
    """Where revocations are kept: field → text."""

    async def revocations(self) -> dict[str, bytes]:
        """Return all."""

    async def add_revocation(self, field: str, text: bytes) -> None:
        """Add one, or replace the one of its field."""

    async def drop_revocations(self, fields: list[str]) -> None:
        """Forget some."""


class Held(Protocol):
    """What a revocation is compared with: a `Grant`."""

    @property
    def subject(self) -> str:
        """Whose token it is."""

    @property
    def token_id(self) -> str | None:
        """The token's id, if it has one."""


async def revoke(store: RevocationStore, kind: Kind, value: str, *, for_s: float) -> Revocation:
    """Refuse tokens for so long, and end what began with them; those that nobody needs any more are forgotten.

    One that is to last longer does. Raises `UsageError` when there are too many.
    """
    now = time.time()
    known = {field: read(text) for field, text in (await store.revocations()).items()}
    over = [field for field, each in known.items() if each is None or each.until_s < now - KEPT_S]
    if over:
        await store.drop_revocations(over)
    before = known.get(f"{kind}:{value}")
    until_s = max(now + for_s, before.until_s if before is not None else 0.0)
    revocation = Revocation(kind, value, until_s, secrets.token_hex(8))
    if revocation.field not in known and len(known) - len(over) >= REVOCATIONS_MAX:
        raise UsageError(
            f"{REVOCATIONS_MAX:,} revocations are kept at most: take out the key that signed the tokens instead"
        )
    await store.add_revocation(revocation.field, revocation.to_json())
    return revocation


async def pardon(store: RevocationStore, kind: Kind, value: str) -> None:
    """Refuse these tokens no more."""
    await store.drop_revocations([f"{kind}:{value}"])


def read(text: bytes) -> Revocation | None:
    """Read a revocation; None for what is none."""
    try:
        document = orjson.loads(text)
        found = Revocation(document["kind"], str(document["value"]), float(document["until_s"]), str(document["id"]))
    except (ValueError, KeyError, TypeError):
        return None
    return found if found.kind in ("subject", "token_id") else None


class Revocations:
    """Those that one gateway knows of."""

    def __init__(self) -> None:
        self._known: dict[str, Revocation] = {}
        self._has_looked = False
        self._ended: set[str] = set()
        """The ids of those that have ended what there was."""

    def take(self, texts: dict[str, bytes]) -> list[Revocation]:
        """Know these from now on; return those that are new."""
        found = [each for each in map(read, texts.values()) if each is not None]
        self._known = {each.field: each for each in found}
        new = [each for each in found if self._has_looked and each.id not in self._ended]
        self._has_looked = True
        self._ended = {each.id for each in found}
        return new

    def refuses(self, held: Held) -> bool:
        """Return whether a token is refused."""
        now = time.time()
        return any(each is not None and each.until_s > now for each in self._of(held))

    def _of(self, held: Held) -> tuple[Revocation | None, Revocation | None]:
        of_token = self._known.get(f"token_id:{held.token_id}") if held.token_id is not None else None
        return self._known.get(f"subject:{held.subject}"), of_token
