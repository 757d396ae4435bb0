"""A server as a survey sees it: healthy, for tests of what is made of it."""

from __future__ import annotations

from adapters.redis.probe import ServerState

SERVER = ServerState(
    run="r1",
    pid=1,
    version="7.2.0",
    role="master",
    memory_bytes=1_000_000,
    memory_bytes_max=0,
    machine_bytes=10**10,
    memory_policy="noeviction",
    append_only=True,
    appendfsync="always",
    save="",
    clock_ahead_ms=0.0,
    round_trip_ms=0.5,
)
