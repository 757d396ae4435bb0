"""Ports for servers that cannot take over a socket which is bound already."""

from __future__ import annotations

import random
import socket

from sequencing.errors import EmbeddedServerError


def free_port() -> int:
    """A loopback port that was free just now; whoever listens on it must be ready to find it taken.

    It is below the range from which the kernel draws the ports of outgoing connections: a client that keeps trying to
    reach a server that is down could otherwise be given that very port, be connected to itself, and keep the server
    out.
    """
    for _ in range(_TRIES_MAX):
        port = _random.randrange(_PORT_MIN, _PORT_MAX)
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            # As Redis does, so that a port with connections in TIME_WAIT is not refused.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise EmbeddedServerError(f"no free port between {_PORT_MIN} and {_PORT_MAX} on 127.0.0.1 in {_TRIES_MAX} tries")


_PORT_MIN, _PORT_MAX = 20_000, 32_768  # Linux draws outgoing ports from 32768 up, other systems from 49152
_TRIES_MAX = 50
_random = random.SystemRandom()  # a program's seed must not make all its processes try the same ports
