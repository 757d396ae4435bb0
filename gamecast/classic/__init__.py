"""The classic protocols live: `connect`, and what it returns. See `gamecast.classic.connection`."""

from gamecast.classic.connection import ClassicCast, connect

__all__ = ["ClassicCast", "connect"]
