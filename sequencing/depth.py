"""The nesting depth of payloads: a limit, because others have to wrap payloads in something of their own."""

from __future__ import annotations

from typing import Any

import orjson

PAYLOAD_DEPTH_MAX = 64
ORJSON_DEPTH_MAX = 254
"""orjson does not write anything that is nested deeper."""


PAYLOAD_LISTS_MAX = 4_096


def has_more_lists(payload: Any, text: bytes, most: int) -> bool:
    """Return whether a payload, which orjson wrote as this text, has more lists and objects than a limit: parsed, each
    takes some 20 times the bytes that it has as text."""
    if text.count(b"[") + text.count(b"{") <= most:
        return False
    left, count = [payload], 0
    while left and count <= most:
        each = left.pop()
        if isinstance(each, (dict, list)):
            count += 1
            left.extend(each.values() if isinstance(each, dict) else each)
    return count > most


def is_deeper(payload: Any, text: bytes, depth_max: int) -> bool:
    """Return whether a payload, which orjson wrote as this text, has lists and objects nested deeper than a limit."""
    # Most payloads are too short for that, or have too few lists and objects in all.
    if len(text) <= 2 * depth_max or text.count(b"[") + text.count(b"{") <= depth_max:
        return False
    for _ in range(ORJSON_DEPTH_MAX - depth_max):
        payload = [payload]
    try:
        orjson.dumps(payload)
    except TypeError:
        return True
    return False
