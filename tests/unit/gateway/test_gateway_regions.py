"""Names of regions from outside: the quick look at plain names takes exactly what the close look takes."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway import regions
from gateway.regions import _looked_at, check_public_region
from sequencing.errors import InvalidName


def taken(check: object, name: str) -> bool:
    assert callable(check)
    try:
        return bool(check(name) == name)
    except InvalidName:
        return False


@given(st.text(alphabet="ab./ *[]{}\\?\n\x00\x7f\"'`~-", min_size=0, max_size=12))
@example("..\n")
@example("a/..")
@example("a/./b")
@example("x" * 200)
@example("x" * 201)
def test_a_plain_name_is_judged_as_by_the_close_look(name: str) -> None:
    assert taken(check_public_region, name) == taken(_looked_at, name)


def test_a_long_name_is_refused_before_it_is_normalized(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regions, "_looked_at", lambda name: pytest.fail("it was looked at closely"))
    with pytest.raises(InvalidName, match="at most 200 bytes"):
        check_public_region("é" * 10_000)
