"""Judge the log of one scenario: what the client owed its user and the gateway, and did not do.

The kit's messages say what was due: each event, gap and state that was sent, in the order in which it was first sent.
A client that drops and resumes is sent some of them twice, and must report them once. What a client never asked for
again, because it resumed behind it, is found by comparison with the world (`Happened`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import orjson

from gateway.messages import position_of, read_message
from gateway.refusal import Close, Refusal
from gateway.schema import PROTOCOL
from laboratory.conformance.lateness import afters
from laboratory.conformance.log import (
    Asked,
    Closed,
    Entry,
    Exited,
    Happened,
    Heard,
    Left,
    Missing,
    Opened,
    Reported,
    Said,
)

FINAL = frozenset(
    {
        *(Close.MALFORMED, Close.UNSUPPORTED, Close.TOO_LARGE, Close.DENIED, Close.SUPERSEDED),
        # The kit's client has one token.
        *(Close.UNAUTHORIZED, Close.EXPIRED),
    }
)
"""Close codes after which the same client must not connect again (docs/gateway.md)."""
ATTEMPTS_PER_S_MAX = 10
"""Connections in a row that get no welcome. A client that waits 50 ms, then twice as long each time, makes five."""
WAITS_MIN = 6
"""Of so many waits in a row that end in no welcome, the later half must be longer."""
WAITS_RATIO_MIN = 1.5
"""How much longer, in sum: far less than twice each time, because clients choose their waits at random."""
EARLY_S = 0.02
"""How much earlier than `retry_after_ms` a client may be, whose clock is another one."""
COMPARED = ("region", "position", "sender", "payload", "base64", "key", "regions", "positions", "gap", "state")
NAMED_MAX = 3


class Violation(NamedTuple):
    """Something that a client must not do. ``rule``: a short name; ``text``: a sentence."""

    rule: str
    text: str


def judge(entries: Sequence[Entry], *, token: str | None = None) -> list[Violation]:
    """Return what the client did wrong in one scenario. ``token``: that it must send."""
    rules = (_waits, _program, _hellos, _messages, _deliveries, _losses, _answers, _publishes, _resumes, _reconnects)
    found = [violation for rule in rules for violation in rule(entries)]
    found.extend(Violation("retry", text) for text in afters(entries))
    return [*found, *(_tokens(entries, token) if token is not None else ())]


def _of(entries: Iterable[Entry], kind: type[Any]) -> Iterator[Any]:
    return (entry for entry in entries if isinstance(entry, kind))


def _lines(entries: Iterable[Entry], kind: str) -> Iterator[dict[str, Any]]:
    return (each.line for each in _of(entries, Reported) if isinstance(each.line, dict) and kind in each.line)


def _waits(entries: Sequence[Entry]) -> Iterator[Violation]:
    for missing in _of(entries, Missing):
        yield Violation("waited", missing.what)


def _program(entries: Sequence[Entry]) -> Iterator[Violation]:
    for each in _of(entries, Reported):
        if not isinstance(each.line, dict):
            yield Violation("line", f"the program wrote a line that is no JSON object: {str(each.line)[:80]!r}")
    was_asked = any(each.command.get("do") == "close" for each in _of(entries, Asked))
    for ended in _of(entries, Exited):
        if ended.status or not was_asked:
            why = f": {ended.errors.strip()[-300:]}" if ended.errors.strip() else ""
            when = "after close" if was_asked else "before it was asked to close"
            yield Violation("exit", f"the program ended {when}, with status {ended.status}{why}")


def _hellos(entries: Sequence[Entry]) -> Iterator[Violation]:
    begun: dict[int, Any] = {}
    name: str | None = None
    for entry in entries:
        if isinstance(entry, Heard) and entry.connection not in begun:
            hello = begun[entry.connection] = entry.document
            if not isinstance(hello, dict) or hello.get("type") != "hello":
                yield Violation("hello", f"connection {entry.connection + 1} does not begin with a hello")
            elif hello.get("protocol") != PROTOCOL:
                yield Violation("hello", f"the hello names protocol {hello.get('protocol')!r}, not {PROTOCOL}")
            elif name is not None and str(hello.get("name", "")).removeprefix("~") != name:
                yield Violation(
                    "name", f"the client reconnects as {hello.get('name')!r}, and was welcomed as '~{name}'"
                )
        elif isinstance(entry, Said) and entry.document["type"] == "welcome":
            name = entry.document["name"].removeprefix("~")


def _tokens(entries: Sequence[Entry], token: str) -> Iterator[Violation]:
    for heard in _of(entries, Heard):
        is_hello = isinstance(heard.document, dict) and heard.document.get("type") == "hello"
        if is_hello and heard.document.get("token") != token:
            yield Violation("token", f"the hello has the token {heard.document.get('token')!r}, not GAMECAST_TOKEN")


def _messages(entries: Sequence[Entry]) -> Iterator[Violation]:
    for heard in _of(entries, Heard):
        if heard.document is None:
            yield Violation("malformed", "the client sent what is no JSON text")
            continue
        try:
            read_message(heard.document)
        except Refusal as refusal:
            yield Violation("malformed", f"the gateway refuses {_short(heard.document)}: {refusal.message}")


def _deliveries(entries: Sequence[Entry]) -> Iterator[Violation]:
    due = list(_due(entries))
    places = {_key(item): at for at, item in enumerate(due)}
    seen: Counter[Any] = Counter()
    latest, last, is_refused = -1, None, False
    for entry in entries:
        is_refused |= isinstance(entry, Said) and entry.document.get("retriable") is False
        if not isinstance(entry, Reported) or not isinstance(entry.line, dict):
            continue
        line = entry.line
        kind = next((kind for kind in ("event", "gap", "state") if kind in line), None)
        if kind is None:
            continue
        item = line[kind]
        key = _key(item) if isinstance(item, dict) else None
        if (
            key not in places
            and is_refused
            and kind == "gap"
            and isinstance(item, dict)
            and item.get("position") is None
        ):
            continue  # it could not resume, and began again
        if key not in places:
            yield Violation("unexpected", f"the client reports {_short(item)}, which was not sent to it")
            continue
        seen[key] += 1
        if seen[key] == 2:
            yield Violation("repeated", f"the client reports {_named(item)} twice")
        elif seen[key] == 1:
            at = places[key]
            if at < latest:
                yield Violation("order", f"the client reports {_named(item)} after {_named(last)}")
            latest, last = max((latest, last), (at, item), key=lambda each: each[0])
            yield from _changes(kind, item, due[at])
    yield from _few("lost", [f"the client does not report {_named(item)}" for item in due if not seen[_key(item)]])


def _due(entries: Sequence[Entry]) -> Iterator[dict[str, Any]]:
    """Yield the items that the kit sent, once each, in the order of their first sending; states are put together."""
    sent: set[Any] = set()
    states: dict[str, dict[str, Any]] = {}
    left: set[str] = set()
    asked = {each.command["id"]: each.command for each in _of(entries, Asked)}
    for entry in entries:
        if isinstance(entry, Asked) and entry.command["do"] == "unsubscribe":
            left.update(entry.command["regions"])
        elif isinstance(entry, Asked) and entry.command["do"] == "subscribe":
            left.difference_update(asked[entry.command["id"]]["regions"])
        for item in _items(entry):
            if "state" in item:
                values = states.setdefault(item["region"], {}) if item.get("part") else {}
                states[item["region"]] = values = values | item["state"]
                if item.get("more"):
                    continue
                item = {name: item[name] for name in ("region", "position")} | {"state": values}
            regions = item.get("regions") or [item["region"]]
            if left.issuperset(regions) or (key := _key(item)) in sent:
                continue
            sent.add(key)
            yield item


def _items(entry: Entry) -> list[dict[str, Any]]:
    if isinstance(entry, Said) and entry.document["type"] == "events":
        items: list[dict[str, Any]] = entry.document["events"]
        return items
    return []


def _changes(kind: str, item: dict[str, Any], due: dict[str, Any]) -> Iterator[Violation]:
    is_of = "gap" if "gap" in due else "state" if "state" in due else "event"
    if kind != is_of:
        yield Violation("kind", f"the client reports {_named(due)}, which is a kind of {is_of}, as {kind}")
    for field in COMPARED:
        has_more = (
            field == "state" and isinstance(item.get(field), dict) and not item[field].keys() <= due[field].keys()
        )
        if field in due and (has_more or not _is_within(due[field], item.get(field))):
            text = f"the client reports {_named(due)} with {field} {_short(item.get(field))}, not {_short(due[field])}"
            yield Violation("changed", text)


def _is_within(due: Any, given: Any) -> bool:
    """Whether a value is what was due, apart from fields that it has besides."""
    if isinstance(due, dict) and isinstance(given, dict):
        return set(due) <= set(given) and all(_is_within(due[name], given[name]) for name in due)
    return bool(due == given)


def _losses(entries: Sequence[Entry]) -> Iterator[Violation]:
    """Find what happened in the followed regions behind their beginning, and was never sent: no one asked for it."""
    sent = {place for entry in entries for item in _items(entry) for place in _key(item)[1]}
    texts = []
    for happened, regions in _owed(entries):
        keys = {(region, _text(happened.places[region])) for region in regions}
        if keys.isdisjoint(sent):
            region, position = min(keys)
            texts.append(f"{position} of {region} happened, and the client resumed behind it or did not ask for it")
    yield from _few("lost", texts)


def _owed(entries: Sequence[Entry]) -> Iterator[tuple[Happened, list[str]]]:
    """Yield what happened in regions while the client followed them: itself, and the regions."""
    cuts: dict[str, tuple[int, int]] = {}
    pending: dict[str, bool] = {}
    for entry in entries:
        if isinstance(entry, Asked) and entry.command["do"] == "subscribe":
            pending |= dict.fromkeys(entry.command["regions"], True)
        elif isinstance(entry, Asked) and entry.command["do"] in ("unsubscribe", "close"):
            for region in entry.command.get("regions", list(cuts)):
                cuts.pop(region, None)
        elif isinstance(entry, Said) and entry.document["type"] == "subscribed":
            for region, position in entry.document["regions"].items():
                if pending.pop(region, False):
                    cuts[region] = position_of(position)
        elif isinstance(entry, Closed) and entry.code in FINAL:
            cuts.clear()
        elif isinstance(entry, Happened):
            regions = [one for one, position in entry.places.items() if one in cuts and position > cuts[one]]
            if regions:
                yield entry, regions


def _answers(entries: Sequence[Entry]) -> Iterator[Violation]:
    """Each command has one answer, and a refusal has the code that it must have."""
    refused = {line["refused"]: line for line in _lines(entries, "refused") if _is_id(line["refused"])}
    counts = Counter(
        line[kind]
        for kind in ("done", "receipt", "refused", "unsupported")
        for line in _lines(entries, kind)
        if _is_id(line[kind])
    )
    for asked in _of(entries, Asked):
        number, what = asked.command["id"], _command(asked.command)
        if counts[number] > 1:
            yield Violation("answer", f"{what} has {counts[number]} answers")
        elif asked.command["do"] != "close" and not counts[number]:
            yield Violation("answer", f"{what} has no answer")
        elif asked.refusal is None and number in refused:
            yield Violation("answer", f"{what} is refused ({refused[number].get('code')}), and must not be")
        elif asked.refusal is not None and counts[number] and number not in refused:
            yield Violation("answer", f"{what} succeeds, and must be refused with the code {asked.refusal!r}")
        elif asked.refusal is not None and refused.get(number, {}).get("code") not in (asked.refusal, None):
            yield Violation("answer", f"{what} is refused with {refused[number]['code']!r}, not {asked.refusal!r}")


def _is_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _publishes(entries: Sequence[Entry]) -> Iterator[Violation]:
    asked = {_content(each.command): each for each in _of(entries, Asked) if each.command["do"] == "publish"}
    order = {content: at for at, content in enumerate(asked)}
    sent: dict[str, int] = {}
    for heard in _of(entries, Heard):
        document = heard.document
        if not isinstance(document, dict) or document.get("type") != "publish":
            continue
        content = _content(document)
        if content not in asked:
            yield Violation("publish", f"the client sent {_short(document)}, which it was not asked to publish")
            continue
        if asked[content].is_local:
            yield Violation("publish", f"the client sent {_command(asked[content].command)}, and must refuse it itself")
        if content in sent and sent[content] != heard.connection and document.get("retry") is not True:
            yield Violation("retry", f"the client sent {_command(asked[content].command)} again without retry")
        elif content in sent and sent[content] == heard.connection:
            yield Violation("retry", f"the client sent {_command(asked[content].command)} twice over one connection")
        later = [each for each in sent if content not in sent and order[each] > order[content]]
        if any(_regions(asked[each].command) == _regions(document) for each in later):
            yield Violation("publish", f"the client sent {_command(asked[content].command)} after a later one")
        sent[content] = heard.connection
    yield from _doubles(entries)


def _doubles(entries: Sequence[Entry]) -> Iterator[Violation]:
    names = {each.document["name"] for each in _of(entries, Said) if each.document["type"] == "welcome"}
    made: dict[str, list[Happened]] = {}
    contents: dict[int, str] = {}
    for entry in entries:
        if isinstance(entry, Asked) and entry.command["do"] == "publish":
            body = entry.command.get("payload", entry.command.get("base64"))
            contents[entry.command["id"]] = orjson.dumps(body).decode()
        elif isinstance(entry, Happened) and entry.sender in names:
            content = orjson.dumps(entry.content).decode()
            if content in contents.values():  # others are of an earlier session
                made.setdefault(content, []).append(entry)
    for content, all_of_it in made.items():
        if len(all_of_it) > 1:
            yield Violation("doubled", f"the client published {content[:80]} {len(all_of_it)} times")
    for line in _lines(entries, "receipt"):
        events = made.get(contents.get(line["receipt"], ""), [])
        positions = [_text(place) for event in events for place in event.places.values()]
        if line.get("position") not in positions:
            text = (
                f"a receipt says position {line.get('position')!r}; the event is at {' or '.join(positions) or 'none'}"
            )
            yield Violation("receipt", text)


def _resumes(entries: Sequence[Entry]) -> Iterator[Violation]:
    """All followed regions are resumed in one message, and not before a refusal's `retry_after_ms` is over."""
    followed: dict[str, int] = {}
    resumed: set[int] = set()
    not_before_s, refused_regions = 0.0, set[str]()
    subscribes: dict[tuple[int, Any], list[str]] = {}
    for entry in entries:
        document: Any = entry.document if isinstance(entry, Heard | Said) else None
        kind = document.get("type") if isinstance(document, dict) else None
        if isinstance(entry, Asked) and entry.command["do"] == "unsubscribe":
            for region in entry.command["regions"]:
                followed.pop(region, None)
        elif isinstance(entry, Said) and kind == "subscribed":
            followed |= dict.fromkeys(entry.document["regions"], entry.connection)
        elif isinstance(entry, Said) and kind == "error" and entry.document.get("retry_after_ms"):
            refused_regions = set(subscribes.get((entry.connection, entry.document.get("id")), ()))
            not_before_s = entry.at_s + entry.document["retry_after_ms"] / 1000 - EARLY_S
        elif isinstance(entry, Heard) and kind == "subscribe" and isinstance(document["regions"], list):
            regions = document["regions"]
            subscribes[entry.connection, document.get("id")] = regions
            if refused_regions.intersection(regions) and entry.at_s < not_before_s:
                yield Violation("early", f"the client subscribes to {', '.join(regions)} before retry_after_ms is over")
            known = {region for region, connection in followed.items() if connection != entry.connection}
            if entry.connection not in resumed and known and not known <= set(regions):
                missing = ", ".join(sorted(known - set(regions)))
                yield Violation(
                    "resume", f"the first subscribe after a reconnect leaves out {missing}: two cuts, no order"
                )
            resumed.add(entry.connection)


def _reconnects(entries: Sequence[Entry]) -> Iterator[Violation]:
    ended: str | None = None
    for entry in entries:
        if isinstance(entry, Closed) and entry.code in FINAL:
            ended = f"the close code {entry.code}, which is final"
        elif isinstance(entry, Asked) and entry.command["do"] == "close":
            ended = ended or "it was asked to close"
        elif isinstance(entry, Opened) and ended is not None:
            yield Violation("reconnect", f"the client connects after {ended}")
        elif isinstance(entry, Left) and ended == "it was asked to close" and entry.code != 1000:
            yield Violation("close", f"the client closes with {entry.code}, not 1000: the gateway keeps its session")
    welcomed = {each.connection for each in _of(entries, Said) if each.document["type"] == "welcome"}
    refused = [each.at_s for each in _of(entries, Opened) if each.connection not in welcomed]
    waits = [later - one for one, later in pairwise(refused)]
    half = len(waits) // 2
    are_equal = len(waits) >= WAITS_MIN and sum(waits[-half:]) < WAITS_RATIO_MIN * sum(waits[:half])
    if are_equal or any(later - one < 1 for one, later in zip(refused, refused[ATTEMPTS_PER_S_MAX:], strict=False)):
        intervals = ", ".join(f"{wait * 1000:.0f}" for wait in waits[:5])
        yield Violation(
            "backoff", f"the client does not wait longer after each failure; first waits in ms: {intervals}"
        )


def _few(rule: str, texts: Sequence[str]) -> Iterator[Violation]:
    for text in texts[:NAMED_MAX]:
        yield Violation(rule, text)
    if len(texts) > NAMED_MAX:
        yield Violation(rule, f"and {len(texts) - NAMED_MAX} more")


def _key(item: dict[str, Any]) -> Any:
    """What an item is known by: its kind of item, and its places."""
    kind = "state" if "state" in item else "item"
    positions = item.get("positions")
    if isinstance(positions, dict):
        return kind, tuple(sorted((str(region), str(at)) for region, at in positions.items()))
    gap = item.get("gap")
    position = item.get("position") or (f"gap {gap.get('first')}" if isinstance(gap, dict) else None)
    return kind, ((str(item.get("region")), str(position)),)


def _named(item: Any) -> str:
    kind = "the state" if "state" in item else "the gap" if "gap" in item else "the event"
    return f"{kind} {item.get('position')} of {item.get('region')}"


def _regions(document: dict[str, Any]) -> list[str]:
    return list(document.get("regions") or [document.get("region")])


def _content(document: dict[str, Any]) -> str:
    body = {"payload": document["payload"]} if "payload" in document else {"base64": document.get("base64")}
    return orjson.dumps([_regions(document), body], option=orjson.OPT_SORT_KEYS).decode()


def _text(position: tuple[int, int]) -> str:
    return f"{position[0]}-{position[1]}"


def _command(command: dict[str, Any]) -> str:
    where = ", ".join(_regions(command)) if command["do"] != "close" else ""
    return f"the {command['do']} {command['id']} ({where})" if where else f"the {command['do']} {command['id']}"


def _short(value: Any) -> str:
    try:
        text = orjson.dumps(value).decode()
    except (TypeError, ValueError):
        text = repr(value)
    return text if len(text) <= 120 else f"{text[:117]}…"
