"""The control store in Redis: interests, the record, the leader's lease, and the news for all clients."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import nullcontext
from functools import partial
from itertools import chain
from typing import Any

import orjson

from adapters.leadership import Seen
from adapters.redis.connection import RedisConnection, Script, parse_info
from adapters.redis.controlkeys import ControlKeys
from adapters.redis.lease import LeaseWatch
from adapters.redis.past import PAST_KEPT_MS, past_document, read_past
from adapters.redis.record import Ask, read, read_all, read_plan, told
from adapters.redis.rows import read_rows
from adapters.urls import redacted
from sequencing.errors import (
    NetworkRestarted,
    OtherSideError,
    SessionExpired,
    Superseded,
    UsageError,
    network_restarted_message,
    session_expired_message,
    superseded_message,
)
from sequencing.grants import Request
from sequencing.identity import KeptWithin
from sequencing.listing import Rows
from sequencing.names import check_node_name
from sequencing.plan import Plan
from sequencing.record import Interest, Pair, Record

CONTROL = Script.beside(__file__, "control.lua")
LEADING = Script.beside(__file__, "leading.lua")

INTERESTS_KEPT_BYTES = 8 * 1024 * 1024
"""The JSON of interests that are not parsed again."""

SOLE_NODE = "control"
"""A network without registered nodes sequences in the control Redis itself, under this name."""

INTERESTS_A_CALL = 100

REGIONS_MAX = 4_000
"""The maximum number of regions in one call: a script can unpack no more than some 8,000 arguments."""

NEWS_KEPT = 256
"""How many plans a follower of the news may be behind."""

TTL_MS = 10_000
"""A connection that has not reported for this long counts as disconnected."""

BLIND_MS = 5_000
"""If no leader checked the connections for longer than this, the control store or all managers were away.

Then no connection is declared disconnected.
"""

LATE_S_MAX = 2.0
"""How much longer than asked a leader waits for interests: Redis blocks by a clock that may be set back meanwhile."""

NEVER = "0-0"

BORN = "\n"
"""Of control.lua."""

Turn = asyncio.Lock | nullcontext[None]
ALONE: Turn = nullcontext()
"""The turn of a caller that has a connection for itself."""

PROBES_KEPT_MS = 60_000
"""How long the probe address of a recording server is kept unless it is registered again."""


class RedisControl:
    """One task's connection to the control store."""

    def __init__(self, url: str) -> None:
        """``url``: of the control Redis. Does not connect yet."""
        self._connection = RedisConnection(url, SOLE_NODE)
        self.where = redacted(url)
        """The URL, without a password."""
        self._followed = 0
        """How often the connection had been opened when the control store last knew all that it had announced."""
        self.born = b""
        """When the network began, by its own clock.

        If the control Redis loses its data, the next network has another time.
        """
        self._watch = LeaseWatch()
        self._written: tuple[Record | None, bytes] = None, b""
        """The record that was written or read last, and its story: a leader writes it, and reads it again and again."""
        self._stored: AbstractSet[bytes] = frozenset()
        """The digests of its parts."""
        self.watches_names = False
        """Whether `news` also looks for connections that superseded others."""
        self.superseded: dict[str, int] = {}
        """Name → its newest incarnation, as `news` found them; for the caller to take."""
        self._superseded_at: str | bytes = NEVER

    async def ping(self) -> None:
        """Connect to the control Redis; raises `NetworkError` or `OtherSideError`."""
        await self._connection.call("PING")

    async def is_volatile(self) -> bool:
        """Return whether a restart of the control Redis loses its data, as far as it reports that."""
        try:
            info = parse_info(await self._connection.call("INFO", "persistence"))
        except OtherSideError:
            return False  # this user may not read it
        return info.get("aof_enabled") == "0" and info.get("loading", "0") == "0"

    async def introduce(self, name: str) -> int:
        """Register a new connection of a name; return its incarnation, larger than all before. Sets `born`."""
        incarnation, self.born = await self._run("introduce", name, TTL_MS)
        return int(incarnation)

    async def has_lost(self, connection: int, born: bytes) -> bool:
        """Return whether the control Redis lost data since a connection was introduced."""
        last, now = await self._connection.call("HMGET", ControlKeys.incarnations, "", BORN)
        return bool(now != born or int(last or 0) < connection)

    async def is_led(self) -> bool:
        """Return whether there is a leader."""
        return bool(await self._connection.call("EXISTS", ControlKeys.lease))

    async def renew(self, name: str, connection: int, after: int = 0) -> int:
        """Return a new incarnation for the events of a connection; raises `Superseded`."""
        return int(_heard(await self._run("renew", name, connection, after), name))

    async def incarnations(self) -> tuple[int, frozenset[str]]:
        """See `Control.incarnations`."""
        last, names = await self._run("incarnations", "")
        return int(last), frozenset(name.decode() for name in names)

    async def beat(self, name: str, connection: int) -> bool:
        """Report that a connection lives; return whether its interest is unknown, for example because it had expired.

        Raises `Superseded`.
        """
        [answer] = await self.beats([(name, connection)])
        if isinstance(answer, Superseded):
            raise answer
        return answer

    async def beats(self, living: Sequence[tuple[str, int]]) -> list[bool | Superseded]:
        """Report that connections live; return for each what `beat` returns, or raises."""
        answers = await self._run("beat", TTL_MS, *chain.from_iterable(living))
        return [
            Superseded(superseded_message(name)) if answer == b"superseded" else answer == b"back"
            for (name, _), answer in zip(living, answers, strict=True)
        ]

    async def leave(self, name: str, connection: int) -> None:
        """Report that a connection ends."""
        await self._run("leave", name, connection)

    async def set_interest(self, name: str, interest: Interest, published: Iterable[str] = ()) -> None:
        """Store the interest of a connection, and the regions to which it publishes; an older interest is ignored.

        Raises `Superseded`.
        """
        [superseded] = await self.set_interests([(name, interest, published)])
        if superseded is not None:
            raise superseded

    async def set_interests(self, wanting: Sequence[tuple[str, Interest, Iterable[str]]]) -> list[Superseded | None]:
        """Store the interests of some connections, as `set_interest` does; return the error of each, or None."""
        arguments: list[Any] = []
        whose: list[int] = []
        for place, (name, interest, published) in enumerate(wanting):
            regions, document = sorted(published), interest.to_json()
            for start in range(0, max(len(regions), 1), REGIONS_MAX):
                some = regions[start : start + REGIONS_MAX]
                arguments += (name, interest.incarnation, interest.said, document, len(some), *some)
                whose.append(place)
        refused: list[Superseded | None] = [None] * len(wanting)
        for place, answer in zip(whose, await self._run("want", TTL_MS, *arguments), strict=True):
            try:
                _heard(answer, wanting[place][0])
            except Superseded as error:
                refused[place] = error
        return refused

    async def join(self, requests: Sequence[tuple[str, Request]]) -> list[bool | Superseded]:
        """Have requests of connections granted in place; return of each whether it is, or the error.

        It is not where the leader makes plans: there, interests are stored instead.
        """
        calls: list[list[Any]] = [[]]
        whose: list[int] = []
        for place, (name, request) in enumerate(requests):
            regions = sorted(request.changes, key=lambda region: not request.changes[region])
            wanted = sum(1 for since in request.changes.values() if since)
            for start in range(0, max(len(regions), 1), REGIONS_MAX):
                some = regions[start : start + REGIONS_MAX]
                if calls[-1] and len(calls[-1]) + len(some) > REGIONS_MAX:
                    calls.append([])
                joined = min(max(wanted - start, 0), len(some))
                is_all = int(request.whole and not start)
                calls[-1] += (name, request.incarnation, request.said, is_all, joined, len(some) - joined, *some)
                whose.append(place)
        answers: list[bool | Superseded] = [True] * len(requests)
        places = iter(whose)
        for call in calls:
            for answer, place in zip(await self._run("join", TTL_MS, *call), places, strict=False):
                name, _ = requests[place]
                if answer == b"superseded":
                    answers[place] = Superseded(superseded_message(name))
                elif answer == b"plan" and answers[place] is True:
                    answers[place] = False
        return answers

    async def look(self, token: str, lease_ms: int) -> Seen | None:
        """Take or renew the lease, and return what a leader decides by; None while another candidate leads."""
        stale = self._watch.stale(time.monotonic(), lease_ms)
        leads, *rest = await self._lead("look", token, lease_ms, BLIND_MS, TTL_MS, stale)
        if not leads:
            self._watch.refused(rest[0], time.monotonic())
            return None
        self._watch.forget()
        record, interests, published, announced, asked, nodes, lossy, expected, taken, doubted, is_sole, connections = (
            rest
        )
        epoch, _, version = announced.decode().partition("-")
        return Seen(
            await self._read(record) if record else None,
            {name.decode(): _interest(interest) for name, interest in _pairs(interests)},
            frozenset(region.decode() for region in published),
            (int(epoch), int(version)),
            asked.decode(),
            {name.decode(): url.decode() for name, url in sorted(_pairs(nodes))} or {SOLE_NODE: ""},
            frozenset(name.decode() for name in lossy),
            int(expected),
            bool(taken),
            {name.decode(): run.decode() for name, run in _pairs(doubted)},
            bool(is_sole),
            int(connections),
        )

    async def found(self, token: str, record: Record) -> bool:
        """See `Control.found`."""
        story, _ = told(record.news())  # it is short, so it has no parts
        number = record.plan.epoch, record.plan.version
        return bool(await self._lead("found", token, *number, NEWS_KEPT, story))

    async def begin_to_plan(self, token: str) -> Rows | None:
        """See `Control.begin_to_plan`."""
        if not await self._lead("plan", token):
            return None
        rows = await self.rows()
        wanting = [(name, interest, ()) for name, interest in rows.interests().items()]
        for start in range(0, len(wanting), INTERESTS_A_CALL):
            await self.set_interests(wanting[start : start + INTERESTS_A_CALL])
        return rows

    async def rows(self) -> Rows:
        """Return what connections to a network of one node have."""
        return await read_rows(self._connection.call, self._connection.pipeline)

    async def declare_overlaps(self, overlaps: Iterable[Pair]) -> None:
        """Declare expected overlaps, see `sequencing.expected`; earlier declarations stay."""
        pairs = [f"{one}\n{other}" for one, other in sorted(overlaps)]
        for start in range(0, len(pairs), REGIONS_MAX):
            await self._run("expect", "", *pairs[start : start + REGIONS_MAX])

    async def expected(self) -> frozenset[Pair]:
        """Return all declared overlaps."""
        members = await self._connection.call("SMEMBERS", ControlKeys.expected)
        pairs = (member.decode().partition("\n") for member in members)
        return frozenset((one, other) for one, _, other in pairs)

    async def doubt(self, name: str, node: str, run: str) -> None:
        """Report that a node has lost something in a run of its server, however it is registered."""
        if await self._connection.call("HMGET", ControlKeys.doubted, node) == [run.encode()]:
            return
        wake = "XADD", ControlKeys.asked, "MAXLEN", "=", 1, "*", "by", name
        await self._connection.pipeline([("HSET", ControlKeys.doubted, node, run), wake])

    async def announce_probe(self, name: str, text: bytes) -> None:
        """See `Network.announce_probe`."""
        await self._connection.call("HSET", ControlKeys.probes, name, text)
        await self._connection.call("PEXPIRE", ControlKeys.probes, PROBES_KEPT_MS)

    async def withdraw_probe(self, name: str) -> None:
        """See `Network.withdraw_probe`."""
        await self._connection.call("HDEL", ControlKeys.probes, name)

    async def probe_addresses(self) -> dict[str, bytes]:
        """See `Network.probe_addresses`."""
        found = await self._connection.call("HGETALL", ControlKeys.probes)
        return {name.decode(): text for name, text in _pairs(found)}

    async def keep(self, token: str, lease_ms: int) -> bool:
        """See `Control.keep`."""
        return bool(await self._lead("keep", token, lease_ms))

    async def save(self, token: str, record: Record) -> bool:
        """Save a record; False if the lease is lost."""
        story, parts = told(record)
        kept = await self._keep("save", token, story=story, parts=parts)
        if kept:
            self._written, self._stored = (record, story), parts.keys()
        return kept

    async def announce(self, token: str, record: Record) -> bool:
        """Announce a plan that all nodes know, once; False if the lease is lost."""
        if not await self._keep_past(token, record):
            return False
        story, parts = told(record.news())
        number = record.plan.epoch, record.plan.version
        return await self._keep("announce", token, *number, NEWS_KEPT, story=story, parts=parts)

    async def settle(self, token: str, record: Record) -> bool:
        """See `Control.settle`."""
        if not await self._keep_past(token, record):
            return False
        kept, settled = record.news(), record.settled()
        (news, news_parts), (story, parts) = told(kept), told(settled)
        number = record.plan.epoch, record.plan.version
        done = await self._keep("settle", token, *number, NEWS_KEPT, news, story=story, parts={**news_parts, **parts})
        if done:
            self._written, self._stored = (settled, story), parts.keys()
        return done

    async def resign(self, token: str) -> None:
        """Release the lease."""
        await self._lead("resign", token)

    async def register_node(self, name: str, url: str, *, may_lose: bool = False) -> None:
        """Register a sequencing node, whose server is at ``url`` (empty: the control Redis); the next plans use it.

        ``may_lose``: a restart of its server may restore an older state. Raises `UsageError` if the name is in use.
        """
        check_node_name(name)
        if name == SOLE_NODE:
            raise UsageError(
                f"a node cannot have the name {SOLE_NODE!r}, which means the control Redis itself: choose another name"
            )
        answer = await self._lead("register", name, url, int(may_lose))
        if answer != b"ok":
            raise UsageError(
                f"node {name!r} is already registered at {redacted(answer.decode())}, and its events cannot move to  "
                "another server: choose another name"
            )

    async def asked(self, after: str, *, block_ms: int) -> None:
        """Wait for a new request, up to ``block_ms``."""
        command = "XREAD", "BLOCK", block_ms, "STREAMS", ControlKeys.asked, after
        await self._connection.call(*command, timeout_s=block_ms / 1000 + LATE_S_MAX)

    async def newest(self) -> Record | None:
        """Return the record that was announced last."""
        entries = await self._newest()
        return await read(entries[0][1][1], self._parts) if entries else None

    async def latest_plan(self) -> Plan | None:
        """Return the plan that was announced last."""
        entries = await self._newest()
        return await read_plan(entries[0][1][1], self._parts) if entries else None

    async def record(self, turn: Turn = ALONE) -> Record | None:
        """Return the record from which leaders continue; ``turn``: as in `plans`."""
        async with turn:
            story = await self._connection.call("GET", ControlKeys.record)
        return await read(story, self._asking(turn)) if story else None

    async def plans(self, regions: Iterable[str], after: int, turn: Turn = ALONE) -> list[Plan]:
        """See `Network.plans`.

        ``turn``: lets others use this connection between one request and the next.
        """
        async with turn:  # before the past, so that an epoch that ends in between is in both
            latest = await self.latest_plan()
        past = await read_past(self._connection, regions, after, turn)
        return [] if latest is None else [*past, latest]

    async def news(self, after: Plan | None, *, block_ms: int, turn: Turn = ALONE) -> list[Record]:
        """Return the records announced after a plan, in order, waiting up to ``block_ms``; ``turn``: as in `plans`.

        With none, it may also return because of `superseded`.

        Raises `SessionExpired` if some of them may no longer be stored.
        """
        place = f"{after.epoch}-{after.version}" if after is not None else NEVER
        if after is not None and self._connection.opened != self._followed:
            await self._require_news(after, turn)
        async with turn:
            streams: tuple[str | bytes, ...] = (ControlKeys.news, place)
            if self.watches_names:
                streams = (ControlKeys.news, ControlKeys.superseded, place, self._superseded_at)
            reply = await self._connection.call("XREAD", "BLOCK", block_ms, "STREAMS", *streams)
        found = {key.decode(): entries for key, entries in reply or ()}
        for self._superseded_at, (name, incarnation) in found.get(ControlKeys.superseded, ()):
            self.superseded[name.decode()] = int(incarnation)
        entries = found.get(ControlKeys.news, [])
        if after is not None and len(entries) >= NEWS_KEPT:
            raise SessionExpired(session_expired_message("this connection"))
        return await read_all([fields[1] for _, fields in entries], self._asking(turn))

    async def _require_news(self, known: Plan, turn: Turn) -> None:
        """Raise `NetworkRestarted` if the control Redis does not know a plan that it has announced."""
        async with turn:
            entries = await self._newest()
        self._followed = self._connection.opened
        epoch, version = map(int, entries[0][0].split(b"-")) if entries else (0, 0)
        if (epoch, version) < (known.epoch, known.version):
            raise NetworkRestarted(network_restarted_message(self.where))

    async def close(self) -> None:
        """Release the connection."""
        await self._connection.close()

    async def _newest(self) -> Any:
        return await self._connection.call("XREVRANGE", ControlKeys.news, "+", "-", "COUNT", 1)

    def _asking(self, turn: Turn) -> Ask:
        async def ask(digests: Sequence[bytes]) -> Any:
            async with turn:
                return await self._parts(digests)

        return ask

    async def _parts(self, digests: Sequence[bytes]) -> Any:
        return await self._connection.call("HMGET", ControlKeys.parts, *digests)

    async def _read(self, story: bytes) -> Record:
        known, written = self._written
        if known is None or story != written:
            known = await read(story, self._parts)
            self._written, self._stored = (known, story), told(known)[1].keys()
        return known

    async def _keep(self, verb: str, *arguments: Any, story: bytes, parts: Mapping[bytes, bytes]) -> bool:
        """Save or announce; parts that are known to be stored are sent only if the script asks for them."""
        answer: object = b"parts"
        for known in (self._stored, frozenset[bytes]()):
            if answer == b"parts":
                given = chain.from_iterable((digest, part) for digest, part in parts.items() if digest not in known)
                answer = await self._lead(verb, *arguments, story, *given)
        return answer == 1

    async def _keep_past(self, token: str, record: Record) -> bool:
        """Store where the epochs were that a plan ends, before it is announced: readers of history need it."""
        left = record.left_plans()
        if not left:
            return True
        number, document = f"{record.plan.epoch}-{record.plan.version}", past_document(left)
        regions = list(chain.from_iterable(plan.paths for plan in left))
        for start in range(0, len(regions), REGIONS_MAX):
            some = regions[start : start + REGIONS_MAX]
            if not await self._lead("past", token, number, PAST_KEPT_MS, document, *some):
                return False
        return True

    async def _run(self, *arguments: Any) -> Any:
        return await self._connection.run(CONTROL, (ControlKeys.connections,), *arguments)

    async def _lead(self, *arguments: Any) -> Any:
        return await self._connection.run(LEADING, (ControlKeys.record,), *arguments)


@partial(KeptWithin, INTERESTS_KEPT_BYTES)
def _interest(document: bytes) -> Interest:
    """Parse an interest once: a leader reads all of them again and again."""
    return Interest.from_document(orjson.loads(document))


def _pairs(flat: Sequence[bytes]) -> Iterator[tuple[bytes, bytes]]:
    return zip(flat[::2], flat[1::2], strict=True)


def _heard(answer: Any, name: str) -> Any:
    if answer == b"superseded":
        raise Superseded(superseded_message(name))
    return answer
