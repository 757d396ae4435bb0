"""Numbers that JSON has none for never become null on the way."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from gamecast.client.payloads import LETTER_OF_NULL, NULL, lacks_number

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats() | st.text(max_size=8) | st.just("null"),
    lambda inner: (
        st.lists(inner, max_size=4) | st.tuples(inner, inner) | st.dictionaries(st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=12,
)


@dataclass
class Spell:
    """Orjson writes it as an object."""

    power: Any
    _hidden: float = math.nan


class Ratio(Enum):
    """Orjson writes its values."""

    HALF = 0.5
    NONE = math.nan


class Bag(dict[str, Any]):
    """Orjson writes it as a dict."""


@given(JSON)
def test_a_payload_is_told_to_lack_a_number_just_where_it_has_one_that_is_not_finite(payload: Any) -> None:
    assert lacks_number(payload) == any(not math.isfinite(number) for number in numbers(payload))


@given(JSON)
def test_what_lacks_a_number_has_a_null_in_its_text_and_what_lacks_none_comes_back(payload: Any) -> None:
    text = orjson.dumps(payload)
    if lacks_number(payload):
        assert NULL in text
        assert LETTER_OF_NULL in text
    else:
        assert orjson.loads(text) == listed(payload)


def test_what_orjson_takes_besides_is_looked_through_too() -> None:
    assert lacks_number([Spell(math.inf)])
    assert lacks_number({"ratio": Ratio.NONE})
    assert lacks_number(Bag(a=Bag(b=-math.inf)))
    assert not lacks_number([Spell(1.5), Ratio.HALF, Bag(a=None), None])
    assert orjson.dumps(Spell(None)) == b'{"power":null}', "what is hidden is not written"


def numbers(payload: Any) -> Iterator[float]:
    if isinstance(payload, float):
        yield payload
    elif isinstance(payload, (list, tuple)):
        for each in payload:
            yield from numbers(each)
    elif isinstance(payload, dict):
        yield from numbers(list(payload.values()))


def listed(payload: Any) -> Any:
    """The same with lists for tuples, as JSON has it."""
    if isinstance(payload, (list, tuple)):
        return [listed(each) for each in payload]
    if isinstance(payload, dict):
        return {name: listed(each) for name, each in payload.items()}
    return payload
