"""The control store in Redis, as connections use it: what they want, and the news."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from itertools import chain
from typing import Any

from adapters.leadership import TTL_MS
from adapters.network import Forgotten
from adapters.redis.announced import Pipeline, Standing, Told, number_of, read_announced, read_entry, together
from adapters.redis.connection import RedisConnection, Script, parse_info
from adapters.redis.controlkeys import ControlKeys
from adapters.redis.ledger import read_record, read_underway
from adapters.redis.past import read_past
from adapters.redis.rows import pairs, read_interests, read_overlaps, read_standings
from adapters.urls import redacted
from sequencing.errors import (
    NetworkRestarted,
    OtherSideError,
    SessionExpired,
    Superseded,
    network_restarted_message,
    session_expired_message,
    superseded_message,
)
from sequencing.plan import Plan
from sequencing.record import Interest, Pair, Record, Request

CONTROL = Script.beside(__file__, "control.lua")

SOLE_NODE = "control"
"""A network without registered nodes sequences in the control Redis itself, under this name."""

REGIONS_MAX = 1_900
"""The maximum number of regions in one call: a script can unpack no more than some 8,000 arguments."""

NEVER = "0-0"

BORN = "\n"
"""Of control.lua."""

ENTRIES_AT_ONCE = 16

Turn = asyncio.Lock | nullcontext[None]
ALONE: Turn = nullcontext()
"""The turn of a caller that has a connection for itself."""

PROBES_KEPT_MS = 60_000
"""How long the probe address of a recording server is kept unless it is registered again."""


def new_box() -> str:
    """Return what no other process has as its `RedisControl.box`."""
    return os.urandom(6).hex()


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
        self.box = ""
        """What wakes this process when there are news for one of the connections that are introduced here."""
        self.superseded: dict[str, int] = {}
        """Name → its newest incarnation, as `news` found them; for the caller to take."""
        self._seen: dict[str, str | bytes] = {}
        """The last that was read of each stream that wakes this process."""

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
        incarnation, self.born = await self._run("introduce", name, TTL_MS, self.box)
        return int(incarnation)

    async def has_lost(self, connection: int, born: bytes) -> bool:
        """Return whether the control Redis lost data since a connection was introduced."""
        last, now = await self._connection.call("HMGET", ControlKeys.incarnations, "", BORN)
        if last is not None and not last.isdigit():  # the leader replaces it by a larger number
            return bool(now != born)
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

    async def beat(self, name: str, connection: int, said: int = 0, doing: str = "") -> bool:
        """Report that a connection lives; return whether what it has ``said`` is unknown, for example because it had
        expired.

        ``doing``: see `sequencing.doing.Doing`. Raises `Superseded`.
        """
        [answer] = await self.beats([(name, connection, said, doing)])
        if isinstance(answer, Superseded):
            raise answer
        return answer

    async def beats(self, living: Sequence[tuple[str, int, int, str]]) -> list[bool | Superseded]:
        """Report that connections, (name, connection, up to which ``said``, ``doing``) each, live; return what `beat`
        returns, or raises.
        """
        answers = await self._run("beat", TTL_MS, self.box, *chain.from_iterable(living))
        return [
            Superseded(superseded_message(name)) if answer == b"superseded" else answer == b"back"
            for (name, *_), answer in zip(living, answers, strict=True)
        ]

    async def leave(self, name: str, connection: int) -> None:
        """Report that a connection ends."""
        await self._run("leave", name, connection)

    async def join(self, requests: Sequence[tuple[str, Request]]) -> list[bool | Superseded | Forgotten]:
        """Store what connections want; return of each whether it is granted at once, or the error.

        It is where one node has all regions; elsewhere the leader reads it, and a plan grants it. `Forgotten`: nothing
        is known of what the connection wanted before, so the request is not enough.
        """
        calls: list[list[Any]] = [[]]
        whose: list[int] = []
        sizes = 0
        for place, (name, request) in enumerate(requests):
            regions = sorted(request.changes, key=lambda region: not request.changes[region])
            parts = range(0, max(len(regions), 1), REGIONS_MAX)
            for part, start in enumerate(parts):
                some = regions[start : start + REGIONS_MAX]
                if sizes and sizes + len(some) > REGIONS_MAX:
                    calls.append([])
                    sizes = 0
                sizes += len(some)
                wanted = [(region, since) for region in some if (since := request.changes[region])]
                is_last, is_all = int(part == len(parts) - 1), int(request.whole and not part)
                calls[-1] += (name, request.incarnation, request.said, part, is_last, is_all, request.floor)
                calls[-1] += (len(wanted), len(some) - len(wanted), *chain.from_iterable(wanted), *some[len(wanted) :])
                whose.append(place)
        answers: list[bool | Superseded | Forgotten] = [True] * len(requests)
        places = iter(whose)
        for call in calls:
            for answer in await self._run("join", TTL_MS, self.box, *call):
                place = next(places)
                if answer == b"superseded":
                    answers[place] = Superseded(superseded_message(requests[place][0]))
                elif answer == b"back":
                    answers[place] = Forgotten()
                elif answer == b"plan" and answers[place] is True:
                    answers[place] = False
        return answers

    async def place(self, name: str, connection: int, regions: Iterable[str]) -> None:
        """Have the next plan give regions a place, because a connection publishes to them; raises `Superseded`."""
        all_regions = sorted(regions)
        for start in range(0, len(all_regions), REGIONS_MAX):
            some = all_regions[start : start + REGIONS_MAX]
            _heard(await self._run("place", name, connection, TTL_MS, self.box, *some), name)

    async def interests(self) -> dict[str, Interest]:
        """Return what each connection wants."""
        return await read_interests(self._connection.call, self._connection.pipeline, lambda *_: None)

    async def standings(self) -> dict[str, Standing]:
        """Return what plans count for each name."""
        return await read_standings(self._connection.call, self._connection.pipeline)

    async def declare_overlaps(self, overlaps: Iterable[Pair]) -> None:
        """Declare expected overlaps, see `sequencing.expected`; earlier declarations stay."""
        texts = [f"{one}\n{other}" for one, other in sorted(overlaps)]
        for start in range(0, len(texts), REGIONS_MAX):
            await self._run("expect", "", *texts[start : start + REGIONS_MAX])

    async def expected(self) -> frozenset[Pair]:
        """Return all declared overlaps."""
        return read_overlaps(await self._connection.call("SMEMBERS", ControlKeys.expected))[0]

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
        reply = await self._connection.call("HGETALL", ControlKeys.probes)
        return {name.decode(errors="replace"): text for name, text in pairs(reply)}

    async def newest(self, turn: Turn = ALONE) -> Record | None:
        """Return what was announced last, without what it counts for whom; ``turn``: as in `plans`."""
        return await read_announced(self._in_turn(turn))

    async def latest_plan(self, turn: Turn = ALONE) -> Plan | None:
        """Return the plan that was announced last; ``turn``: as in `plans`."""
        newest = await self.newest(turn)
        return newest.plan if newest is not None else None

    async def record(self) -> Record | None:
        """Return the record from which leaders continue."""
        return await read_record(self._connection.call, self._connection.pipeline)

    async def ending(self, turn: Turn = ALONE) -> frozenset[tuple[str, int]]:
        """Return the epochs that are ending, (region, epoch) each; ``turn``: as in `plans`."""
        async with turn:
            underway = await read_underway(self._connection.call)
        return underway.ending if underway is not None else frozenset()

    async def plans(self, regions: Iterable[str], after: int, turn: Turn = ALONE) -> list[Plan]:
        """See `Network.plans`.

        ``turn``: lets others use this connection between one request and the next.
        """
        # Before the past, so that an epoch that ends in between is in both.
        latest = await self.latest_plan(turn)
        past = await read_past(self._connection, regions, after, turn)
        return [] if latest is None else [*past, latest]

    async def news(self, after: Plan | None, *, block_ms: int, turn: Turn = ALONE, at_box: bool = False) -> list[Told]:
        """Return what was announced after a plan, in order, waiting up to ``block_ms``; ``turn``: as in `plans`.

        Without a plan: what was announced last, as long as anything was. ``at_box``: what concerns no connection of
        this `box` may wait until something does; then what is granted is told together. It may also return none,
        because of `superseded`.

        Raises `SessionExpired` if some of it may no longer be stored.
        """
        if after is None and (newest := await self.newest(turn)) is not None:
            return [Told(newest.plan, newest.behind)]
        place = number_of(after) or NEVER
        if after is not None and self._connection.opened != self._followed:
            await self._require_news(after, turn)
        reading = "STREAMS", ControlKeys.news, place
        async with turn:
            if at_box and after is not None:
                waking = [ControlKeys.superseded, ControlKeys.woken, ControlKeys.box(self.box)]
                seen = (self._seen.get(key, NEVER) for key in waking)
                woken = "XREAD", "BLOCK", block_ms, "STREAMS", *waking, *seen
                replies = await self._connection.pipeline([woken, ("XREAD", *reading)])
            else:
                replies = [await self._connection.call("XREAD", "BLOCK", block_ms, *reading)]
        told = {key.decode(): entries for reply in replies for key, entries in reply or ()}
        for _, (name, incarnation, *_) in told.get(ControlKeys.superseded, ()):
            if incarnation.isdigit():  # any client may write something else
                self.superseded[name.decode(errors="replace")] = int(incarnation)
        texts = [fields[1] for _, fields in told.pop(ControlKeys.news, ())]
        self._seen |= {key: entries[-1][0] for key, entries in told.items()}
        return await self._told(texts, after, turn, is_together=at_box)

    async def _told(self, texts: Sequence[bytes], after: Plan | None, turn: Turn, *, is_together: bool) -> list[Told]:
        told: list[Told] = []
        plan = after
        entries = [read_entry(text) for text in texts]
        for entry in together(entries) if is_together else entries:
            if entry.after != number_of(plan):
                return await self._told_again(plan, told, turn)
            told.append(entry.told_after(plan))
            plan = told[-1].plan
            if len(told) % ENTRIES_AT_ONCE == 0:
                await asyncio.sleep(0)  # many large changes take long
        return told

    async def _told_again(self, plan: Plan | None, told: list[Told], turn: Turn) -> list[Told]:
        """Return what follows where the news do not go on from a plan."""
        newest = await self.newest(turn)
        if plan is not None and newest is not None and newest.plan.first_epoch == plan.first_epoch:
            raise SessionExpired(session_expired_message("this connection"))
        return [*told, Told(newest.plan, newest.behind)] if newest is not None else told

    async def _require_news(self, known: Plan, turn: Turn) -> None:
        """Raise `NetworkRestarted` if the control Redis does not know a plan that it has announced."""
        async with turn:
            entries = await self._connection.call("XREVRANGE", ControlKeys.news, "+", "-", "COUNT", 1)
        self._followed = self._connection.opened
        epoch, version = map(int, entries[0][0].split(b"-")) if entries else (0, 0)
        if (epoch, version) < (known.epoch, known.version):
            raise NetworkRestarted(network_restarted_message(self.where))

    async def close(self, *, for_good: bool = False) -> None:
        """Release the connection; see `RedisConnection.close`."""
        await self._connection.close(for_good=for_good)

    def _in_turn(self, turn: Turn) -> Pipeline:
        async def pipeline(commands: Sequence[tuple[Any, ...]]) -> Sequence[Any]:
            async with turn:
                return await self._connection.pipeline(commands)

        return pipeline

    async def run(self, script: Script, keys: Sequence[str], *arguments: Any) -> Any:
        """Run a script of another part of the control store."""
        return await self._connection.run(script, keys, *arguments)

    async def _run(self, *arguments: Any) -> Any:
        return await self._connection.run(CONTROL, (ControlKeys.connections,), *arguments)


def _heard(answer: Any, name: str) -> Any:
    if answer == b"superseded":
        raise Superseded(superseded_message(name))
    return answer
