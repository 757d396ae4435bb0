"""What may name a region, a connection or a node; everything else is refused with a message that says why."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sequencing.errors import InvalidName
from sequencing.names import (
    NAME_BYTES_MAX,
    check_connection_name,
    check_node_name,
    check_region,
    guarded_cell,
    plain_cell,
)


@pytest.mark.parametrize("check", [check_region, check_connection_name])
@pytest.mark.parametrize("name", ["forest", "höhle 7", "%d {x}", "a:b", "é" * (NAME_BYTES_MAX // 2)])
def test_readable_names_of_any_script_are_taken_as_they_are(check: Callable[[object], str], name: str) -> None:
    assert check(name) == name


@pytest.mark.parametrize("check", [check_region, check_connection_name])
@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "must not be empty"),
        (" \u3000", "must not be empty"),
        ("a\nb", "control characters"),
        ("a\x00", "control characters"),
        ("a\u2028b", "control characters"),
        ("half a pair \ud800", "control characters"),
        ("x" * (NAME_BYTES_MAX + 1), "has 201"),
        ("é" * 101, "has 202"),
        (b"forest", "is a string, not bytes"),
        (7, "is a string, not int"),
        (None, "is a string, not NoneType"),
    ],
)
def test_what_would_make_a_key_or_a_log_line_ambiguous_is_refused(
    check: Callable[[object], str], name: object, why: str
) -> None:
    with pytest.raises(InvalidName, match=why):
        check(name)


def test_a_region_is_no_pattern_and_a_connection_may_have_any_printable_name() -> None:
    with pytest.raises(InvalidName, match=r"reserved for patterns: 'e:\*'"):
        check_region("e:*")
    assert check_connection_name("e:*") == "e:*"


@pytest.mark.parametrize("name", ["n1", "7", "eu-west_1.a", "N" * 64])
def test_a_node_is_named_by_letters_digits_and_a_few_signs(name: str) -> None:
    assert check_node_name(name) == name


@pytest.mark.parametrize("name", ["", "-n", ".n", "n 1", "n}", "{n", "n:1", "ñ", "n\n", "n" * 65, b"n1", None])
def test_what_could_break_out_of_a_hash_tag_names_no_node(name: object) -> None:
    with pytest.raises(InvalidName, match="1 to 64 letters"):
        check_node_name(name)


@pytest.mark.parametrize("name", ["=1+1", "+x", "-x", "@SUM(A1)", "\tx", "'x", "''", "'=x", "'"])
def test_a_cell_is_no_formula_and_is_read_as_the_name_that_it_is(name: str) -> None:
    cell = guarded_cell(name)
    assert cell == "'" + name
    assert plain_cell(cell) == name


@pytest.mark.parametrize("name", ["", "forest", "a=b", "e:1", "1-2", "o'clock"])
def test_other_names_are_cells_as_they_are(name: str) -> None:
    assert guarded_cell(name) == plain_cell(name) == name
