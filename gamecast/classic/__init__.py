"""The classic protocols live: `connect`, and what it returns. See `gamecast.classic.connection`."""

from gamecast.classic.connection import ClassicClient, connect

__all__ = ["ClassicClient", "connect"]
