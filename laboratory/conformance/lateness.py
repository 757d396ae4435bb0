"""Judge `after` of retries: not before what the client had told its user when it was asked to publish."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import orjson

from gateway.messages import Position, position_of
from laboratory.conformance.log import Asked, Entry, Heard, Reported, Said


def afters(entries: Sequence[Entry]) -> Iterator[str]:
    """Yield a sentence for each retry that is looked for too early: an equal event from before would be taken for it.

    What the client reported before the command, it had when it first sent the event (docs/gateway.md, Resuming).
    """
    had: dict[str, Position] = {}
    acks: dict[tuple[Any, Any], dict[str, str]] = {}
    known: dict[bytes, dict[str, Position]] = {}
    for entry in entries:
        if isinstance(entry, Said) and entry.document["type"] == "acks":
            for ack in entry.document["acks"]:
                region, position = ack["region"], ack["position"]
                acks[region, position] = ack.get("positions") or {region: position}
        elif isinstance(entry, Reported) and isinstance(entry.line, dict):
            for region, at in _reported(entry.line, acks):
                had[region] = max(had.get(region, at), at)
        elif isinstance(entry, Asked) and entry.command["do"] == "publish":
            known.setdefault(_content(entry.command), dict(had))
        elif isinstance(entry, Heard) and isinstance(entry.document, dict) and entry.document.get("retry") is True:
            regions = entry.document.get("regions") or [entry.document.get("region")]
            least = known.get(_content(entry.document), {}).get(regions[0])
            after = _position(entry.document.get("after"))
            if least is not None and after is not None and after < least:
                yield (
                    f"the retry in {regions[0]} is looked for behind {entry.document['after']}; "
                    f"the client had {least[0]}-{least[1]} when it was asked to publish"
                )


def _reported(line: dict[str, Any], acks: dict[tuple[Any, Any], dict[str, str]]) -> Iterator[tuple[str, Position]]:
    item = line.get("event") or line.get("gap") or line.get("state")
    places: dict[Any, Any] = {}
    if isinstance(item, dict):
        places = (
            item["positions"] if isinstance(item.get("positions"), dict) else {item.get("region"): item.get("position")}
        )
    elif "receipt" in line:
        places = acks.get((line.get("region"), line.get("position")), {})
    for region, text in places.items():
        if (at := _position(text)) is not None:
            yield region, at


def _position(text: Any) -> Position | None:
    try:
        return position_of(text) if isinstance(text, str) else None
    except ValueError:
        return None


def _content(document: dict[str, Any]) -> bytes:
    where = document.get("regions") or [document.get("region")]
    return orjson.dumps([where, document.get("payload"), document.get("base64")])
