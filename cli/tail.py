"""``gamecast tail``: follow regions at a terminal."""

from __future__ import annotations

import asyncio
import base64
import signal
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime

import click
import orjson

from cli.reporting import Output, counted, default_name, named, printable
from gamecast.client.client import Client
from gamecast.client.connecting import connect
from gamecast.client.history import Since
from gamecast.client.networks import require_reachable
from gamecast.event import Event, Gap, Item, JointEvent, State
from sequencing.errors import UsageError
from sequencing.names import check_region


@click.command()
@click.argument("url")
@click.argument("regions", nargs=-1, required=True, metavar="REGION...")
@click.option("--count", type=click.IntRange(min=1), metavar="N", help="Stop after N events.")
@click.option("--seconds", type=click.FloatRange(min=0, min_open=True), metavar="S", help="Stop after S seconds.")
@click.option(
    "--since",
    multiple=True,
    metavar="POSITION",
    help="Print earlier events first: those after a position (3-120), or after an epoch (0: all that is kept). "
    "For several regions, give REGION=POSITION once for each.",
)
@click.option("--state", is_flag=True, help="Print first the keys of the regions as they are, and then what comes.")
@click.option("--name", help="Name of the subscriber, unique in the network.  [default: user@host-pid]")
@click.option("--json", "as_json", is_flag=True, help="Print JSON Lines: one object for each event or gap.")
def tail(
    url: str,
    regions: Sequence[str],
    *,
    count: int | None,
    seconds: float | None,
    since: Sequence[str],
    state: bool,
    name: str | None,
    as_json: bool,
) -> None:
    """Subscribe to regions, and print their events in order. One line each, as they are delivered.

    Without --since it prints only events that are published after it has subscribed, which it reports on standard
    error. With --since it replays earlier events first; regions without a common order are replayed in any order.

    With --json a line has kind ("event", "gap" or "state"), region, epoch and position; for an event also sender,
    sequence, payload, base64 (whether the payload is bytes, encoded as base64), sent_at_ns, delivered_at_ns, replayed
    and key (null if the event names none). An event of several regions has positions (region: position), too. A gap has
    first_sequence, last_sequence (0, and position null, if the number of missing events is unknown) and reason. A state
    has positions, incomplete (regions whose node lost keys), and values: region, key, and what an event has.

    \b
    Examples:
      gamecast tail redis://127.0.0.1 forest river --json
      gamecast tail redis://127.0.0.1 forest --since 0
      gamecast tail redis://127.0.0.1 forest --state

    Exit status: 0 when --count or --seconds is reached, on SIGTERM, or when standard output is closed; 130 if
    interrupted, 2 for wrong use, 3 if the network is unavailable.
    """
    require_reachable(url)
    for region in regions:
        check_region(region)
    begin = _since(since, regions)
    client = connect(url, name=name or default_name())
    interrupted = False
    with suppress(BrokenPipeError):  # `| head` closes the pipe when it has enough
        interrupted = asyncio.run(
            _until_stopped(client, regions, begin, count=count, seconds=seconds, state=state, as_json=as_json)
        )
    if interrupted:
        raise KeyboardInterrupt


async def _until_stopped(
    client: Client,
    regions: Sequence[str],
    since: Since | None,
    *,
    count: int | None,
    seconds: float | None,
    state: bool,
    as_json: bool,
) -> bool:
    """Follow until count, seconds or a signal ends it. Return whether the signal was SIGINT."""
    loop = asyncio.get_running_loop()
    output = Output()
    told = _follow(client, regions, since, output, count, state=state, as_json=as_json)
    following = asyncio.create_task(told, name="gamecast tail")
    stopped = interrupted = False

    def stop(number: signal.Signals | None = None) -> None:
        nonlocal stopped, interrupted
        interrupted |= number is signal.SIGINT
        # A second signal also cancels the orderly disconnect.
        if number is not None or not stopped:
            stopped = True
            following.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop, number)
    output.on_reader_gone(stop)
    if seconds is not None:
        loop.call_later(seconds, stop)
    try:
        await following
    except asyncio.CancelledError:
        if not stopped:
            raise
    return interrupted


def _since(written: Sequence[str], regions: Sequence[str]) -> Since | None:
    """Parse ``--since``. Raises `UsageError`."""
    if not written:
        return None
    if len(written) == 1 and "=" not in written[0]:
        return _place(written[0])
    positions = {region: _place(place) for region, _, place in (each.rpartition("=") for each in written)}
    if len(positions) != len(written) or positions.keys() != set(regions):
        raise UsageError("--since names each region once, as REGION=POSITION, or is one epoch for all of them")
    return positions


def _place(written: str) -> int | str:
    return int(written) if written.isascii() and written.isdecimal() else written


async def _follow(
    client: Client,
    regions: Sequence[str],
    since: Since | None,
    output: Output,
    count: int | None,
    *,
    state: bool,
    as_json: bool,
) -> None:
    wanted = float("inf") if count is None else count
    async with client:
        await client.subscribe(*regions, since=since, order="any", state=state)
        click.echo(f"subscribed to {named(regions)}", err=True)
        async for batch in client.batches():
            lines = []
            for item in batch:
                lines.append(_json_line(item) if as_json else _line(item))
                wanted -= isinstance(item, Event)
                if not wanted:
                    break
            await output.write(b"".join(lines))
            if not wanted:
                return


def _line(item: Item) -> bytes:
    if isinstance(item, State):
        return b"".join(_state_lines(item))
    if isinstance(item, Gap):
        missing = f"{item.epoch}-{item.first_sequence} to {item.epoch}-{item.last_sequence}"
        return f"{'gap':12} {printable(item.region)} {missing}: {printable(item.reason)}\n".encode()
    assert isinstance(item, Event)  # who is present is not asked for
    return _event_line(item, _moment(item.delivered_at_ns))


def _moment(at_ns: int) -> str:
    return datetime.fromtimestamp(at_ns / 1e9).astimezone().strftime("%H:%M:%S.%f")[:-3]


def _state_lines(state: State) -> Iterator[bytes]:
    for region, values in state.values.items():
        for event in values.values():
            yield _event_line(event, f"{'state':12}")
        lost = ", and its node lost some" if region in state.incomplete else ""
        told = f"{printable(region)} {state.positions[region]}: {counted(len(values), 'key')}{lost}"
        yield f"{'state':12} {told}\n".encode()


def _event_line(item: Event, begin: str) -> bytes:
    payload = repr(item.payload) if isinstance(item.payload, bytes) else orjson.dumps(item.payload).decode()
    who = printable(item.sender)
    named = f"{printable(item.key)}=" if item.key is not None else ""
    where = " ".join(f"{printable(region)} {position}" for region, position in item.positions.items())
    return f"{begin} {where} {who} {named}{printable(payload)}\n".encode()


def _json_line(item: Item) -> bytes:
    if isinstance(item, State):
        told = {
            "kind": "state",
            "positions": item.positions,
            "incomplete": sorted(item.incomplete),
            "values": {
                region: {key: _fields(event) for key, event in known.items()} for region, known in item.values.items()
            },
        }
        return orjson.dumps(told, option=orjson.OPT_APPEND_NEWLINE)
    if isinstance(item, Gap):
        return orjson.dumps(
            {"kind": "gap", **item._asdict(), "position": item.position}, option=orjson.OPT_APPEND_NEWLINE
        )
    assert isinstance(item, Event)  # as above
    return orjson.dumps({"kind": "event", **_fields(item)}, option=orjson.OPT_APPEND_NEWLINE)


def _fields(item: Event) -> dict[str, object]:
    binary = isinstance(item.payload, bytes)
    return {
        "region": item.region,
        "sender": item.sender,
        "payload": base64.b64encode(item.payload).decode() if binary else item.payload,
        "base64": binary,
        "epoch": item.epoch,
        "sequence": item.sequence,
        "position": item.position,
        "sent_at_ns": item.sent_at_ns,
        "delivered_at_ns": item.delivered_at_ns,
        "replayed": item.replayed,
        "key": item.key,
        **({"positions": item.positions} if isinstance(item, JointEvent) else {}),
    }
