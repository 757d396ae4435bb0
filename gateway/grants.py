"""What a client may do, and how much of its rate limits it has used."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gateway.refusal import Code, Refusal
from gateway.settings import GatewayLimits
from sequencing.names import RegionPatterns

ANYBODY = "anybody"
EVERYTHING = RegionPatterns(("**",))
SEPARATOR = "~"
"""Separates a subject from the suffix that the token's holder chooses, in names of connections."""

_MANY = 1_000
"""Clients without tokens share one subject, so together they get the limits of this many token holders."""

DEBT = 1
"""How many bursts a subject may owe."""

NAMES_PER_REQUEST = 16
"""Reading this many region names takes as much work as one request."""

SUBJECTS_KEPT = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """What a token allows. None means: the gateway's own limits apply.

    ``subject``: the names of its holder's connections are this, or this followed by ``~`` and any suffix. ``token_id``:
    identifies the token in the audit log; ``key_id``: of the key that signed it. ``watch``: whether the holder may see
    metrics and the dashboard. ``claims``: all claims of the token, for the game's backend.
    """

    subject: str
    read: RegionPatterns
    write: RegionPatterns
    watch: bool = False
    expires_at_s: float | None = None
    token_id: str | None = None
    key_id: str | None = None
    events_per_s: float | None = None
    burst_events: int | None = None
    payload_bytes_max: int | None = None
    sessions_max: int | None = None
    claims: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)

    def seconds_left(self, leeway_s: float) -> float | None:
        """Return how many seconds it is still accepted, None if it does not expire."""
        return None if self.expires_at_s is None else max(0.0, self.expires_at_s + leeway_s - time.time())

    def require_name(self, name: str) -> str:
        """Return a name if the token's holder may use it; raises `Refusal`."""
        if self.subject != ANYBODY and name != self.subject and not name.startswith(self.subject + SEPARATOR):
            raise Refusal(
                Code.FORBIDDEN,
                f"this token allows the name {self.subject!r}, or that name followed by '{SEPARATOR}' and a suffix",
                status=403,
            )
        return name

    def require_read(self, region: str) -> None:
        """Raise `Refusal` for a region that the token does not let its holder read."""
        if region not in self.read:
            raise _forbidden("read", region)

    def require_write(self, region: str) -> None:
        """Raise `Refusal` for a region that the token does not let its holder write."""
        if region not in self.write:
            raise _forbidden("write", region)


def _forbidden(what: str, region: str) -> Refusal:
    message = f"this token does not let you {what} {region!r}"
    return Refusal(Code.FORBIDDEN, message, status=403, more={"region": region})


def anybody() -> Grant:
    """Return the grant of clients that need no token."""
    return Grant(subject=ANYBODY, read=EVERYTHING, write=EVERYTHING, watch=True)


class Bucket:
    """A token bucket: ``burst`` at once, ``rate_per_s`` in the long run."""

    def __init__(self, rate_per_s: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate_per_s, self._burst, self._clock = rate_per_s, burst, clock
        self._left, self._at = float(burst), clock()

    @property
    def is_full(self) -> bool:
        """Whether the bucket is full, so that a new one would behave the same."""
        return self._left + (self._clock() - self._at) * self._rate_per_s >= self._burst

    @property
    def left(self) -> float:
        """How many could be taken now; less than 0 while something is owed."""
        self.take(0.0)
        return self._left

    @property
    def owed_s(self) -> float:
        """The seconds until nothing is owed."""
        return max(0.0, -self.left / self._rate_per_s)

    def take_in_debt(self, amount: float) -> float:
        """As `take`, also more than a burst: what is beyond that is owed."""
        wait_s = self.take(min(amount, self._burst))
        if not wait_s and amount > self._burst:
            self.owe(amount - self._burst)
        return wait_s

    def change(self, rate_per_s: float, burst: float) -> None:
        """Continue with other limits."""
        self._rate_per_s, self._burst = rate_per_s, burst
        self._left = min(self._left, burst)

    def take(self, amount: float = 1.0) -> float:
        """Take some and return 0, or take nothing and return the seconds until there is enough."""
        now = self._clock()
        self._left = min(self._burst, self._left + (now - self._at) * self._rate_per_s)
        self._at = now
        if amount > self._left:
            return (min(amount, self._burst) - self._left) / self._rate_per_s or 1e-3
        self._left -= amount
        return 0.0

    def owe(self, amount: float) -> None:
        """Take an amount that was already used. The debt delays later requests, by `DEBT` bursts at most."""
        self.take(0.0)
        self._left = max(self._left - amount, -DEBT * self._burst)


class Subject:
    """What all sessions and requests of one subject share."""

    def __init__(self, grant: Grant, limits: GatewayLimits) -> None:
        self._limits = limits
        self.sessions = 0
        self._events = Bucket(*self._rate(grant))
        self._has_rate = grant.events_per_s is not None
        many = _MANY if grant.subject == ANYBODY else 1
        self._requests = Bucket(limits.requests_per_s * many, limits.burst_requests * many)
        self._refusals = Bucket(limits.requests_per_s * many, limits.burst_requests * many)
        self._updates = Bucket(limits.updates_per_s * many, limits.burst_updates * many)
        self._bytes = Bucket(limits.bytes_per_s * many, limits.burst_bytes * many)
        self.beginning = asyncio.Semaphore(many)
        """Held while states are read and given to a session."""
        self._history = Bucket(limits.history_events_per_s * many, limits.burst_history_events * many)
        self._regions = Bucket(limits.new_regions_per_s * many, limits.burst_new_regions * many)
        # Half of the answers that may be kept at once; the other half refills in the time for which they are kept.
        half = limits.idempotency_events_max * many / 2
        self._remembered = Bucket(half / limits.idempotency_s, half)

    @property
    def is_forgettable(self) -> bool:
        """Whether a new object would behave the same: no session, and all buckets full."""
        buckets = (
            *(self._events, self._requests, self._refusals, self._updates),
            *(self._history, self._regions, self._remembered, self._bytes),
        )
        return not self.sessions and all(bucket.is_full for bucket in buckets)

    def follow(self, grant: Grant) -> None:
        """Apply the limits of the newest token."""
        self._events.change(*self._rate(grant))
        self._has_rate = grant.events_per_s is not None

    def require_events(self, amount: int) -> None:
        """Count published events; raises `Refusal` if there are too many."""
        self._require(self._events.take(amount), "events")

    def require_updates(self, amount: int) -> None:
        """Count updates, also as events where the token sets a rate; raises `Refusal` if there are too many."""
        self._require(self._updates.take_in_debt(amount), "updates")
        if self._has_rate:
            self._require(self._events.take_in_debt(amount), "events and updates")

    def read_bytes(self, size: int) -> float:
        """Count bytes of messages; return for how many seconds no more of them may be read."""
        self._bytes.owe(size)
        return self._bytes.owed_s

    def require_bytes(self, size: int) -> None:
        """Count bytes of an HTTP body; raises `Refusal` if there are too many."""
        self._require(self._bytes.take_in_debt(size), "bytes")

    def require_request(self, *, names: int = 0) -> None:
        """Count a request, and one more for each `NAMES_PER_REQUEST` that it lists.

        Raises `Refusal` if there are too many.
        """
        self._require(self._requests.take(1 + names // NAMES_PER_REQUEST), "requests")

    def goes_on_too_fast(self) -> bool:
        """Count a refusal for the rate limit; return whether there were too many."""
        return self._refusals.take() > 0

    def require_history(self) -> None:
        """Raise `Refusal` if the subject has read so much history that others would have to wait."""
        self._require(self._history.take(), "events of history")

    def read_history(self, events: int) -> None:
        """Count events that were read from history."""
        self._history.owe(events)

    def require_regions(self, amount: int) -> None:
        """Count new regions; raises `Refusal` if there are too many."""
        self._require(self._regions.take(amount), "new regions")

    def require_remembered(self, events: int) -> None:
        """Count events whose answers are kept for their idempotency keys; raises `Refusal` if there are too many."""
        self._require(self._remembered.take(events), "events with idempotency keys")

    def enter(self, grant: Grant) -> None:
        """Count a session; raises `Refusal` if there are too many."""
        most = grant.sessions_max or self._limits.sessions_per_token_max
        if grant.subject != ANYBODY and self.sessions >= most:
            raise Refusal(
                Code.LIMIT,
                f"this token's holder has {self.sessions} sessions, and the limit is {most}: close one first",
                status=429,
                retriable=True,
            )
        self.sessions += 1

    def leave(self) -> None:
        """Count the end of a session."""
        self.sessions -= 1

    def _rate(self, grant: Grant) -> tuple[float, float]:
        rate = grant.events_per_s or self._limits.events_per_s
        burst = grant.burst_events or (max(1.0, rate) if grant.events_per_s else self._limits.burst_events)
        if grant.subject == ANYBODY:
            rate, burst = rate * _MANY, burst * _MANY
        return rate, burst

    @staticmethod
    def _require(wait_s: float, what: str) -> None:
        if wait_s:
            raise Refusal(
                Code.RATE,
                f"too many {what}: try again in {wait_s:.3f} s",
                status=429,
                retriable=True,
                retry_after_s=wait_s,
            )


class Subjects:
    """The subjects that were active recently."""

    def __init__(self, limits: GatewayLimits) -> None:
        self._limits = limits
        self._subjects: dict[str, Subject] = {}

    def of(self, grant: Grant) -> Subject:
        """Return the subject of a grant."""
        subject = self._subjects.get(grant.subject)
        if subject is None:
            if len(self._subjects) >= SUBJECTS_KEPT:
                self._forget()
            subject = self._subjects[grant.subject] = Subject(grant, self._limits)
        else:
            subject.follow(grant)
        return subject

    def _forget(self) -> None:
        self._subjects = {name: subject for name, subject in self._subjects.items() if not subject.is_forgettable}
        if len(self._subjects) >= SUBJECTS_KEPT:
            raise Refusal(
                Code.LIMIT,
                "too many token holders are active at once: try again later",
                status=503,
                retriable=True,
                retry_after_s=10,
            )
