"""What a call of publish says of keys: which one the event names, and what must be so for it to be published."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from gamecast.positions import parse_position
from sequencing.errors import InvalidName, UsageError
from sequencing.keyed import CONDITIONS_MAX, Condition
from sequencing.names import check_key


class NoCondition:
    """Stands for no condition, where None means that a key must not be set."""

    def __repr__(self) -> str:
        return "NO_CONDITION"


NO_CONDITION: Final = NoCondition()

OnlyIf = str | Mapping[str, str | None] | NoCondition | None
"""The position of the last event that set a key, None where it must not be set, or these of some keys."""


class About(NamedTuple):
    """What an event says of keys."""

    key: str | None = None
    conditions: tuple[Condition, ...] = ()


ABOUT_NOTHING: Final = About()


def about_keys(key: str | None, only_if: OnlyIf) -> About:
    """Return the arguments of a call, checked; raises `InvalidName`, and `UsageError` for a wrong condition."""
    if key is None and only_if is NO_CONDITION:
        return ABOUT_NOTHING
    if key is not None:
        check_key(key)
    if isinstance(only_if, NoCondition):
        return About(key)
    if isinstance(only_if, Mapping):
        if not only_if:
            raise UsageError("only_if has no key: leave it out where there is no condition")
        if len(only_if) > CONDITIONS_MAX:
            raise UsageError(f"only_if has {len(only_if)} keys, and {CONDITIONS_MAX} are the most")
        return About(key, tuple(_condition(each, position) for each, position in only_if.items()))
    if key is None:
        raise UsageError("only_if is a condition on key=…: give that, or a mapping of keys to positions")
    return About(key, (_condition(key, only_if),))


def _condition(key: object, position: object) -> Condition:
    try:
        checked = check_key(key)
    except InvalidName as error:
        raise InvalidName(f"in only_if, {error}") from error
    if position is None:
        return Condition(checked, None)
    found = parse_position(position)
    if found is None:
        raise UsageError(
            f"the condition on key {checked!r} is the position of the event that set it, as in Event.position, or "
            f"None, not {position!r}"
        )
    return Condition(checked, found)
