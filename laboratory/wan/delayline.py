"""A delay line: bytes go in, and come out in the same order, each after the delay. It does not read a clock."""

from __future__ import annotations

from collections import deque

BYTES_MAX = 64 * 1024 * 1024
"""The most bytes in flight in one direction of a connection: 64 MiB are 200 ms at 2.5 Gbit/s."""


class DelayLine:
    """One direction of a connection. Times are seconds of any one clock, which does not go back."""

    def __init__(self, delay_s: float, *, open_at_s: float = 0.0, bytes_max: int = BYTES_MAX) -> None:
        """``open_at_s``: nothing is in flight before then; ``bytes_max``: see `is_full`.

        Raises `ValueError` for a delay that is negative or not a number, and for a bound of less than a byte.
        """
        if not delay_s >= 0 or bytes_max < 1:
            raise ValueError(
                f"a line delays by 0 s or more and holds a byte or more, not {delay_s!r} and {bytes_max!r}"
            )
        self._delay_s = delay_s
        self._open_at_s = open_at_s
        self._bytes_max = bytes_max
        self._chunks: deque[tuple[float, bytes]] = deque()
        self.held_bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether to stop putting, as a sender does whose window is full; bytes that are put nevertheless are kept."""
        return self.held_bytes >= self._bytes_max

    @property
    def due_s(self) -> float | None:
        """When the next bytes arrive; None while nothing is in flight."""
        return self._chunks[0][0] if self._chunks else None

    def put(self, now_s: float, chunk: bytes) -> None:
        """Put bytes in."""
        self._chunks.append((max(now_s, self._open_at_s) + self._delay_s, chunk))
        self.held_bytes += len(chunk)

    def take(self, now_s: float) -> list[bytes]:
        """Return the bytes that have arrived and were not taken before, in the order in which they were put."""
        arrived: list[bytes] = []
        while self._chunks and self._chunks[0][0] <= now_s:
            arrived.append(self._chunks.popleft()[1])
        self.held_bytes -= sum(map(len, arrived))
        return arrived
