"""session.json: whoever comes first describes a session, and nothing else is taken for one."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import orjson
import pytest

from analytics.session.manifest import begin_session, is_session, read_session
from sequencing.errors import InvalidInput, UsageError


def begin(directory: Path, url: str = "redis://one") -> str:
    return begin_session(directory, version="1.2", ordering="causal", url=url).session


def test_the_first_describes_and_others_join(tmp_path: Path) -> None:
    first = begin(tmp_path / "deep" / "session")
    assert begin(tmp_path / "deep" / "session", "redis://two") == first
    found = read_session(tmp_path / "deep" / "session")
    assert (found.schema, found.session, found.ordering, found.url) == (2, first, "causal", "redis://one")
    assert [file.name for file in (tmp_path / "deep" / "session").iterdir()] == ["session.json"]


def test_of_many_at_once_one_describes_it(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(lambda _: begin(tmp_path / "s"), range(32)))
    assert len(found) == 1


def test_a_directory_with_other_things_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "holiday.jpg").write_text("")
    with pytest.raises(UsageError, match=r"holiday\.jpg"):
        begin(tmp_path)
    assert not is_session(tmp_path)


def test_a_file_in_the_place_of_the_directory_is_said(tmp_path: Path) -> None:
    (tmp_path / "s").write_text("")
    with pytest.raises(UsageError, match="cannot be recorded into"):
        begin(tmp_path / "s")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (b"{", "cannot be read"),
        (b"[1]", "does not describe a session"),
        (b'{"schema": 1}', "does not describe a session"),
        (
            orjson.dumps(
                {"schema": 3, "session": "x", "began_at_ns": 1, "gamecast": "9", "ordering": "acyclic", "url": ""}
            ),
            "of schema version 3, and this gamecast reads versions 1 and 2",
        ),
    ],
)
def test_what_cannot_be_read_is_said_and_not_joined(tmp_path: Path, text: bytes, complaint: str) -> None:
    (tmp_path / "session.json").write_bytes(text)
    for use in (read_session, begin):
        with pytest.raises(InvalidInput, match=complaint):
            use(tmp_path)
    assert (tmp_path / "session.json").read_bytes() == text


def test_what_is_no_session_has_no_description(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"has no session\.json"):
        read_session(tmp_path)
