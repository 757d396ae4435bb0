"""Check arguments of connections that would otherwise be misunderstood, or fail far from where they were given."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from adapters.urls import redacted, split_url
from sequencing.errors import InvalidName, UnknownScheme, UsageError
from sequencing.names import check_region

One = TypeVar("One")
Other = TypeVar("Other")

_USUAL_PAIRS = {tuple, list}
_NO_PAIRS = str, bytes, bytearray, Mapping, set, frozenset
"""Types that cannot be a pair, though some values with two elements can be unpacked like one."""


def checked_url(url: object) -> str:
    """Return a URL; raises `UnknownScheme` if the value is not one. Does not check that the scheme exists."""
    if not isinstance(url, str):
        raise UnknownScheme(f"a URL is a string, like 'redis://127.0.0.1:6379', not {type(url).__name__}")
    if "://" not in url:
        raise UnknownScheme(f"{redacted(url)!r} does not say what it is a URL of: write redis://… before it")
    try:
        split_url(url)
    except ValueError as error:
        raise UnknownScheme(f"{redacted(url)!r} is no URL: {error}") from error
    return url


def checked_routes(routes: Mapping[str, str] | None) -> dict[str, str]:
    """Return routes, or none; raises `UsageError` if the value is not a mapping of URLs."""
    if routes is None:
        return {}
    if not isinstance(routes, Mapping):
        raise UsageError(f"routes is a mapping, known URL → URL to connect to, not {type(routes).__name__}")
    return {checked_url(known): checked_url(reached) for known, reached in routes.items()}


def check_numbers(of: object, whole: Iterable[str], others: Iterable[str]) -> None:
    """Raise `UsageError` unless these attributes are numbers above 0; ``whole``: those that must be whole numbers."""
    for name in whole:
        value: Any = getattr(of, name)
        if not isinstance(value, int) or isinstance(value, bool):
            raise UsageError(f"{name} is a whole number, not {value!r}")
        if value <= 0:
            raise UsageError(f"{name} must be positive, not {value!r}")
    for name in others:
        value = getattr(of, name)
        if not isinstance(value, (int, float)) or isinstance(value, bool) or math.isnan(value):
            raise UsageError(f"{name} is a number, not {value!r}")
        if value <= 0:
            raise UsageError(f"{name} must be positive, not {value!r}")


def check_take(events_max: object, timeout_s: object) -> None:
    """Raise `UsageError` unless these can be the arguments of `fetch`."""
    if not isinstance(events_max, int) or isinstance(events_max, bool) or events_max < 1:
        raise UsageError(f"fetch() returns a number of events above 0, not {_shown(events_max)}")
    if timeout_s is not None and (not isinstance(timeout_s, (int, float)) or math.isnan(timeout_s)):
        raise UsageError(f"the timeout of fetch() is a number of seconds, or None, not {_shown(timeout_s)}")


def check_pattern(pattern: object) -> None:
    """Raise `UsageError` unless this is a pattern of regions."""
    if not isinstance(pattern, str):
        raise UsageError(f'on() takes a pattern of regions, as in @client.on("forest*"), not {_shown(pattern)}')


def checked_handler(handler: One) -> One:
    """Return a handler; raises `UsageError` if it is not callable."""
    if not callable(handler):
        raise UsageError(f"a handler is a function that is called with each event, not {_shown(handler)}")
    return handler


def checked_regions(regions: Iterable[str | Iterable[str]], call: str) -> set[str]:
    """Return the regions that were passed to a call, one by one or as lists; raises `InvalidName`."""
    checked: set[str] = set()
    for given in regions:
        if isinstance(given, Mapping):
            raise InvalidName(f"{call} takes regions, or a list of them, not a {type(given).__name__}")
        is_one = isinstance(given, (str, bytes)) or not isinstance(given, Iterable)
        checked.update(map(check_region, (given,) if is_one else given))
    return checked


def pairs_of(given: Iterable[tuple[One, Other]], call: str, what: str) -> list[tuple[One, Other]]:
    """Return the argument of a call as a list of pairs; raises `UsageError`. ``what``: the name of the pairs in it."""
    anything: object = given
    if isinstance(anything, Mapping):
        raise UsageError(f"{call} takes {what}, and this is a {type(given).__name__}: give its items()")
    if isinstance(anything, (str, bytes)) or not isinstance(anything, Iterable):
        raise UsageError(f"{call} takes an iterable of {what}, not {type(given).__name__}")
    pairs = list(given)
    if not {*map(type, pairs)} <= _USUAL_PAIRS or {*map(len, pairs)} - {2}:
        for number, pair in enumerate(pairs):
            _require_pair(pair, f"{call} takes {what}, and number {number + 1} of them")
    return pairs


def _require_pair(pair: object, which: str) -> None:
    if isinstance(pair, _NO_PAIRS):
        raise UsageError(f"{which} is a {type(pair).__name__}: {_shown(pair)}")
    try:
        _, _ = pair  # type: ignore[misc]
    except (TypeError, ValueError):
        raise UsageError(f"{which} is not two things: {_shown(pair)}") from None


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:80] + "…"
