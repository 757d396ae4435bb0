"""Causal order at the publisher: an event waits until the publisher's earlier events elsewhere were delivered to it.

A *run* is a series of events of one connection to one region, with no event to another region between them. The events
of a run need not wait for each other, because a region has one order anyway.
"""

from __future__ import annotations

from collections import deque


class CausalWait:
    """Runs of events, each to one region. A run may be sent when all earlier runs have passed."""

    def __init__(self) -> None:
        self._runs: deque[tuple[int, str]] = deque()
        self._open = 0
        self._left: dict[int, int] = {}
        """Run → its events that have not passed."""
        self._numbered: dict[str, deque[tuple[int, int, int]]] = {}
        """Region → (last number, run, events) of each frame that was sent and has not passed."""
        self._answered: dict[str, tuple[int, int, int]] = {}
        """Region → (last number, epoch, region sequence) of the frame that was accepted last."""
        self._gone: dict[str, tuple[int, int]] = {}
        """Region → (epoch, region sequence) up to where a loss was reported."""
        self._over: dict[str, int] = {}
        """Region → the last epoch whose end was delivered."""

    def add(self, region: str) -> int:
        """Return the run that the next event to a region belongs to."""
        if not self._runs or self._runs[-1][1] != region:
            self._open += 1
            self._runs.append((self._open, region))
            self._left[self._open] = 0
            self._pop()
        self._left[self._open] += 1
        return self._open

    def may_go(self, run: int) -> bool:
        """Return whether events of a run may be sent."""
        return run <= self._runs[0][0]

    def awaited(self) -> set[str]:
        """Return the regions of events that have not passed."""
        return {region for run, region in self._runs if self._left[run] > 0}

    def numbered(self, region: str, run: int, last: int, events: int) -> None:
        """Note which numbers events were sent with."""
        self._numbered.setdefault(region, deque()).append((last, run, events))

    def passed(self, region: str, number: int) -> list[str]:
        """Note up to which number a region was delivered; return the regions whose events may be sent now."""
        waiting = self._numbered.get(region, deque())
        while waiting and waiting[0][0] <= number:
            _, run, events = waiting.popleft()
            self._left[run] -= events
        return self._pop()

    def answered(self, region: str, last: int, epoch: int, place: int) -> list[str]:
        """Note in which epoch and place a frame was accepted; return the regions whose events may be sent now."""
        self._answered[region] = last, epoch, place
        is_over = epoch <= self._over.get(region, 0) or (epoch, place) <= self._gone.get(region, (0, 0))
        return self.passed(region, last) if is_over else []

    def gone(self, region: str, epoch: int, place: int) -> list[str]:
        """Note that all frames accepted up to a place have passed or are lost; return what `passed` does."""
        self._gone[region] = epoch, place
        last, *accepted = self._answered.get(region, (0, 0, 0))
        return self.passed(region, last) if accepted <= [epoch, place] else []

    def ended(self, region: str, epoch: int) -> list[str]:
        """Note that an epoch's end was delivered: all frames accepted until then have passed, or are lost."""
        self._over[region] = epoch
        last, accepted, _ = self._answered.get(region, (0, 0, 0))
        return self.passed(region, last) if accepted <= epoch else []

    def given_up(self, run: int, events: int) -> list[str]:
        """Note events that failed before they were sent; return the regions whose events may be sent now."""
        self._left[run] -= events
        return self._pop()

    def lost(self, region: str, last: int) -> list[str]:
        """Note that a frame that was sent failed; return the regions whose events may be sent now."""
        waiting = self._numbered.get(region, deque())
        for place, (number, run, events) in enumerate(waiting):
            if number == last:  # otherwise it has passed after all
                del waiting[place]
                self._left[run] -= events
                break
        return self._pop()

    def _pop(self) -> list[str]:
        freed: list[str] = []
        while len(self._runs) > 1 and self._left[self._runs[0][0]] <= 0:
            del self._left[self._runs.popleft()[0]]
            freed = [self._runs[0][1]]
        return freed
