"""Returns: what of its own events a connection has delivered, and what of them will not come.

Where order is causal, an event waits until its publisher has itself delivered what it published before elsewhere: see
`sequencing.causal_wait`. The subscriber of the same connection knows, by three signs. Its own event is delivered. An
epoch of a region is delivered to its end: whatever was accepted in it has been delivered then, or is lost. Something is
missing up to a place: what was accepted there is lost, or was never to come. Events of an earlier connection of the
name are not its own.
"""

from __future__ import annotations

from collections.abc import Iterable

from sequencing.frames import FrameKind, own_number
from sequencing.ready import Missing, Ready


class OwnDeliveries:
    """What became known since the last question, whether the application gets it or not."""

    def __init__(self, name: str, incarnation: int) -> None:
        """``name`` and ``incarnation``: of the connection as it began; it may have later ones."""
        self._name = name
        self._incarnation = incarnation
        self._passed: dict[str, int] = {}
        self._over: dict[str, int] = {}
        self._gone: dict[str, tuple[int, int]] = {}

    def note(self, items: Iterable[Ready | Missing]) -> None:
        """Note what is delivered now."""
        for item in items:
            if isinstance(item, Missing):
                self._gone[item.region] = item.epoch, item.last
                continue
            frame, meta = item
            if meta.kind == FrameKind.TICK:
                self._over[frame.region] = frame.epoch
            elif meta.publisher == self._name:
                number = own_number(frame.meta, self._incarnation, frame.region)
                self._passed[frame.region] = max(number, self._passed.get(frame.region, 0))

    @property
    def has_news(self) -> bool:
        """Whether `passed` or `gone` has anything to return."""
        return bool(self._passed or self._gone)

    def passed(self) -> dict[str, int]:
        """Return how far this very connection has delivered its own frames since the last call: region → own number.

        For `sequencing.publisher.Publisher.passed`.
        """
        passed, self._passed = self._passed, {}
        return {region: number for region, number in passed.items() if number}

    def over(self) -> dict[str, int]:
        """Return, region → epoch, which epochs this connection has delivered to their ends since the last call.

        For `sequencing.publisher.Publisher.ended`.
        """
        over, self._over = self._over, {}
        return over

    def gone(self) -> dict[str, tuple[int, int]]:
        """Return, region → (epoch, region sequence), up to where something was missing, as far as it became known since
        the last call.

        For `sequencing.publisher.Publisher.gone`.
        """
        gone, self._gone = self._gone, {}
        return gone
