"""``gamecast publish``: publish events from a terminal or a pipe."""

from __future__ import annotations

import asyncio
import signal
from collections import deque
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import click
import orjson

from cli.reporting import Output, counted, default_name, input_lines
from gamecast.client.client import Client
from gamecast.client.configuration import Limits
from gamecast.client.connecting import connect
from gamecast.client.keys import NO_CONDITION, OnlyIf, Regions, about_event
from gamecast.client.networks import require_reachable
from gamecast.errors import GamecastError, InvalidPayload, PayloadTooLarge, PublishUncertain
from gamecast.event import JointReceipt, Receipt
from launcher.ending import INFRASTRUCTURE, INTERRUPTED
from sequencing.names import check_region

UNDER_WAY_EVENTS_MAX = 1024
UNDER_WAY_BYTES_MAX = 16 * 1024 * 1024
"""Limits of events in flight, published without a receipt yet: enough to fill frames."""


@click.command()
@click.argument("url")
@click.argument("region")
@click.argument("payloads", nargs=-1, metavar="[PAYLOAD...]")
@click.option("--text", is_flag=True, help="Send each payload as text, even if it is valid JSON.")
@click.option(
    "--also",
    multiple=True,
    metavar="REGION",
    help="Publish each event to this region, too, at once: to all of the regions, or to none. Give it once for each.",
)
@click.option(
    "--key", metavar="KEY", help="Key of the region that each event sets, or, with the payload null, deletes."
)
@click.option(
    "--only-if",
    metavar="POSITION",
    help="Publish only if the key was last set at this position (3-120); `none`: only if it is not set.",
)
@click.option("--name", help="Name of the publisher, as subscribers see it.  [default: user@host-pid]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object at the end, and no receipts.")
@click.pass_context
def publish(
    context: click.Context,
    url: str,
    region: str,
    payloads: Sequence[str],
    *,
    text: bool,
    also: Sequence[str],
    key: str | None,
    only_if: str | None,
    name: str | None,
    as_json: bool,
) -> None:
    """Publish events to a region, and print their receipts. A receipt is a region and a position, epoch-sequence.

    A PAYLOAD that is valid JSON is sent as JSON, any other as a string. Put -- before payloads that begin with a dash.
    Without PAYLOAD, each line of standard input is one event, published as soon as it is read. Subscribers that join
    later can replay the events, as `gamecast tail --since 0` does.

    \b
    Examples:
      gamecast publish redis://127.0.0.1 forest '{"type": "spell"}' 'hello'
      tail -f game.log | gamecast publish redis://127.0.0.1 log --text
      gamecast publish redis://127.0.0.1 forest '{"by": "ana"}' --key sword --only-if none
      gamecast publish redis://127.0.0.1 forest '{"type": "arrow"}' --also river

    Exit status: 0 if all events are published, 130 if interrupted, 2 for wrong use, 3 if the network is unavailable or
    refuses, standard output is closed, or SIGTERM stopped it. On every failure it prints what was published before.
    """
    require_reachable(url)
    for each in (region, *also):
        check_region(each)
    encoded = [_checked(payload, text, f"payload {number}") for number, payload in enumerate(payloads, start=1)]
    client = connect(url, name=name or default_name())
    condition: OnlyIf = NO_CONDITION if only_if is None else None if only_if == "none" else only_if
    regions: Regions = (region, *also) if also else region
    about_event(regions, key, condition)  # raises what is wrong with them before anything is sent
    sending = _Sending(region, text, regions, key, condition)
    stopped, status = None, INFRASTRUCTURE
    try:
        asyncio.run(sending.run(client, encoded, None if as_json else Output()))
    except BrokenPipeError:
        stopped = "standard output was closed"
    except KeyboardInterrupt:
        stopped, status = "interrupted", INTERRUPTED
    except asyncio.CancelledError:
        stopped = "stopped"
    except GamecastError as error:
        if not sending.opened:
            raise
        sending.error = error
    if as_json:
        click.echo(orjson.dumps(sending.as_dict(client.name), option=orjson.OPT_INDENT_2))
    if sending.error is not None:
        raise type(sending.error)(f"{sending.error}; {sending.told()}") from sending.error
    if stopped is not None:
        click.echo(f"gamecast: {stopped}; {sending.told()}", err=True)
        context.exit(status)


@dataclass(slots=True)
class _Sending:
    """The events of one call and their outcomes."""

    region: str
    text: bool
    regions: Regions
    key: str | None = None
    only_if: OnlyIf = NO_CONDITION
    opened: bool = False
    published: int = 0
    failed: int = 0
    uncertain: int = 0
    first: Receipt | None = None
    last: Receipt | None = None
    error: GamecastError | None = None
    _under_way: deque[tuple[asyncio.Future[Receipt], int]] = field(default_factory=deque)
    _under_way_bytes: int = 0
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _room: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self, client: Client, payloads: Sequence[Any], output: Output | None) -> None:
        """Publish payloads, or the lines of standard input if there are none. Raises the first error."""
        # asyncio cancels the task in the same way on SIGINT.
        sending = asyncio.current_task()
        assert sending is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, sending.cancel)
        try:
            async with client:
                self.opened = True
                feeding = asyncio.create_task(self._feed(client, payloads), name="gamecast publish feed")
                feeding.add_done_callback(lambda _: self._changed.set())
                try:
                    await self._collect(feeding, output)
                finally:
                    feeding.cancel()
                    await asyncio.gather(feeding, return_exceptions=True)
        finally:
            # The connection is closed: every event in flight has its outcome.
            while self._under_way:
                self._count()

    def _publish(self, client: Client, payload: Any) -> asyncio.Future[Receipt]:
        return client.publish_async(self.regions, payload, key=self.key, only_if=self.only_if)

    def told(self) -> str:
        """Return a summary of what was published."""
        said = f"{counted(self.published, 'event')} published"
        if self.last is not None:
            said += f", the last as {self.last.region} {self.last.position}"
        if self.uncertain:
            said += f", {counted(self.uncertain, 'event')} perhaps"
        return said + (f", {self.failed:,} not" if self.failed else "")

    def as_dict(self, name: str) -> dict[str, object]:
        """Return what ``--json`` prints."""
        error = self.error
        return {
            "region": self.region,
            "name": name,
            "published": self.published,
            "failed": self.failed,
            "uncertain": self.uncertain,
            "first": _position(self.first),
            "last": _position(self.last),
            "error": None
            if error is None
            else {
                "kind": type(error).__name__,
                "message": str(error),
                "definite": error.definite,
                "retriable": error.retriable,
            },
        }

    async def _collect(self, feeding: asyncio.Task[None], output: Output | None) -> None:
        while self._under_way or not feeding.done():
            if not self._under_way:
                self._changed.clear()
                await self._changed.wait()
                continue
            # Cancelling this wait must not cancel the publish.
            receipt = await asyncio.shield(self._under_way[0][0])
            self._count()
            if output is not None:
                told = (f"{region} {position}" for region, position in receipt.positions.items())
                await output.write(f"{' '.join(told)}\n".encode())
        await feeding

    async def _feed(self, client: Client, payloads: Sequence[Any]) -> None:
        async for payload in self._given(payloads) if payloads else self._typed():
            size = len(orjson.dumps(payload))
            while len(self._under_way) >= UNDER_WAY_EVENTS_MAX or self._under_way_bytes >= UNDER_WAY_BYTES_MAX:
                self._room.clear()
                await self._room.wait()
            self._under_way.append((self._publish(client, payload), size))
            self._under_way_bytes += size
            self._changed.set()

    async def _given(self, payloads: Sequence[Any]) -> AsyncIterator[Any]:
        for payload in payloads:
            yield payload

    async def _typed(self) -> AsyncIterator[Any]:
        number = 0
        async for line in input_lines():
            number += 1
            yield _checked(line, self.text, f"standard input, line {number}")

    def _count(self) -> None:
        """Remove the oldest event in flight, and count its outcome."""
        future, size = self._under_way.popleft()
        self._under_way_bytes -= size
        self._room.set()
        error = future.exception() if future.done() else PublishUncertain()
        if error is None:
            self.published += 1
            self.last = future.result()
            self.first = self.first or self.last
        elif isinstance(error, GamecastError) and error.definite:
            self.failed += 1
        else:
            self.uncertain += 1


def _checked(written: str, text: bool, where: str) -> Any:
    """Return the payload of a text, checked before it is published. Raises `UsageError`, with its place."""
    payload: Any = written
    if not text:
        try:
            payload = orjson.loads(written)
        except orjson.JSONDecodeError:
            payload = written
    try:
        size = len(orjson.dumps(payload))
    except TypeError as error:
        raise InvalidPayload(f"{where}: cannot be encoded: {error}") from error
    if size > Limits().payload_bytes_max:
        raise PayloadTooLarge(
            f"{where}: has {size:,} bytes encoded, more than {Limits().payload_bytes_max:,}: send less, or a reference"
        )
    return payload


def _position(receipt: Receipt | None) -> dict[str, object] | None:
    if receipt is None:
        return None
    return {
        "region": receipt.region,
        "epoch": receipt.epoch,
        "sequence": receipt.sequence,
        "position": receipt.position,
        **({"positions": receipt.positions} if isinstance(receipt, JointReceipt) else {}),
    }
