"""WebSocket frames (RFC 6455) as a server sends them, for what a library never does: parts, junk and silence."""

from __future__ import annotations

import struct
from collections.abc import Iterator

CONTINUATION, TEXT, BINARY = 0, 1, 2


def frame(content: bytes, *, opcode: int = TEXT, is_last: bool = True) -> bytes:
    """Return one frame, not masked."""
    head = bytes([opcode | (0x80 if is_last else 0)])
    size = len(content)
    if size < 126:
        return head + bytes([size]) + content
    if size < 1 << 16:
        return head + bytes([126]) + struct.pack("!H", size) + content
    return head + bytes([127]) + struct.pack("!Q", size) + content


def fragments(content: bytes, size: int) -> Iterator[bytes]:
    """Yield the frames of one text message, each with ``size`` bytes at most: cut also within a letter."""
    starts = range(0, max(1, len(content)), size)
    for start in starts:
        opcode = TEXT if start == 0 else CONTINUATION
        yield frame(content[start : start + size], opcode=opcode, is_last=start + size >= len(content))
