"""The markers of one connection: what they say, and which are to be published now.

A region that is joined has a marker of its own. Others are marked along, because views wait for them, or because frames
behind a gap do: see `sequencing.joins` and `sequencing.ordering`.
"""

from __future__ import annotations

from functools import partial
from itertools import count

from sequencing.followed import FollowedEpochs, FollowedRegions


class Markers:
    """Finds what to publish, region by region; never by a look at all of them."""

    def __init__(self, name: str, incarnation: int, regions: FollowedRegions, epochs: FollowedEpochs) -> None:
        """``name`` and ``incarnation`` make them known from those of others."""
        self._start = b"%b %d" % (name.encode(), incarnation)
        self._serial = count(1)
        self._regions, self._epochs = regions, epochs
        self.requests = 0
        """How often regions were asked for: a region that has been quiet since the last time is not expected to show
        anything soon."""

    def body(self) -> bytes:
        """Return the body of a new marker."""
        return b"%b %d" % (self._start, next(self._serial))

    def due(self) -> list[tuple[str, bytes]]:
        """Return the markers to publish now, (region, body) each; each is returned once."""
        regions, markers = self._regions.all, list[tuple[str, bytes]]()
        for region in list(self._regions.unmarked):
            state = regions[region]
            if state.marker is not None and state.after is not None:
                markers.append((region, state.marker))
                self._regions.mark(region, None)
        for number in sorted(self._epochs.joining):
            probes = self._epochs.all[number].delivery.join_probes(
                self.body,
                unmarked=self._regions.unmarked.keys(),
                is_quiet=partial(self._is_quiet, number),
                request=self.requests,
            )
            markers += probes.items()
        for number in sorted(self._epochs.restless):
            delivery = self._epochs.all[number].delivery
            if delivery.is_behind_gap:
                markers += delivery.gap_probes(self.body).items()
        return markers

    def _is_quiet(self, number: int, region: str) -> bool:
        """Return whether a region that is read in an epoch has shown nothing since regions were asked for last."""
        state = self._regions.all.get(region)
        if state is None or state.epoch != number:
            return False
        return state.after is None or state.moved_in < self.requests
