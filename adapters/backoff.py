"""How long to wait before retrying a request that the network refused."""

from __future__ import annotations

import asyncio

from redis.backoff import ExponentialWithJitterBackoff

BASE_S = 0.02
CAP_S = 1.0


class Backoff:
    """Jittered, growing waits between retries of one request."""

    def __init__(self) -> None:
        self._curve = ExponentialWithJitterBackoff(base=BASE_S, cap=CAP_S)
        self.failures = 0

    def next_s(self) -> float:
        """Note a failure; return how many seconds to wait, at most `CAP_S`."""
        self.failures += 1
        return self._curve.compute(self.failures)

    async def wait(self) -> None:
        """Note a failure, and wait."""
        await asyncio.sleep(self.next_s())

    def reset(self) -> None:
        """Note a success."""
        self.failures = 0
