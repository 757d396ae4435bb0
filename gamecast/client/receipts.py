"""Receipts: what publishing returned to the application is completed when the fate of its events is known."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import count, groupby, repeat
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import orjson

from gamecast.client.bundle import Bundle
from gamecast.client.watching import PublishErrorReporter
from gamecast.event import JointReceipt, Receipt
from sequencing.errors import GamecastError
from sequencing.resolved import Resolved

if TYPE_CHECKING:
    from gamecast.recording.tap import Tap

UNSEEN_S = 1.0
"""How long the application has to await a future that has failed, before its error is reported as one of
`publish_nowait`."""

ReceiptFuture = asyncio.Future[Receipt]
Token = ReceiptFuture | Bundle | PublishErrorReporter
"""What stands for an event."""

_new_receipt = partial(tuple.__new__, Receipt)


class Receipts:
    """Completes the futures and bundles of one connection, and reports errors that have neither."""

    def __init__(self, reporter: PublishErrorReporter, tap: Tap | None) -> None:
        """``reporter``: reports errors of events without a future; ``tap``: records what was published."""
        self._reporter = reporter
        self._tap = tap
        self._loop = asyncio.get_running_loop()
        self._unseen: list[_Failed] = []
        self._timer: asyncio.TimerHandle | None = None
        self._is_closing = False
        self.has_other_tokens = False
        """Whether tokens were ever other than futures: without, there is a shorter way to complete them."""
        self.published_events = 0
        self.refused_events = 0

    def close(self) -> None:
        """Report soon what was not retrieved."""
        self._is_closing = True
        if self._timer is not None:
            self._timer.cancel()
            # The loop may end soon. Tasks that wait for their events look first.
            self._loop.call_soon(self._loop.call_soon, self._report_unseen)

    def resolve(self, resolved: Resolved[Token]) -> None:
        """Report the fate of the events of one frame."""
        if self._tap is not None:
            self._tap.published(resolved)
        outcomes: Iterator[Receipt | GamecastError]
        if resolved.error is None:
            self.published_events += len(resolved.tokens)
            if len(resolved.tokens) == 1 and not (self.has_other_tokens or resolved.also):
                future = cast("ReceiptFuture", resolved.tokens[0])
                if not future.done():  # its owner may have cancelled it
                    future.set_result(Receipt(resolved.region, resolved.epoch, resolved.first_sequence))
                return
            same = repeat(resolved.region), repeat(resolved.epoch)
            receipts: Iterator[Receipt] = map(_new_receipt, zip(*same, count(resolved.first_sequence), strict=False))
            if resolved.also:
                receipts = _joint_receipts(resolved)
            if not self.has_other_tokens:
                _receive(cast("list[ReceiptFuture]", resolved.tokens), receipts)
                return
            outcomes = receipts
        else:
            self.refused_events += len(resolved.tokens)
            outcomes = repeat(resolved.error)
        end = 0
        for token, several in groupby(cast("list[ReceiptFuture | Bundle | PublishErrorReporter]", resolved.tokens)):
            told = [outcome for _, outcome in zip(several, outcomes, strict=False)]
            begin, end = end, end + len(told)
            if isinstance(token, PublishErrorReporter):
                token.note(resolved.where, told, partial(_payloads, resolved, begin, end))
            elif isinstance(token, Bundle):
                token.note(resolved.region, told)
                if resolved.error is not None:
                    self._await_retrieval(_Failed(token.future, resolved, begin, end))
            elif token.done():
                continue  # its owner has cancelled it
            elif isinstance(told[0], Receipt):
                token.set_result(told[0])
            else:
                token.set_exception(told[0])
                self._await_retrieval(_Failed(token, resolved, begin, end))

    def _await_retrieval(self, failed: _Failed) -> None:
        """Give the application some time to await a future that has failed."""
        self._unseen.append(failed)
        if self._timer is None:
            self._timer = self._loop.call_later(UNSEEN_S, self._report_unseen)

    def _report_unseen(self) -> None:
        """Report errors that were not retrieved, like those of `publish_nowait`: asyncio would log each."""
        failed, self._timer = self._unseen, None
        self._unseen = [
            each for each in failed if not each.future.done()
        ]  # the fate of their other events is not known yet
        unseen = [
            each for each in failed if each.future.done() and not each.future.cancelled() and each.future._log_traceback
        ]
        for each in unseen:
            each.future.exception()
        # What failed in one frame is reported at once.
        for resolved, several in groupby(unseen, key=lambda each: each.resolved):
            events = [*several]
            self._reporter.note(
                resolved.where,
                [resolved.error] * sum(each.end - each.begin for each in events),
                partial(_payloads_of, events),
            )
        if self._unseen and not self._is_closing:
            self._timer = self._loop.call_later(UNSEEN_S, self._report_unseen)


class _Failed(NamedTuple):
    """Some events of a frame that failed, from ``begin`` until before ``end``, and their future."""

    future: asyncio.Future[Any]
    resolved: Resolved[Token]
    begin: int
    end: int


def _joint_receipts(resolved: Resolved[Token]) -> Iterator[Receipt]:
    """Yield the receipts of events of several regions."""
    firsts = [(resolved.region, resolved.first_sequence), *resolved.also]
    for place in range(len(resolved.tokens)):
        parts = tuple((region, first + place) for region, first in firsts)
        yield JointReceipt(resolved.region, resolved.epoch, resolved.first_sequence + place, parts)


def _payloads_of(failed: Iterable[_Failed]) -> list[Any]:
    return [payload for each in failed for payload in _payloads(each.resolved, each.begin, each.end)]


def _payloads(resolved: Resolved[Token], begin: int, end: int) -> list[Any]:
    """Return what some events of a frame carry, as the application gave it."""
    encoded = resolved.payloads[begin:end]
    return [*encoded] if resolved.binary else [*map(orjson.loads, encoded)]


def _receive(futures: Iterable[ReceiptFuture], receipts: Iterable[Receipt]) -> None:
    pairs = zip(futures, receipts, strict=False)
    while True:
        try:
            for future, receipt in pairs:
                future.set_result(receipt)
            return
        except asyncio.InvalidStateError:
            continue  # its owner has cancelled it
