"""Tests, measurements and demonstrations of the system; no game server imports it."""
