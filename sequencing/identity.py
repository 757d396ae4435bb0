"""Results that follow from large immutable values, kept as long as they may be asked for again."""

from __future__ import annotations

from collections.abc import Callable, Sized
from typing import Any, Generic, TypeVar

Result = TypeVar("Result")
Parsed = TypeVar("Parsed")
Value = TypeVar("Value", bound=Sized)


class KeptFor(Generic[Result]):
    """A function of immutable values whose last results are kept by the *identity* of its arguments.

    It is for values that are too large to be hashed or compared each time, and are passed on unchanged: the paths and
    atoms of one plan after another.
    """

    def __init__(self, make: Callable[..., Result], kept: int = 4) -> None:
        self._make = make
        self._others = kept - 1
        self._kept: tuple[tuple[tuple[Any, ...], Result], ...] = ()

    def __call__(self, *sources: Any) -> Result:
        """Return the function's result."""
        for known, result in self._kept:
            if all(one is other for one, other in zip(known, sources, strict=True)):
                return result
        result = self._make(*sources)
        self._kept = ((sources, result), *self._kept[: self._others])
        return result


class KeptWithin(Generic[Value, Result]):
    """A function of hashable values that keeps its results, as long as all of its values together are not too long."""

    def __init__(self, length_max: int, make: Callable[[Value], Result]) -> None:
        """``length_max``: of all values whose results are kept; beyond it, all are made again."""
        self._make, self._length_max = make, length_max
        self._kept: dict[Value, Result] = {}
        self._length = 0

    def __call__(self, value: Value) -> Result:
        """Return the function's result."""
        found = self._kept.get(value)
        if found is None:
            found = self._make(value)
            self._length += len(value)
            if self._length > self._length_max:
                self._kept, self._length = {}, len(value)
            self._kept[value] = found
        return found


class ParsedOnce(Generic[Parsed]):
    """Parses a text once, as long as it is among the latest: `KEPT_MAX` of them, of `KEPT_BYTES_MAX` in all, or one."""

    KEPT_MAX = 16
    KEPT_BYTES_MAX = 16 * 1024 * 1024

    def __init__(self, parse: Callable[[bytes], Parsed]) -> None:
        self._parse = parse
        self._kept: tuple[tuple[bytes, Parsed], ...] = ()

    def __call__(self, text: bytes) -> Parsed:
        """Return what the function returns, or returned before, for a text."""
        for known, parsed in self._kept:
            if known == text:
                return parsed
        parsed = self._parse(text)
        kept, left = [(text, parsed)], self.KEPT_BYTES_MAX - len(text)
        for known, before in self._kept[: self.KEPT_MAX - 1]:
            left -= len(known)
            if left < 0:
                break
            kept.append((known, before))
        self._kept = tuple(kept)
        return parsed
