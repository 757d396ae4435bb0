"""``gamecast keys``: show whose the keys of a region are, and delete them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import click
import orjson

from cli.reporting import default_name
from gamecast.client.client import Client
from gamecast.client.connecting import connect
from gamecast.client.networks import require_reachable
from gamecast.errors import Conflict, Unreachable
from gamecast.event import Event, State
from sequencing.names import GUEST, check_region, client_of

STATE_S = 30.0


@click.command()
@click.argument("url")
@click.argument("region")
@click.option("--of", "holder", metavar="NAME", help="List the keys that this one set last: a server, or ~PLAYER.")
@click.option("--delete", is_flag=True, help="With --of: delete them, but for those that somebody sets meanwhile.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
def keys(url: str, region: str, *, holder: str | None, delete: bool, as_json: bool) -> None:
    """Show whose the keys of a region are, and delete them.

    Of each who has set keys last, it shows how many, and the bytes of their values.

    A region has 3,584 keys at most, beside those of presence and ownership. All sessions of a gateway's client are one:
    it has 256 keys at most. Presence is not listed: `gamecast status` has it.

    \b
    Examples:
      gamecast keys redis://127.0.0.1 forest
      gamecast keys redis://127.0.0.1 forest --of '~mallory' --delete

    Deleting publishes an event with the payload null for each key, as everybody sees it.

    Exit status: 0 done, 2 for wrong use, 3 if the network is unavailable.
    """
    require_reachable(url)
    check_region(region)
    if delete and holder is None:
        raise click.UsageError("--delete needs --of NAME: whose keys are to be deleted")
    held = asyncio.run(_look(connect(url, name=default_name()), region, holder, delete=delete))
    if as_json:
        click.echo(orjson.dumps(held.as_dict(), option=orjson.OPT_INDENT_2))
    elif holder is None:
        for name, (count, size) in held.holders().items():
            click.echo(f"{count:>6,} keys {size:>13,} bytes  {name}")
        click.echo(f"{len(held.values):,} keys of region {region!r}", err=True)
    else:
        for key, event in held.values.items():
            click.echo(f"{key}  {event.position}  {_size(event):,} bytes")
        done = f", {held.deleted:,} of them deleted" if delete else ""
        click.echo(f"{len(held.values):,} keys of region {region!r} were set last by {holder}{done}", err=True)


@dataclass(slots=True)
class _Found:
    """The keys of a region, or those of one who set them last."""

    region: str
    values: dict[str, Event]
    deleted: int = 0

    def holders(self) -> dict[str, tuple[int, int]]:
        """Return who has set keys last → how many, and the bytes of their values; the most keys first."""
        counts: dict[str, tuple[int, int]] = {}
        for event in self.values.values():
            count, size = counts.get(name := _holder(event.sender), (0, 0))
            counts[name] = count + 1, size + _size(event)
        return dict(sorted(counts.items(), key=lambda item: (-item[1][0], item[0])))

    def as_dict(self) -> dict[str, object]:
        """Return it as printed with ``--json``."""
        holders = {name: {"keys": count, "bytes": size} for name, (count, size) in self.holders().items()}
        listed = {key: {"by": event.sender, "position": event.position} for key, event in self.values.items()}
        return {"region": self.region, "holders": holders, "keys": listed, "deleted": self.deleted}


async def _look(client: Client, region: str, holder: str | None, *, delete: bool) -> _Found:
    async with client:
        await client.subscribe(region, state=True)
        held = _Found(region, await _state(client, region))
        if holder is not None:
            held.values = {key: event for key, event in held.values.items() if _holder(event.sender) == holder}
        for key, event in held.values.items() if delete else ():
            try:
                await client.publish(region, None, key=key, only_if=event.position)
            except Conflict:  # somebody has set it meanwhile
                continue
            held.deleted += 1
    return held


async def _state(client: Client, region: str) -> dict[str, Event]:
    while items := await client.fetch(timeout=STATE_S):
        for item in items:
            if isinstance(item, State) and region in item.values:
                return dict(item.values[region])
    raise Unreachable(f"the state of region {region!r} has not come within {STATE_S:g} s")


def _holder(sender: str) -> str:
    """Return who counts as having set a key: a server, or a gateway's client, all of its sessions together."""
    client = client_of(sender)
    return sender if client is None else GUEST + client


def _size(event: Event) -> int:
    return len(event.payload) if isinstance(event.payload, bytes) else len(orjson.dumps(event.payload))
