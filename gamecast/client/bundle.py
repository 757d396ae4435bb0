"""Events that were published in one call: one future has the outcome of all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from gamecast.event import Receipt
from sequencing.errors import GamecastError, PartlyPublished

Outcome = Receipt | GamecastError


class Bundle:
    """The outcomes of some events, collected until all are known; it serves as the token of each of them."""

    def __init__(self, future: asyncio.Future[list[Receipt]], regions: Sequence[str]) -> None:
        """``regions``: of the events, in the order of the call. Without any, there is nothing to wait for."""
        self.future, self._regions = future, regions
        """Has the outcome of all events, once it is known."""
        self._outcomes: dict[str, list[Outcome]] = {}
        self._unknown = len(regions)
        self._tell_if_known()

    def note(self, region: str, outcomes: Sequence[Outcome]) -> None:
        """Note the outcomes of the next events in a region; those of one region are noted in their order."""
        known = self._outcomes.get(region)
        if known is None:
            known = self._outcomes[region] = []
        known += outcomes
        self._unknown -= len(outcomes)
        self._tell_if_known()

    def _tell_if_known(self) -> None:
        if self._unknown or self.future.done():  # its owner may have cancelled it
            return
        left = {region: iter(outcomes) for region, outcomes in self._outcomes.items()}
        outcomes = [next(left[region]) for region in self._regions]
        errors = [outcome for outcome in outcomes if isinstance(outcome, GamecastError)]
        if not errors:
            self.future.set_result([outcome for outcome in outcomes if isinstance(outcome, Receipt)])
        elif len(errors) == len(outcomes) and all(error.definite for error in errors):
            self.future.set_exception(errors[0])
        else:
            self.future.set_exception(PartlyPublished(errors[0], outcomes))
