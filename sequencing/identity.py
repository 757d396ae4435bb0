"""Results that follow from large immutable values, kept as long as they may be asked for again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import compress, islice
from operator import is_, is_not
from typing import Any, Generic, TypeVar

Result = TypeVar("Result")


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
        self.keep(sources, result)
        return result

    def keep(self, sources: tuple[Any, ...], result: Result) -> None:
        """Keep a result that is known otherwise."""
        self._kept = ((sources, result), *self._kept[: self._others])


def differing(before: Mapping[str, object], after: Mapping[str, object]) -> set[str]:
    """Return the keys whose values are not the very same in two mappings, or that only one of them has.

    It is quickest where one was made of the other.
    """
    if not all(map(is_, before, after)):
        changed = {key for key, value in after.items() if before.get(key) is not value}
        return changed | (before.keys() - after.keys())
    longer, both = (after, len(before)) if len(after) > len(before) else (before, len(after))
    return {*compress(after, map(is_not, after.values(), before.values())), *islice(longer, both, None)}
