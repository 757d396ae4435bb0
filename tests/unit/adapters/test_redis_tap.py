"""What a tap missed of a link, told by its dense sequences."""

import pytest

from adapters.redis.tap import BEGIN, NEVER_USED, _missed


@pytest.mark.parametrize(
    ("after", "read", "missed"),
    [
        (b"7-0", [b"8-0", b"9-0"], 0),
        (b"7-0", [b"10-0"], 2),
        (b"7-0", [b"9-0", b"12-0"], 3),
        (NEVER_USED, [b"1-0"], 0),
        (NEVER_USED, [b"3-0", b"4-0"], 2),
        (BEGIN, [b"30-0", b"32-0"], 1),  # how far the link was before, nobody looked
    ],
)
def test_what_is_not_there_between_two_reads_was_missed(after: bytes, read: list[bytes], missed: int) -> None:
    assert _missed(after, read) == missed
