"""Which region names clients may use, and which of them a token's patterns match.

Inside the library any printable name without a ``*`` is valid. Clients may send names that are made to look like
others, or that match more than one pattern. So the gateway accepts fewer names; patterns compare the rest character by
character.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache

from sequencing.errors import InvalidName, UsageError
from sequencing.names import NAME_BYTES_MAX, RegionPatterns, check_region

_GLOB = set("*?[]{}\\")
_FILLERS = set("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
_SELECTORS = (0x180B, 0x180F), (0xFE00, 0xFE0F), (0xE0100, 0xE01EF)
_ALIKE = {"LATIN", "CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE", "COPTIC"}
"""Alphabets with letters that look the same."""


_PLAIN_PART = r"(?!\.{1,2}(?:/|$))[\w.,:;=@+~!$&'()#%^|<>\"`-]+"
_PLAIN = re.compile(f"{_PLAIN_PART}(?:/{_PLAIN_PART})*", re.ASCII)
"""Names that need no further check: ASCII without spaces, in parts that are neither empty nor ``.`` or ``..``."""


def check_public_region(region: str) -> str:
    """Return a region name that a client may use; raises `InvalidName` with the reason if it may not."""
    if len(region) <= NAME_BYTES_MAX and _PLAIN.fullmatch(region):
        return region
    if len(region) > NAME_BYTES_MAX:  # normalizing long names is slow
        return check_region(region)
    return _looked_at(region)


@lru_cache(maxsize=8192)
def _looked_at(region: str) -> str:
    check_region(region)
    if unicodedata.normalize("NFKC", region) != region:
        raise InvalidName(
            f"a region must be in Unicode normal form NFKC, so that it does not look like another name: {region!r}"
        )
    if glob := sorted(_GLOB.intersection(region)):
        raise InvalidName(f"a region must not contain {' '.join(glob)}, which are reserved for patterns: {region!r}")
    check_visible(region, "region")
    if region != region.strip():
        raise InvalidName(f"a region must not begin or end with a space: {region!r}")
    if any(part in ("", ".", "..") for part in region.split("/")):
        raise InvalidName(f"a region's parts between slashes must not be empty, '.' or '..': {region!r}")
    alphabets = {unicodedata.name(letter, "").split(" ")[0] for letter in region if letter.isalpha()}
    if len(mixed := sorted(alphabets & _ALIKE)) > 1:
        raise InvalidName(f"a region must not mix {' and '.join(mixed)} letters, which look alike: {region!r}")
    return region


def check_visible(name: str, what: str) -> str:
    """Return a name of visible characters only; raises `InvalidName`."""
    if any(_is_invisible(letter) for letter in name):
        raise InvalidName(f"a {what} must not contain invisible letters: {name!a}")
    return name


def _is_invisible(letter: str) -> bool:
    """Return whether a printable character is invisible: fillers, joiners and selectors."""
    code = ord(letter)
    return letter in _FILLERS or any(first <= code <= last for first, last in _SELECTORS)


def checked_patterns(patterns: Iterable[object]) -> RegionPatterns:
    """Return the patterns of a token; raises `UsageError` for one that is invalid."""
    return RegionPatterns(map(check_pattern, patterns))


def check_pattern(pattern: object) -> str:
    """Return a pattern; raises `UsageError` if it is invalid, or can never match a region."""
    if not isinstance(pattern, str):
        raise UsageError(f"a region pattern must be a string, not {pattern!r}")
    try:
        check_public_region(pattern.replace("*", "x"))
    except InvalidName as error:
        raise UsageError(
            f"{pattern!r} is not a valid region pattern (* and ** stand for characters): {error}"
        ) from error
    return pattern
