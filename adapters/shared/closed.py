"""The error of those whose shared network access was closed before they were."""

from sequencing.errors import NotConnected


def closed_error() -> NotConnected:
    """Return what a connection fails with that is open when what it shares with others closes."""
    return NotConnected("the shared network access of this process was closed before this connection")
