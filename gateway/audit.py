"""The audit log: sessions, refusals and their reasons. JSON Lines; it never has a token, a payload or a key."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Any, TextIO

import orjson

PEERS_MAX = 10
"""The limit of all peers together, as a multiple of the limit of one peer."""
TEXT_LETTERS_MAX = 200
"""The maximum length of a text that a client supplied."""


class AuditLog:
    """Writes one line for each event that an audit needs.

    Fields: ``at`` (UTC), ``gateway``, ``what``, and by kind ``session``, ``subject``, ``token_id``, ``name``, ``peer``,
    ``code``, ``reason``, ``regions``. Each kind and peer has a limit of ``lines_per_s_max`` lines, and all together
    `PEERS_MAX` times that. Lines beyond a limit are counted, not written.
    """

    def __init__(
        self,
        stream: TextIO | None,
        *,
        gateway: str = "",
        lines_per_s_max: int = 200,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._stream, self.gateway, self._clock = stream, gateway, clock
        self._lines_max, self._second, self._dropped = lines_per_s_max, 0, 0
        self._lines: Counter[tuple[str, object]] = Counter()

    def note(self, what: str, **fields: Any) -> None:
        """Write a line."""
        if self._stream is None:
            return
        now = self._clock()
        if int(now) != self._second:
            dropped, self._second, self._dropped = self._dropped, int(now), 0
            self._lines.clear()
            if dropped:
                self._write(now, "audit-lines-dropped", {"lines": dropped})
        kind = what, fields.get("peer")
        if self._lines[kind] >= self._lines_max or self._lines.total() >= self._lines_max * PEERS_MAX:
            self._dropped += 1
            return
        self._lines[kind] += 1
        self._write(now, what, fields)

    def _write(self, now: float, what: str, fields: dict[str, Any]) -> None:
        assert self._stream is not None
        at = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(now))}.{int(now % 1 * 1000):03}Z"
        line = {"at": at, "gateway": self.gateway, "what": what}
        line |= {name: _short(value) for name, value in fields.items() if value is not None}
        self._stream.write(orjson.dumps(line, default=str).decode() + "\n")
        self._stream.flush()


def _short(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value) <= TEXT_LETTERS_MAX else value[:TEXT_LETTERS_MAX] + "…"
    return value
