"""The control store in Redis, as a leader uses it: the lease, what it decides by, and what it writes."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from math import inf
from typing import Any

from adapters.leadership import BLIND_MS, LEASE_MS, TTL_MS
from adapters.redis.announced import read_announced, wire_message, with_people
from adapters.redis.connection import RedisConnection, Script
from adapters.redis.control import REGIONS_MAX, SOLE_NODE, RedisControl
from adapters.redis.controlkeys import ControlKeys
from adapters.redis.lease import LeaseWatch
from adapters.redis.ledger import Ledger
from adapters.redis.past import PAST_KEPT_MS, past_document
from adapters.redis.rows import pairs, read_interests, read_overlaps, read_standings
from adapters.urls import own_options, redacted, stored_for_all
from sequencing.errands import Seen
from sequencing.errors import InvalidName, NoLeader, PlanError, UsageError
from sequencing.names import check_node_name
from sequencing.plan import Plan
from sequencing.record import Interest, Pair, Record

logger = logging.getLogger("gamecast.manager")

LEADING = Script.beside(__file__, "leading.lua")

LATE_S_MAX = 2.0
"""How much longer than asked a leader waits for interests: Redis blocks by a clock that may be set back meanwhile."""

MEND_EVERY_S = 1.0
"""How often a leader looks for keys that cannot be used: joins may fail for so long."""

TROUBLE_MS = 10_000
"""How long it is known that a candidate failed: longer than it takes to fail again."""

NAMES_MAX = 1_000
"""What concerns more names wakes everybody."""

REGISTERED_S_MAX = 5.0
"""How long a network that was emptied waits for its nodes: some may be gone."""

LAST_WIRE_BEFORE = 3
"""The wire version of a network whose record is one text."""


class LeaderControl(RedisControl):
    """A candidate's connection to the control store. Implements `adapters.leadership.Control`."""

    def __init__(self, url: str) -> None:
        """``url``: of the control Redis. Does not connect yet."""
        super().__init__(url)
        self._watch = LeaseWatch()
        self._ledger = Ledger()
        self._fence = -1
        """How often the state had been written when the turn began, and by this candidate since."""
        self._term: Any = None
        """That of the last look that was answered."""
        self._using = asyncio.Lock()
        """Held for what reads or writes the ledger."""
        self._mend_at_s = inf
        """When the types of all keys are looked at next, by the monotonic clock: while it leads."""
        self._written = 0, 0
        """The first epoch of the network, and how often its state had been written when that was last known."""
        self._registered: frozenset[str] = frozenset()
        """The nodes of the network that there was last."""
        self._emptied_at_s = -inf
        """When it was first seen that it is there no more."""
        self._waiting = RedisConnection(url, SOLE_NODE)
        """Blocks until there is a new request."""

    async def look(self, token: str, lease_ms: int, *, begins: bool = True) -> Seen | None:
        """See `Control.look`."""
        async with self._using:
            if time.monotonic() >= self._mend_at_s:
                await self._mend()
            seen = await self._look(token, lease_ms)
            if begins:
                self._fence = self._ledger.number
            return seen

    async def _look(self, token: str, lease_ms: int) -> Seen | None:
        stale = self._watch.stale(time.monotonic(), lease_ms)
        known = self._ledger
        leads, *rest = await self._lead("look", token, lease_ms, BLIND_MS, TTL_MS, stale, known.noted)
        if not leads:
            self._watch.refused(rest[0], time.monotonic())
            self._mend_at_s = inf
            return None
        self._mend_at_s = min(self._mend_at_s, time.monotonic() + MEND_EVERY_S)
        self._watch.forget()
        number, noted, changes, asked, nodes, lossy, expected, term, doubted, is_sole, connections, is_old = rest[:-1]
        taken, self._term = self._term != term, term
        if is_old:
            raise PlanError(wire_message(LAST_WIRE_BEFORE))
        nodes = dict(map(_registered, sorted(pairs(nodes))))
        is_known = not taken and int(number) == known.number and int(noted) >= known.noted
        is_missing = not changes and int(noted) > known.noted  # it could not be noted, see control.lua
        if not is_known or is_missing or not known.take(changes):
            self._ledger = known = await self._load(int(noted))
        self._note_nodes(nodes, is_there=known.record is not None)
        touched, known.touched = known.touched, set()
        announced = known.announced.plan if known.announced is not None else None
        return Seen(
            known.record,
            known.interests,
            known.unplaced(),
            (announced.epoch, announced.version) if announced is not None else (0, 0),
            f"{asked.decode()} {known.noted}-0",
            nodes or {SOLE_NODE: ""},
            frozenset(map(_text, lossy)),
            int(expected),
            taken,
            {_text(name): _text(run) for name, run in pairs(doubted)},
            frozenset(touched) if touched is not None else None,
            bool(is_sole),
            0 if known.record is None and self._awaits_nodes(nodes) else int(connections),
            _text(rest[-1]),
            self._is_older(known),
        )

    def _awaits_nodes(self, nodes: Mapping[str, str]) -> bool:
        """Return whether the nodes of a network that was emptied have not registered themselves again yet.

        They do so within a second or two, and what began without them would stay at the control Redis.
        """
        is_late = self._emptied_at_s + REGISTERED_S_MAX < time.monotonic()
        return not (is_late or nodes.keys() >= self._registered)

    def _is_older(self, known: Ledger) -> bool:
        """Return whether the state was written less often than it was seen to be, in the same network."""
        first = known.record.plan.first_epoch if known.record is not None else 0
        written = self._written[1] if self._written[0] == first else 0
        self._written = first, max(written, known.number)
        return known.number < written

    def _note_nodes(self, nodes: Mapping[str, str], *, is_there: bool) -> None:
        if is_there:
            self._registered, self._emptied_at_s = frozenset(nodes), -inf
        elif self._emptied_at_s == -inf and self._registered:
            self._emptied_at_s = time.monotonic()

    async def asked(self, after: str, *, block_ms: int) -> None:
        """See `Control.asked`."""
        command = "XREAD", "COUNT", 1, "BLOCK", block_ms, "STREAMS", ControlKeys.asked, ControlKeys.changes
        await self._waiting.call(*command, *after.split(" "), timeout_s=block_ms / 1000 + LATE_S_MAX)

    async def keep(self, token: str, lease_ms: int) -> bool:
        """See `Control.keep`."""
        async with self._using:
            return bool(await self._lead("keep", token, lease_ms))

    async def save(self, token: str, record: Record) -> bool:
        """See `Control.save`."""
        async with self._using:
            if not await self._write(token, self._ledger.saving(record)):
                return False
            self._wrote(record)
            return True

    async def announce(self, token: str, record: Record) -> bool:
        """See `Control.announce`."""
        known = self._ledger.announced
        if known is not None and _number(record) <= _number(known):
            return await self.keep(token, LEASE_MS)
        if not await self._keep_past(token, record):
            return False
        return await self._announce(token, record, record)

    async def grant(self, token: str, record: Record) -> bool:
        """See `Control.grant`."""
        return await self._announce(token, record, record)

    async def settle(self, token: str, record: Record) -> bool:
        """See `Control.settle`."""
        return await self._keep_past(token, record) and await self._announce(token, record, record.settled())

    async def found(self, token: str, record: Record) -> bool:
        """See `Control.found`."""
        granting = ("SET", ControlKeys.sole, record.plan.epoch)
        # What was lost was of a network before.
        return await self._announce(token, record, record, granting, ("DEL", ControlKeys.doubted))

    async def begin_to_plan(self, token: str) -> Mapping[str, Interest] | None:
        """See `Control.begin_to_plan`."""
        async with self._using:
            if not await self._write(token, [("DEL", ControlKeys.sole)]):
                return None
            self._wrote()
            # What is told from now on is noted.
            return await self._ledger.read_interests(self._connection.call, self._connection.pipeline)

    async def outlook(self) -> tuple[Record | None, Mapping[str, Interest]]:
        """Return the record that was announced last, with all overlaps that are declared, and what connections want.

        For those who do not lead: what they see may be changing.
        """
        async with self._using:
            call, pipeline = self._connection.call, self._connection.pipeline
            record = await read_announced(pipeline)
            if record is None:
                return None, {}
            record = with_people(record, await read_standings(call, pipeline))
            interests = await read_interests(call, pipeline, lambda *_: None)
            return replace(record, expected=await self.expected()), interests

    async def propose(self, proposal: str, plan: Plan) -> None:
        """Propose a plan to the leader, under an id; `answered` tells what became of it.

        Raises `NoLeader`, and `PlanError` while another proposal has no answer.
        """
        answer = await self._lead("propose", proposal, plan.to_json())
        if answer == b"busy":
            raise PlanError("another proposal is being decided on, or carried out")
        if answer != b"ok":
            raise NoLeader

    async def answered(self, proposal: str) -> str | None:
        """Return the leader's answer to a proposal: empty if the network goes over to it, else the reason why not.

        None while there is none. Raises `PlanError` if another proposal has taken its place.
        """
        current, answer = await self._connection.call("HMGET", ControlKeys.proposal, "id", "answer")
        if current != proposal.encode():
            raise PlanError("another proposal has taken its place")
        return answer.decode() if answer is not None else None

    async def proposal(self) -> tuple[str, Plan] | None:
        """See `Control.proposal`."""
        async with self._using:
            proposal, plan = await self._connection.call("HMGET", ControlKeys.proposal, "id", "plan")
        if proposal is None or plan is None:
            return None
        return _text(proposal), Plan.from_json(plan)

    async def answer(self, token: str, proposal: str, answer: str) -> bool:
        """See `Control.answer`."""
        async with self._using:
            return bool(await self._lead("answer", token, proposal, answer))

    async def runs_seen(self) -> Mapping[str, str]:
        """See `Control.runs_seen`."""
        async with self._using:
            reply = await self._connection.call("HGETALL", ControlKeys.seen_runs)
        return {_text(name): _text(run) for name, run in pairs(reply)}

    async def note_runs(self, token: str, runs: Mapping[str, str]) -> bool:
        """See `Control.note_runs`."""
        async with self._using:
            if not await self._write(token, [("HSET", ControlKeys.seen_runs, *chain.from_iterable(runs.items()))]):
                return False
            self._wrote()
            return True

    async def expected(self) -> frozenset[Pair]:
        """See `Control.expected`. What cannot have been declared is removed: the leader compares how many there are."""
        members = await self._connection.call("SMEMBERS", ControlKeys.expected)
        overlaps, spoiled = read_overlaps(members)
        if spoiled:
            logger.warning("%s: removed what names no two regions: %.200r", ControlKeys.expected, spoiled)
            await self._connection.call("SREM", ControlKeys.expected, *spoiled[:REGIONS_MAX])
        return overlaps

    async def failed(self, reason: str) -> None:
        """See `Control.failed`."""
        async with self._using:
            if not reason:
                await self._connection.call("DEL", ControlKeys.trouble)
                return
            await self._connection.call("SET", ControlKeys.trouble, reason, "PX", TROUBLE_MS)
            await self._mend(with_names=True)

    async def _mend(self, *, with_names: bool = False) -> None:
        """Remove what cannot be used from the control keys; ``with_names``: also from those of each connection."""
        self._mend_at_s = time.monotonic() + MEND_EVERY_S
        types = ((key, kind) for key, kind in ControlKeys.types.items() if key not in ControlKeys.of_plans)
        removed = [*pairs(await self._lead("mend", int(with_names), *chain.from_iterable(types)))]
        for key, was in removed:
            logger.warning("removed %s: another program has written there; it was %s", _text(key), _text(was))
        if removed:
            self._ledger = Ledger()

    async def resign(self, token: str) -> None:
        """Release the lease."""
        async with self._using:
            await self._lead("resign", token)

    async def close(self, *, for_good: bool = False) -> None:
        """Release the connections."""
        await self._waiting.close()
        await super().close(for_good=for_good)

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
        if answer not in (b"ok", b"retired") and stored_for_all(answer.decode(), self._connection.url) == url:
            return  # it was stored with the password of the user who asks sentinels
        if answer == b"retired":
            raise UsageError(f"node {name!r} was retired: its name is not used again; choose another one")
        if answer != b"ok" and own_options(answer.decode())[0] == own_options(url)[0]:
            raise UsageError(
                f"node {name!r} is already registered with other options (replicas, durability, give_up_s); they "
                "cannot be changed: repeat those, or take another name and another server"
            )
        if answer != b"ok":
            raise UsageError(
                f"node {name!r} is already registered at {redacted(answer.decode())}, and its events cannot move to "
                "another server: choose another name"
            )

    async def retire_node(self, name: str) -> bool:
        """Take a node out of the registry, for good: what it has moves elsewhere, and its name is not used again.

        Return whether it was registered. Raises `UsageError` for the only node.
        """
        answer = await self._lead("retire", name)
        if answer < 0:
            raise UsageError(f"{name} is the only node that is registered: nothing could take its regions over")
        return bool(answer)

    async def is_retired(self, name: str) -> bool:
        """Return whether a node was retired."""
        return bool(await self._connection.call("SISMEMBER", ControlKeys.retired, name))

    async def is_registered(self, name: str) -> bool:
        """Return whether a node of this name is registered."""
        return await self._connection.call("HGET", ControlKeys.nodes, name) is not None

    async def _load(self, noted: int) -> Ledger:
        ledger = Ledger()
        await ledger.load(self._connection.call, self._connection.pipeline, noted)
        return ledger

    async def _announce(self, token: str, record: Record, saved: Record, *more: tuple[Any, ...]) -> bool:
        async with self._using:
            commands, names = self._ledger.announcing(record, saved)
            if not await self._write(token, [*commands, *more], names):
                return False
            self._wrote(saved, record)
            return True

    def _wrote(self, *records: Record) -> None:
        self._fence += 1
        if records:
            self._ledger.wrote(*records)
        else:
            self._ledger.number += 1

    async def _write(
        self, token: str, commands: Sequence[tuple[Any, ...]], names: frozenset[str] | None = frozenset()
    ) -> bool:
        """Carry out commands, all at once; ``names``: for whom it is news, None: for all."""
        if self._ledger.number != self._fence:
            return False
        if names is not None and len(names) > NAMES_MAX:
            names = None
        arguments: list[Any] = [-1] if names is None else [len(names), *sorted(names)]
        for command in commands:
            arguments += (len(command), *command)
        return bool(await self._lead("write", token, self._fence, *arguments))

    async def _keep_past(self, token: str, record: Record) -> bool:
        """Store where the epochs were that a plan ends, before it is announced: readers of history need it."""
        left = record.left_plans()
        if not left:
            return True
        number, document = f"{record.plan.epoch}-{record.plan.version}", past_document(left)
        regions = [region for plan in left for region in plan.paths]
        for start in range(0, len(regions), REGIONS_MAX):
            some = regions[start : start + REGIONS_MAX]
            async with self._using:
                kept = await self._lead("past", token, number, PAST_KEPT_MS, document, *some)
            if not kept:
                return False
        return True

    async def _lead(self, *arguments: Any) -> Any:
        return await self._connection.run(LEADING, (ControlKeys.state,), *arguments)


def _registered(node: tuple[bytes, bytes]) -> tuple[str, str]:
    name, url = map(_text, node)
    try:
        own_options(url)
        return check_node_name(name), url
    except (InvalidName, UsageError, ValueError) as error:
        raise PlanError(f"{ControlKeys.nodes}: {error}") from error


def _text(told: bytes) -> str:
    return told.decode(errors="replace")


def _number(record: Record) -> tuple[int, int]:
    return record.plan.epoch, record.plan.version
