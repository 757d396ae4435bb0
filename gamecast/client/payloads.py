"""Numbers that JSON cannot represent: orjson silently writes NaN and the infinities as null. The publisher of such a
number would see a success, and each subscriber would get a null that was not published. To search all payloads for such
numbers would take longer than writing them. But each leaves a null in the text. So only payloads with "null" in their
text are searched, even if it comes from a None or from a word in a string.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from sequencing.errors import InvalidPayload

NULL = b"null"
LETTER_OF_NULL = NULL[1]


def lacks_number(payload: Any) -> bool:
    """Return whether a payload that orjson has written has NaN or an infinity anywhere in it."""
    return _any_lacks((payload,))


def unfit_number(region: str) -> InvalidPayload:
    """Return the error for such a payload."""
    return InvalidPayload(
        f"the payload for region {region!r} has NaN or an infinity in it, which JSON cannot carry: send None, or a text"
    )


def unfit_payload(region: str, why: object) -> InvalidPayload:
    """Return the error for a payload that cannot be carried."""
    return InvalidPayload(
        f"the payload for region {region!r} cannot be encoded: {why}: send what JSON can carry, or bytes"
    )


def _any_lacks(values: Iterable[Any]) -> bool:
    for each in values:
        kind = type(each)
        if kind is str or kind is int or each is None or kind is bool:
            continue
        if kind is float:
            if each - each != 0:  # true only for numbers that JSON cannot represent
                return True
        elif _any_lacks(each if kind is list or kind is tuple else _parts(each)):
            return True
    return False


def _parts(of: Any) -> Iterable[Any]:
    """Return the parts that orjson writes of a value that is not a number."""
    if isinstance(of, dict):
        return of.values()
    if isinstance(of, Enum):
        return (of.value,)
    if isinstance(of, list):
        return of
    if is_dataclass(of):
        return (getattr(of, field.name, None) for field in fields(of) if not field.name.startswith("_"))
    return ()
