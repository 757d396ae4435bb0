"""Positions as users write them: ``epoch-sequence``."""

from __future__ import annotations

from sequencing.errors import InvalidInput

NUMBER_DIGITS_MAX = 16
"""More than any number of a position has."""


def parse_position(text: object) -> tuple[int, int] | None:
    """Return (epoch, region sequence), None if the value is no position; raises `InvalidInput` for huge numbers."""
    if not isinstance(text, str):
        return None
    epoch, dash, sequence = text.partition("-")
    # Without isascii, digits of other scripts would pass.
    if not (dash and (epoch + sequence).isascii() and epoch.isdecimal() and sequence.isdecimal()):
        return None
    if len(epoch) > NUMBER_DIGITS_MAX or len(sequence) > NUMBER_DIGITS_MAX:
        raise InvalidInput(f"no position has numbers as large as {text!r}")
    return int(epoch), int(sequence)
