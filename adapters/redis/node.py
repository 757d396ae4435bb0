"""A sequencing node that lives in Redis: the script, and the streams around it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import Any, TypeVar

from adapters.network import Answered
from adapters.places import Position
from adapters.redis.connection import RedisConnection, Script
from adapters.redis.evidence import Evidence
from adapters.redis.rows import pairs, read_begun
from adapters.redis.streamsread import StreamsRead, frames_of
from sequencing.cut import ReadResult, are_next, without_cut_short
from sequencing.errors import NetworkError, NotAllowed, PlanError
from sequencing.frames import UNKNOWN_END, FrameKind, LinkedFrame, PublishedFrame, StampedFrame
from sequencing.keyed import NO_EXTRAS, Heads, Snapshot, head_text
from sequencing.keyspace import NodeKeys, encode_step, link_words, linked_of
from sequencing.node import (
    FORGOTTEN,
    TICK_META,
    Accepted,
    Answer,
    Opening,
    TransferAnswer,
    TransferVerdict,
    Verdict,
)
from sequencing.pending import Judgement, Passing
from sequencing.plan import Plan, Step

DIGITS_MAX = 40
"""More than the two numbers of a position have."""

COPIED = "w"
"""A counter that is only written, to wait until it is copied."""

STEP = Script.beside(__file__, "step.lua")
INSTALL = Script.beside(__file__, "install.lua")

NEWEST_MAX = 100
"""How many streams one round trip asks for their newest frames."""

INSTALL_STEPS_MAX = 1000
CLOSE_MAX = 250
"""How many regions one script call installs or forgets, and how many it ends: Redis blocks while it runs."""

OPEN_ARGUMENTS_MAX = 10_000
OPEN_BYTES_MAX = 4 * 1024 * 1024
"""One script call opens no more ingresses beyond these."""

HEADS_MAX = 16
"""Of how many regions the keys are read at once: each may have 4,096."""

PUBLISHERS_MAX = 1000
"""How many of them are looked at, and forgotten, at once."""

_Each = TypeVar("_Each")

OnLoss = Callable[[str, str, str, int], Awaitable[None]]


class RedisNode:
    """One task's connection to one node."""

    def __init__(self, name: str, url: str, plan: Plan | None = None, on_loss: OnLoss | None = None) -> None:
        """``url``: of the Redis that hosts the node. Does not connect yet. ``plan``: see `follow`.

        ``on_loss``: called with the node, its run and what is missing when it has less than it had, see `Evidence`;
        and the epoch with which the network began that lost it.
        """
        self.name = name
        self.keys = NodeKeys(name)
        self.connection = RedisConnection(url, name)
        self._on_loss = on_loss
        self.evidence = Evidence(self.keys)
        self.connection.missing = self.evidence.missing
        if on_loss is not None:
            self.connection.on_loss = self._report
        self._first_epoch = plan.first_epoch if plan is not None else 0
        self.follow(plan)
        self._only_watches = False
        """Whether its user may not write, as one who records."""
        silent = () if self.connection.has_channels else (self.keys.node,)
        self._step_keys = (self.keys.node, self.keys.steps, self.keys.counters, self.keys.publishers, *silent)

    def follow(self, plan: Plan | None) -> None:
        """Speak to the node in the run that a plan names, if it names one, from the next call on."""
        self.connection.run_wanted = plan.runs.get(self.name, "") if plan is not None else ""
        if plan is not None and plan.first_epoch != self._first_epoch:
            self._first_epoch = plan.first_epoch
            self.evidence.forget()  # it is of a network that was here before

    async def ping(self) -> None:
        """Reach the server; raises `NetworkError` or `OtherSideError`."""
        await self.connection.call("PING")

    async def publish(self, frames: Sequence[PublishedFrame]) -> list[Answer]:
        """Run the step for published frames."""
        return self._answers(frames, await self.connection.run(STEP, self._step_keys, *_arguments(frames)))

    def can_publish_at_once(self) -> bool:
        """Return whether nothing is to be opened or found out before `publish_at_once`."""
        return self.connection.can_run(STEP)

    def publish_at_once(self, frames: Sequence[PublishedFrame], told: Answered) -> None:
        """As `publish`, without a task."""

        arguments = _arguments(frames)
        self.connection.run_at_once(STEP, self._step_keys, arguments, partial(self._answered, frames, told))

    def _answered(self, frames: Sequence[PublishedFrame], told: Answered, reply: Any, error: Exception | None) -> None:
        answers: Sequence[Answer] = ()
        try:
            if error is None:
                answers = self._answers(frames, reply)
        except (ValueError, AttributeError, TypeError) as wrong:
            error = NetworkError(f"node {self.name!r} has answered what no node does: {wrong!r}")
        told(answers, error)

    def break_off(self) -> None:
        """End a request that takes too long: its outcome is unknown."""
        self.connection.break_off()

    def _answers(self, frames: Sequence[PublishedFrame], reply: Any) -> list[Answer]:
        answers = [Answer.decode(each) for each in reply]
        accepted = self.evidence.accepted
        for frame, answer in zip(frames, answers, strict=True):
            if answer.verdict in (Verdict.OK, Verdict.SEEN) and frame.kind is not FrameKind.ASK:
                accepted(frame, answer.numbers)
        return answers

    async def transfer(self, source: str, frames: Sequence[LinkedFrame]) -> TransferAnswer:
        """Run the step for frames that come over the link from ``source``."""
        is_more_said = any(linked.said for linked in frames)
        arguments: list[Any] = ["transfer+" if is_more_said else "transfer", source]
        for linked in frames:
            arguments += (linked.sequence, *link_words(linked).values())
            if is_more_said and not linked.said:
                arguments.append(b"")
        verdict, accepted = await self.connection.run(STEP, self._step_keys, *arguments)
        return TransferAnswer(TransferVerdict(verdict.decode()), int(accepted))

    async def undecided(self) -> dict[str, Passing]:
        """See `Node.undecided`."""
        flat = await self.connection.call("HGETALL", self.keys.undecided)
        return {of.decode(): Passing.decode(text) for of, text in pairs(flat)}

    async def verdicts(self, source: str) -> dict[str, Judgement]:
        """See `Node.verdicts`."""
        flat = await self.connection.call("HGETALL", self.keys.verdicts)
        read = ((of.decode(), text.decode().split("\n")) for of, text in pairs(flat))
        return {of: Judgement(judgement) for of, (link, judgement) in read if link == source}

    async def resolve(self, judgements: Mapping[str, Judgement | int]) -> None:
        """See `Node.resolve`."""
        said = ((of, each if isinstance(each, Judgement) else f"lost {each}") for of, each in judgements.items())
        await self.connection.run(STEP, self._step_keys, "resolve", *chain.from_iterable(said))

    async def settle(self, frames: Iterable[str]) -> None:
        """See `Node.settle`."""
        await self.connection.call("HDEL", self.keys.verdicts, *frames)

    async def read(self, after: Mapping[Any, Position], *, frames_max: int, block_ms: int | None) -> ReadResult:
        """Read egress streams on this connection; see `Reader.read`."""
        reading = StreamsRead(self.keys, after, self.evidence)
        self.evidence.narrow(reading.streams.items())
        frames = await self.read_together(reading, frames_max, block_ms)
        return ReadResult(frames, without_cut_short(reading.streams, frames, frames_max))

    async def read_together(self, reading: StreamsRead, frames_max: int, block_ms: int | None) -> list[StampedFrame]:
        """Return what streams have: all that there is in one moment, but for ``frames_max``.

        A read that waits is answered with the stream that woke it, see `sequencing.cut`.
        """
        if block_ms is not None:
            reply = await self._copied_reply(reading.command(frames_max, block_ms))
            frames = reading.frames_in(reply)
            if reading.is_single or not reply or len(reply) > 1 or are_next(frames):
                return frames
        return reading.frames_in(await self._copied_reply(reading.command(frames_max, None)))

    async def _copied_reply(self, command: bytes) -> Any:
        """Return what a command reads, once it is copied: a new master would give its numbers to other events."""
        reply = await self.connection.call_packed(command)
        if reply:
            await self.copied()
        return reply

    async def unblock(self, client: int) -> bool:
        """Have a read of another connection to this node, which waits, return; False when none waits."""
        return bool(await self.connection.call("CLIENT", "UNBLOCK", client))

    async def newest(self, streams: Sequence[tuple[str, int]]) -> list[StampedFrame | None]:
        """Return the newest frame of each egress stream, (region, epoch), None of an empty one."""
        newest: list[StampedFrame | None] = []
        for some in _some(streams, NEWEST_MAX):
            replies = await self.connection.pipeline(
                [("XREVRANGE", self.keys.egress(epoch, region), "+", "-", "COUNT", 1) for region, epoch in some]
            )
            for (region, _), entries in zip(some, replies, strict=True):
                newest += frames_of(region, entries) or [None]
        await self.copied()
        return newest

    async def read_link(self, target: str, after: int, *, frames_max: int, block_ms: int) -> list[LinkedFrame]:
        """Read the link towards ``target`` after a link sequence, waiting up to ``block_ms``."""
        key = self.keys.link(target)
        reply = await self.connection.call(
            "XREAD", "COUNT", frames_max, "BLOCK", block_ms, "STREAMS", key, f"{after}-{2**64 - 1}"
        )
        return [
            linked_of(int(entry_id.partition(b"-")[0]), *words[1::2])
            for _, entries in reply or ()
            for entry_id, words in entries
        ]

    async def copied(self) -> None:
        """See `LinkSource.copied`; call it in the step in which the last answer has come."""
        if not self.connection.waits:
            return
        if not self._only_watches:
            try:
                await self.connection.copied(("HSET", self.keys.counters, COPIED, 1))
            except NotAllowed:
                self._only_watches = True  # what was read is read again, on another connection
            else:
                return
        # Before Redis 7.2, WAIT speaks of all that was there at the last command.
        await self.connection.copied(("PING",))

    async def acknowledge(self, target: str, accepted: int) -> None:
        """Trim from the link what its target has accepted."""
        await self.connection.call("XTRIM", self.keys.link(target), "MINID", "=", f"{accepted + 1}-0")

    @property
    def opened(self) -> int:
        """See `LinkSource.opened`."""
        return self.connection.opened

    async def sent(self, target: str) -> tuple[int, int]:
        """See `LinkSource.sent`."""
        first, [last] = await self.connection.pipeline(
            [
                ("XRANGE", self.keys.link(target), "-", "+", "COUNT", 1),
                ("HMGET", self.keys.counters, f"o {target}"),
            ]
        )
        return int(last or 0), int(first[0][0].partition(b"-")[0]) if first else 0

    async def taken(self, source: str) -> int:
        """See `LinkTarget.taken`."""
        [taken] = await self.connection.call("HMGET", self.keys.counters, f"i {source}")
        return int(taken or 0)

    async def report_loss(self, lost: str) -> None:
        """See `LinkSource.report_loss`."""
        if not self.connection.run_wanted:
            await self._report(self.connection.found_run, lost)

    async def _report(self, run: str, lost: str) -> None:
        if self._on_loss is not None:
            await self._on_loss(self.name, run, lost, self._first_epoch)

    async def link_tails(self, targets: Iterable[str]) -> dict[str, int]:
        """Return the sequence of the newest frame of each link that holds any."""
        asked = list(targets)
        newest = [("XREVRANGE", self.keys.link(target), "+", "-", "COUNT", 1) for target in asked]
        replies = zip(asked, await self.connection.pipeline(newest), strict=True)
        return {target: int(entry_id.partition(b"-")[0]) for target, entries in replies for entry_id, _ in entries}

    async def are_acknowledged(self, links: Iterable[tuple[str, int]]) -> bool:
        """Return whether the targets of links have accepted all up to a link sequence each."""
        oldest = [("XRANGE", self.keys.link(target), "-", tail, "COUNT", 1) for target, tail in links]
        return not any(await self.connection.pipeline(oldest))

    async def install(self, plan: Plan, retention_events: int) -> None:
        """Install this node's steps of a plan; raises `PlanError` when a later plan is installed already.

        See `sequencing.node.Node.install`; so for what follows.
        """
        steps = [(step, "I" if step.ingress else "T", 0) for step in plan.steps(self.name)]
        if not await self._install("install", plan, retention_events, steps):
            raise PlanError(f"node {self.name!r} has a plan later than {plan.epoch}.{plan.version} installed")

    async def prepare(
        self, plan: Plan, retention_events: int, steps: Iterable[Step], closing: Mapping[str, int]
    ) -> bool:
        """Install steps beside those in use; False when a plan of a later epoch is installed already."""
        flagged = [
            (step, "T" if not step.ingress else "W" if step.region in closing else "I", closing.get(step.region, 0))
            for step in steps
        ]
        return await self._install("prepare", plan, retention_events, flagged)

    async def begin_any(self, plan: Plan, retention_events: int) -> bool:
        """Begin whatever region of a plan's epoch is published to; False when a later plan is installed already."""
        arguments = "any", plan.epoch, plan.version, retention_events, plan.first_epoch
        return bool(await self.connection.run(INSTALL, self._step_keys, *arguments))

    async def begin_no_more(self, epoch: int) -> frozenset[str]:
        """Begin only the regions of installed steps; return those that have begun in an epoch."""
        await self.connection.run(INSTALL, self._step_keys, "no more")
        return await self.begun(epoch)

    async def begun(self, epoch: int) -> frozenset[str]:
        """Return the regions that have a step in an epoch."""
        return await read_begun(self.connection.call, self.keys.steps, epoch)

    async def close_ingresses(self, regions: Sequence[tuple[str, int, int]]) -> list[Answer]:
        """Close ingresses; (region, epoch, following epoch) each."""
        answers: list[Answer] = []
        for some in _some(regions, CLOSE_MAX):
            replies = await self.connection.run(STEP, self._step_keys, "close", *chain.from_iterable(some))
            answers += map(Answer.decode, replies)
        return answers

    async def accepted(self, regions: Iterable[str]) -> dict[str, dict[str, Accepted]]:
        """Return what was accepted last of each publisher of some regions."""
        accepted: dict[str, dict[str, Accepted]] = {region: {} for region in regions}
        flat = await self.connection.call("HGETALL", self.keys.publishers)
        for field, value in zip(flat[::2], flat[1::2], strict=True):
            region, _, publisher = field.decode().partition("\n")
            if region in accepted:
                accepted[region][publisher] = Accepted(*map(int, value.split()))
        return accepted

    async def heads(self, regions: Iterable[str]) -> dict[str, Heads]:
        """Return the heads of the keys of some regions, of those whose events have named some."""
        keyed = await self.connection.call("HGETALL", self.keys.keyed)
        since = {region.decode(errors="replace"): epochs for region, epochs in pairs(keyed)}
        named = [(region, epochs) for region in regions if (epochs := _two_numbers(since.get(region))) is not None]
        by_region: dict[str, Heads] = {}
        for some in _some(named, HEADS_MAX):
            asked = [
                ("HGETALL", key) for region, _ in some for key in (self.keys.heads(region), self.keys.values(region))
            ]
            told = iter(await self.connection.pipeline(asked))
            by_region |= {region: _heads(epochs, next(told), next(told)) for region, epochs in some}
        return by_region

    async def snapshots(self, regions: Sequence[tuple[str, int]]) -> dict[str, Snapshot] | None:
        """See `Node.snapshots`. In a transaction, not a script: of many keys, a script takes the server ten times as
        long."""
        keys, asked = self.keys, list[tuple[Any, ...]]()
        for region, epoch in regions:
            asked += (
                ("HGET", keys.steps, f"{epoch} {region}"),
                ("HGET", keys.counters, f"r {epoch} {region}"),
                ("HGET", keys.keyed, region),
                ("HGETALL", keys.heads(region)),
                ("HGETALL", keys.values(region)),
                ("EXISTS", keys.pending(region)),
            )
        commands = [("MULTI",), ("HGET", keys.node, "any"), *asked, ("EXEC",)]
        *_, (any_epoch, *answers) = await self.connection.pipeline(commands)
        await self.copied()
        snapshots: dict[str, Snapshot] = {}
        for place, (region, epoch) in enumerate(regions):
            step, last, keyed, heads, values, is_pending = answers[6 * place : 6 * place + 6]
            is_open = step.startswith(b'["I"') if step else any_epoch == str(epoch).encode()
            if not is_open or is_pending:
                return None
            snapshot = _heads(_two_numbers(keyed) or (0, 0), heads, values).snapshot(int(last or 0))
            snapshots[region] = snapshot._replace(lacks_some=len(snapshot.values) < len(heads) // 2)
        return snapshots

    async def open_ingresses(self, regions: Iterable[Opening]) -> None:
        """Open ingresses that wait."""
        arguments: list[Any] = ["open"]
        size = 0
        for region, epoch, accepted, heads in regions:
            known, values = (heads.known, heads.values) if heads is not None else ({}, {})
            arguments += (region, epoch, len(accepted), len(known) if heads is not None else -1)
            arguments.append(heads.lost if heads is not None else 0)
            for publisher, seen in accepted:
                arguments += (publisher, f"{seen.incarnation} {seen.last} {seen.epoch} {seen.region_last}")
            for key, head in known.items():
                value = values.get(key, b"")
                arguments += (key, b"%b\n%b" % (head_text(head).encode(), value))
                size += len(value)
            if len(arguments) > OPEN_ARGUMENTS_MAX or size > OPEN_BYTES_MAX:
                size = 0
                await self.connection.run(INSTALL, self._step_keys, *arguments)
                arguments = ["open"]
        if len(arguments) > 1:
            await self.connection.run(INSTALL, self._step_keys, *arguments)

    async def ended(self, regions: Iterable[tuple[str, int]]) -> bool:
        """Return whether the epochs of some regions, (region, epoch) each, have come to their ends here."""
        newest = await self.newest(list(regions))
        return all(frame is not None and frame.meta == TICK_META for frame in newest)

    async def seal(self, streams: Iterable[tuple[str, int, int]]) -> None:
        """End streams whatever is missing; (region, epoch, number of the TICK or 0) each."""
        for some in _some([(region, epoch, tick or UNKNOWN_END) for region, epoch, tick in streams], CLOSE_MAX):
            await self.connection.run(INSTALL, self._step_keys, "seal", *chain.from_iterable(some))

    async def forget(
        self,
        steps: Iterable[tuple[int, str]],
        link_ends: Sequence[str] = (),
        headless: Sequence[tuple[str, int]] = (),
        plan: tuple[int, int] = (0, 0),
    ) -> None:
        """Forget steps, (epoch, region) each, links, and the heads of keys of some regions, for a plan."""
        for some in _some(headless, CLOSE_MAX):
            arguments = 0, len(some), *chain.from_iterable(some)
            await self.connection.run(INSTALL, self._step_keys, "forget", *plan, *arguments)
        for gone in _some([*steps], INSTALL_STEPS_MAX) or [()]:
            arguments = len(link_ends), *link_ends, 0, *chain.from_iterable(gone)
            await self.connection.run(INSTALL, self._step_keys, "forget", *plan, *arguments)

    async def forget_publishers(self, upto: int, living: AbstractSet[str], cursor: int = 0) -> int | None:
        """Forget some of the publishers of incarnations up to one, but for some names; return a cursor to go on by."""
        # First the publishers, then what was decided of their frames: with negative cursors, from -1 on.
        are_outcomes = cursor < 0
        key, scanned = (self.keys.outcomes, -cursor - 1) if are_outcomes else (self.keys.publishers, cursor)
        following, flat = await self.connection.call("HSCAN", key, scanned, "COUNT", PUBLISHERS_MAX)
        gone = [
            field
            for field, value in zip(flat[::2], flat[1::2], strict=True)
            if (name := field.partition(b"\n")[2].decode()) != FORGOTTEN
            and name not in living
            and int(value.partition(b" ")[0]) <= upto
        ]
        if gone:
            await self.connection.run(INSTALL, self._step_keys, "forget publishers", upto, *gone)
        if are_outcomes:
            return -int(following) - 1 if int(following) else None
        return int(following) or -1

    async def run_id(self) -> str:
        """Return what tells this run of the server from others."""
        return await self.connection.run_id()

    async def admit(self, run: str) -> None:
        """Have the node begin anew, unless this is the run that it is in."""
        await self.connection.run(INSTALL, self._step_keys, "admit", run)

    async def close(self) -> None:
        """Release the connection."""
        await self.connection.close()

    async def _install(
        self, how: str, plan: Plan, retention_events: int, steps: Sequence[tuple[Step, str, int]]
    ) -> bool:
        for some in _some(steps, INSTALL_STEPS_MAX) or [()]:
            chunk: list[Any] = []
            for step, flag, after in some:
                chunk += (step.region, step.epoch, encode_step(flag, step.next, step.atoms, after))
            plan_arguments = how, plan.epoch, plan.version, retention_events, plan.first_epoch
            if not await self.connection.run(INSTALL, self._step_keys, *plan_arguments, *chunk):
                return False
        return True


def _some(every: Sequence[_Each], most: int) -> list[Sequence[_Each]]:
    """Return the parts that a script call each takes."""
    return [every[start : start + most] for start in range(0, len(every), most)]


def _heads(epochs: tuple[int, int], heads: Sequence[bytes], values: Sequence[bytes]) -> Heads:
    """Return the heads of a region as a node has stored them.

    A publisher may write there anything that it likes; what is no head counts for none.
    """
    known: dict[str, tuple[int, int]] = {}
    for key, text in pairs(heads):
        with suppress(UnicodeDecodeError):
            if (head := _two_numbers(text)) is not None:
                known[key.decode()] = head
    return Heads(known, *epochs, {key.decode(errors="replace"): value for key, value in pairs(values)})


def _two_numbers(text: bytes | None) -> tuple[int, int] | None:
    """Return the numbers of a text like ``3 120``, None if it is none."""
    one, _, other = (text or b"").partition(b" ")
    are_numbers = one.isdigit() and other.isdigit() and len(one + other) <= DIGITS_MAX
    return (int(one), int(other)) if are_numbers else None


def _arguments(frames: Sequence[PublishedFrame]) -> list[Any]:
    """Return the arguments with which the step publishes frames."""
    if len(frames) == 1 and frames[0].extras is NO_EXTRAS:
        [frame] = frames
        of_publisher = frame.publisher, frame.incarnation, frame.first, frame.count
        return ["publish", frame.region, frame.epoch, *of_publisher, int(frame.kind), frame.body]
    are_keyed = any(frame.extras is not NO_EXTRAS for frame in frames)
    arguments: list[Any] = ["publish+" if are_keyed else "publish"]
    for frame in frames:
        arguments += (frame.region, frame.epoch, frame.publisher, frame.incarnation)
        arguments += (frame.first, frame.count, int(frame.kind), frame.body)
        if are_keyed:
            arguments.append(frame.extras.encode() if frame.extras is not NO_EXTRAS else b"")
    return arguments
