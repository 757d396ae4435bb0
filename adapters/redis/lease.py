"""How a candidate sees that a leader is gone, without trusting the clock of the control Redis.

Redis lets a lease run out by the clock of its machine. When that is set back, the lease of a leader that is gone stays
for as long as the clock jumped. So a lease has a *pulse*, a count of how often it was taken or prolonged: a candidate
that is refused is told the pulse, and measures by its own monotonic clock for how long it stands still. When that is
longer than a lease it asks again with the pulse that it knows. If it is still the same, nobody prolonged the lease
between the two moments at which the control Redis looked, and these are further apart than what was measured between
an answer and the next question.
"""

from __future__ import annotations

PATIENCE = 1.25
"""For how many leases a pulse has to stand still: a candidate's clock may run faster than the leader's."""


class LeaseWatch:
    """What one candidate knows of the lease that somebody else has. Times are of a monotonic clock, in seconds."""

    def __init__(self) -> None:
        self._pulse = b""
        self._since_s = 0.0

    def refused(self, pulse: bytes, now_s: float) -> None:
        """Note the pulse that an answer told, when it came; empty: nobody counted one yet."""
        if pulse != self._pulse:
            self._pulse, self._since_s = pulse, now_s

    def stale(self, now_s: float, lease_ms: int) -> bytes:
        """Return the pulse that has stood still for longer than a lease, to ask with, else nothing."""
        return self._pulse if now_s - self._since_s > PATIENCE * lease_ms / 1000 else b""

    def forget(self) -> None:
        """To be called by the leader."""
        self._pulse = b""
