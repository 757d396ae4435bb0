"""Results that follow from large immutable values, kept as long as they may be asked for again."""

from __future__ import annotations

from collections.abc import Callable, Sized
from typing import Any, Generic, TypeVar

Result = TypeVar("Result")
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
    """A function of hashable values that keeps its latest results: those of values that together are not too long.

    Results move from a young generation to an old one, which is then given up. No result is None. Several threads may
    call it.
    """

    def __init__(self, length_max: int, make: Callable[[Value], Result]) -> None:
        """``length_max``: of all values of a generation, if it has more than one."""
        self._make, self._length_max = make, length_max
        self.forget()

    def forget(self) -> None:
        """Keep no result any more."""
        self._young: dict[Value, Result] = {}
        self._old: dict[Value, Result] = {}
        self._length = 0

    def __call__(self, value: Value) -> Result:
        """Return the function's result."""
        found = self._young.get(value)
        if found is None:
            found = self._old.get(value)
            if found is None:
                found = self._make(value)
            self._length += len(value)
            if self._length > self._length_max:
                self._old, self._young, self._length = self._young, {}, len(value)
            self._young[value] = found
        return found
