"""A candidate's own measure of how long a lease was not prolonged."""

from __future__ import annotations

from adapters.redis.lease import PATIENCE, LeaseWatch

LEASE_MS = 2_000
LONG_S = PATIENCE * LEASE_MS / 1000


def test_a_pulse_that_stands_still_for_longer_than_a_lease_is_stale() -> None:
    watch = LeaseWatch()
    watch.refused(b"7", 100.0)
    watch.refused(b"7", 101.0)
    assert watch.stale(100.0 + LONG_S, LEASE_MS) == b""
    assert watch.stale(100.1 + LONG_S, LEASE_MS) == b"7"


def test_a_pulse_that_changes_is_measured_anew() -> None:
    watch = LeaseWatch()
    for pulse in range(10):
        watch.refused(b"%d" % pulse, 100.0 + pulse)
        assert watch.stale(100.9 + pulse, LEASE_MS) == b""
    assert watch.stale(109.1 + LONG_S, LEASE_MS) == b"9"


def test_who_saw_nothing_or_led_itself_or_was_told_no_pulse_waits() -> None:
    watch = LeaseWatch()
    assert watch.stale(100.0, LEASE_MS) == b""
    watch.refused(b"7", 100.0)
    watch.forget()
    assert watch.stale(200.0, LEASE_MS) == b""
    watch.refused(b"", 200.0)
    assert watch.stale(300.0, LEASE_MS) == b""
