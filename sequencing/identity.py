"""Results that follow from large immutable values, kept as long as they may be asked for again."""

from __future__ import annotations

from collections.abc import Callable
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
        self._kept = ((sources, result), *self._kept[: self._others])
        return result
