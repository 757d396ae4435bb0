"""How a candidate detects the loss of a leader without trusting the clock of the control Redis.

Redis expires a lease by the clock of its machine. If that is set back, the lease of a dead leader stays for as long as
the clock jumped. So a lease has a *pulse*: a count of how often it was taken or renewed. A refused candidate gets the
pulse, and measures by its own monotonic clock how long it stands still. After more than a lease's duration, it asks
again with the pulse that it knows. If the pulse is still the same, the lease was not renewed between the two requests.
The time between them is longer than the time that the candidate measured between an answer and its next request.
"""

from __future__ import annotations

PATIENCE = 1.25
"""For how many leases a pulse has to stand still: a candidate's clock may be faster than the leader's."""


class LeaseWatch:
    """What one candidate knows about another candidate's lease. Times are of a monotonic clock, in seconds."""

    def __init__(self) -> None:
        self._pulse = b""
        self._since_s = 0.0

    def refused(self, pulse: bytes, now_s: float) -> None:
        """Note the pulse of an answer, and its time of arrival; empty: there is no pulse yet."""
        if pulse != self._pulse:
            self._pulse, self._since_s = pulse, now_s

    def stale(self, now_s: float, lease_ms: int) -> bytes:
        """Return the pulse if it has stood still for longer than a lease, to ask with; otherwise nothing."""
        return self._pulse if now_s - self._since_s > PATIENCE * lease_ms / 1000 else b""

    def forget(self) -> None:
        """Forget the pulse; the leader calls this."""
        self._pulse = b""
