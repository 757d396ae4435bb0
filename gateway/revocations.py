"""Early revocations of tokens: single tokens by their ids, and all tokens of a subject.

A revocation refuses tokens until a given time, and at once ends the sessions and event streams that began with them. A
revocation that expires at once only ends those, so their clients may reconnect. All gateways of a network read the
revocations from a shared store every `LOOK_S`. So a revocation takes effect everywhere within `LOOK_S` and the
network's delay.
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
"""The minimum time that a revocation is kept, so that each gateway sees it."""
REVOCATIONS_MAX = 10_000
"""The maximum number at a time. Beyond it, remove the key that signed the tokens."""

Kind = Literal["subject", "token_id"]


@dataclass(frozen=True, slots=True)
class Revocation:
    """One revocation.

    ``until_s``: Unix time; ``id`` distinguishes it from an earlier one of the same token or subject.
    """

    kind: Kind
    value: str
    until_s: float
    id: str

    @property
    def field(self) -> str:
        """The field under which it is stored; a later one of the same token or subject replaces it."""
        return f"{self.kind}:{self.value}"

    def means(self, held: Held) -> bool:
        """Return whether the revocation applies to a token."""
        return (held.subject if self.kind == "subject" else held.token_id) == self.value

    def to_json(self) -> bytes:
        """Encode it as `read` expects it."""
        return orjson.dumps(asdict(self))


class RevocationStore(Protocol):
    """The store of revocations: field → text."""

    async def revocations(self) -> dict[str, bytes]:
        """Return all."""

    async def add_revocation(self, field: str, text: bytes) -> None:
        """Add a revocation, or replace the one with this field."""

    async def drop_revocations(self, fields: list[str]) -> None:
        """Forget some."""


class Held(Protocol):
    """The part of a `Grant` that revocations are compared with."""

    @property
    def subject(self) -> str:
        """The token's subject."""

    @property
    def token_id(self) -> str | None:
        """The token's id, if it has one."""


async def revoke(store: RevocationStore, kind: Kind, value: str, *, for_s: float) -> Revocation:
    """Refuse tokens for ``for_s`` seconds, and end what began with them; remove expired revocations.

    A longer revocation that exists already is kept. Raises `UsageError` if there are too many.
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
            f"there are {REVOCATIONS_MAX:,} revocations, the maximum: remove the key that signed the tokens instead"
        )
    await store.add_revocation(revocation.field, revocation.to_json())
    return revocation


async def pardon(store: RevocationStore, kind: Kind, value: str) -> None:
    """Remove a revocation, so that these tokens are accepted again."""
    await store.drop_revocations([f"{kind}:{value}"])


def read(text: bytes) -> Revocation | None:
    """Return a parsed revocation, None if the text is invalid."""
    try:
        document = orjson.loads(text)
        revocation = Revocation(
            document["kind"], str(document["value"]), float(document["until_s"]), str(document["id"])
        )
    except (ValueError, KeyError, TypeError):
        return None
    return revocation if revocation.kind in ("subject", "token_id") else None


class Revocations:
    """The revocations that one gateway knows."""

    def __init__(self) -> None:
        self._known: dict[str, Revocation] = {}
        self._has_looked = False
        self._ended: set[str] = set()
        """The ids of revocations that have ended their sessions and streams."""

    def take(self, texts: dict[str, bytes]) -> list[Revocation]:
        """Replace the known revocations; return the new ones."""
        current = [each for each in map(read, texts.values()) if each is not None]
        self._known = {each.field: each for each in current}
        new = [each for each in current if self._has_looked and each.id not in self._ended]
        self._has_looked = True
        self._ended = {each.id for each in current}
        return new

    def refuses(self, held: Held) -> bool:
        """Return whether a token is revoked."""
        now = time.time()
        return any(each is not None and each.until_s > now for each in self._of(held))

    def _of(self, held: Held) -> tuple[Revocation | None, Revocation | None]:
        of_token = self._known.get(f"token_id:{held.token_id}") if held.token_id is not None else None
        return self._known.get(f"subject:{held.subject}"), of_token
