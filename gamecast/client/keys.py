"""What a call of publish says beside the payload: the event's further regions, which key it names, and what must be so
for it to be published."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from gamecast.positions import parse_position
from sequencing.errors import InvalidName, UsageError
from sequencing.joint import SET_REGIONS_MAX
from sequencing.keyed import CONDITIONS_MAX, Condition
from sequencing.names import check_event_key, check_key, check_region


class NoCondition:
    """Stands for no condition, where None means that a key must not be set."""

    def __repr__(self) -> str:
        return "NO_CONDITION"


NO_CONDITION: Final = NoCondition()

OnlyIf = str | Mapping[str, str | None] | Mapping[tuple[str, str], str | None] | NoCondition | None
"""The position of the last event that set a key, None where it must not be set, or these of some keys; of an event of
several regions, of (region, key) each."""

Regions = str | tuple[str, ...]
"""A region, or several at once."""


class About(NamedTuple):
    """What an event says of keys, and its regions if they are several."""

    key: str | None = None
    conditions: tuple[Condition, ...] = ()
    regions: tuple[str, ...] = ()


ABOUT_NOTHING: Final = About()


def about_event(regions: Regions, key: str | None, only_if: OnlyIf) -> tuple[str, About]:
    """Return the first region, and what else a call says, checked.

    Raises `InvalidName`, and `UsageError` for wrong regions or a wrong condition.
    """
    several = () if isinstance(regions, str) else _several(regions)
    if key is not None:
        check_event_key(key)
    conditions = _conditions(key, only_if, several)
    first = regions if isinstance(regions, str) else several[0]
    if len(several) > 1:
        return first, About(key, conditions, several)
    return first, About(key, conditions) if key is not None or conditions else ABOUT_NOTHING


def _several(regions: object) -> tuple[str, ...]:
    if not isinstance(regions, tuple):
        return (check_region(regions),)
    named = tuple(check_region(region) for region in regions)
    if not named or len(set(named)) < len(named):
        raise UsageError(f"an event of several regions names each of them once, not {regions!r}")
    if len(named) > SET_REGIONS_MAX:
        raise UsageError(f"an event has {SET_REGIONS_MAX} regions at most, not {len(named)}")
    return named


def _conditions(key: str | None, only_if: OnlyIf, several: tuple[str, ...]) -> tuple[Condition, ...]:
    if isinstance(only_if, NoCondition):
        return ()
    if isinstance(only_if, Mapping):
        if not only_if:
            raise UsageError("only_if has no key: leave it out where there is no condition")
        conditions = tuple(_condition(*_place(each, several), position) for each, position in only_if.items())
    elif key is None:
        raise UsageError("only_if is a condition on key=…: give that, or a mapping of keys to positions")
    elif len(several) > 1 and only_if is not None:
        raise UsageError(
            "an event of several regions has a position in each: say only_if={(region, key): position, …}, or None if "
            "the key must be set in none of them"
        )
    else:
        conditions = tuple(_condition(key, part, only_if) for part in range(len(several) or 1))
    if len(conditions) > CONDITIONS_MAX:
        raise UsageError(f"only_if has {len(conditions)} conditions, and {CONDITIONS_MAX} are the most")
    return conditions


def _place(named: object, several: tuple[str, ...]) -> tuple[object, int]:
    """Return the key of a condition, and the place of its region."""
    if not several or (len(several) == 1 and isinstance(named, str)):
        return named, 0
    if not isinstance(named, tuple) or len(named) != 2 or named[0] not in several:
        raise UsageError(
            f"of an event of several regions, only_if names (region, key), with one of its regions, not {named!r}"
        )
    return named[1], several.index(named[0])


def _condition(key: object, part: int, position: object) -> Condition:
    try:
        checked = check_key(key)
    except InvalidName as error:
        raise InvalidName(f"in only_if, {error}") from error
    if position is None:
        return Condition(checked, None, part)
    parsed = parse_position(position)
    if parsed is None:
        raise UsageError(
            f"the condition on key {checked!r} is the position of the event that set it, as in Event.position, or "
            f"None, not {position!r}"
        )
    return Condition(checked, parsed, part)
