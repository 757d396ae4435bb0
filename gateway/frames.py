"""What a WebSocket client sends, counted in frames and bytes as they arrive: most of them never become a message.

A frame of six bytes, a pong or a part of a message, costs the gateway as much as a message of some hundred. So frames
are counted before anything is done about them.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from gateway.grants import Bucket
from gateway.refusal import Close
from gateway.settings import GatewayLimits

FRAMES_BEFORE_HELLO = 64
BYTES_BEFORE_HELLO = 65_536
"""Enough for a hello with any token that fits into a header, and for some pings."""
PROTOCOL_ERROR = 1002

_MASKED = 0x80


class Frames:
    """Counts the frames of one connection, from its upgrade on."""

    def __init__(
        self,
        limits: GatewayLimits,
        on_excess: Callable[[int, str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``on_excess``: called with a close code and the reason when the connection has to end."""
        self._on_excess = on_excess
        self._bucket = Bucket(limits.frames_per_s, limits.burst_frames, clock)
        self._frames_left, self._bytes_left = FRAMES_BEFORE_HELLO, BYTES_BEFORE_HELLO
        self.is_known = False
        """Whether the client has a valid token: else it is told no reason when its connection ends."""
        self._is_over = False
        self._head = b""
        """The beginning of a frame's header, whose end has not come."""
        self._skip = 0
        """Bytes that are to come of the frame whose header was read last."""

    def welcome(self) -> None:
        """Hear that the client has a valid token: from now on the limits of sessions apply."""
        self.is_known = True

    def take(self, data: bytes) -> bool:
        """Count what arrived; return whether it may be read."""
        if self._is_over:
            return False
        most = self._frames_left if not self.is_known else int(self._bucket.left)
        frames, is_masked = self._frames_in(data, most)
        if not is_masked:
            return self._end(PROTOCOL_ERROR, "a client's frames must be masked")
        if frames > most:
            return self._end(Close.RATE, "too many WebSocket frames: send whole messages, and fewer")
        if self.is_known:
            self._bucket.take(frames)
            return True
        self._frames_left -= frames
        self._bytes_left -= len(data)
        if self._bytes_left < 0:
            return self._end(Close.TOO_LARGE, f"a hello has at most {BYTES_BEFORE_HELLO} bytes")
        return True

    def _end(self, code: int, reason: str) -> bool:
        self._is_over = True
        self._on_excess(code, reason)
        return False

    def _frames_in(self, data: bytes, most: int) -> tuple[int, bool]:
        """Return how many frames begin in ``data``, as far as ``most`` + 1, and whether all of them are masked."""
        data, at, frames = self._head + data, self._skip, 0
        size = len(data)
        self._head = b""
        while size - at >= 2 and frames <= most:
            second = data[at + 1]
            if not second & _MASKED:
                return frames, False
            length = second & 0x7F
            head = 6
            if length >= 126:
                more = 2 if length == 126 else 8
                if size - at < 2 + more:
                    break
                length, head = int.from_bytes(data[at + 2 : at + 2 + more]), 6 + more
            frames += 1
            at += head + length
        self._skip = max(0, at - size)
        self._head = data[at:] if at < size else b""
        return frames, True
