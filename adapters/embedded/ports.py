"""Find free ports for servers that cannot inherit a bound socket."""

from __future__ import annotations

import random
import socket

from sequencing.errors import EmbeddedServerError


def free_port() -> int:
    """Return a loopback port that was free just now; the server must be ready to find it in use.

    The port is below the range of the kernel's ports for outgoing connections. Otherwise, a client that keeps trying to
    reach a stopped server could get that very port. It would then be connected to itself, and keep the server out.
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
    raise EmbeddedServerError(
        f"no free port was found between {_PORT_MIN} and {_PORT_MAX} on 127.0.0.1 in {_TRIES_MAX} tries"
    )


_PORT_MIN, _PORT_MAX = 20_000, 32_768  # Linux draws outgoing ports from 32768 up, other systems from 49152
_TRIES_MAX = 50
_random = random.SystemRandom()  # a program's seed must not make all its processes try the same ports
