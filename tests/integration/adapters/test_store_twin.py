"""The control store's scripts and the control store in Python are one: the same calls, the same answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from adapters.embedded.server import EmbeddedServer
from adapters.network import Forgotten
from adapters.redis.controlkeys import ControlKeys
from adapters.redis.leadercontrol import LeaderControl
from sequencing.errands import Seen
from sequencing.errors import GamecastError, NoLeader, PlanError, Superseded
from sequencing.plan import Plan
from sequencing.record import Pair, Record, Request
from sequencing.store import ControlStore, Fence, Heard, Known, number_of

NAMES, REGIONS, TOKENS = "abc", ("r1", "r2", "r3", "r4"), ("one", "other")
STEPS = 150
LEASE_MS = 60_000
"""Longer than this takes: the clock of the store in Python stands still."""


class Twins:
    """Both stores, and what is done to them."""

    def __init__(self, random: Random, url: str) -> None:
        self.random = random
        self.candidates = {token: LeaderControl(url) for token in TOKENS}
        self.redis = LeaderControl(url)
        self.store = ControlStore({})
        self.known = {token: Known() for token in TOKENS}
        self.said: dict[tuple[str, int], int] = {}
        self.wanted: dict[tuple[str, int], dict[str, int]] = {}
        self.lives: dict[str, list[int]] = {name: [] for name in NAMES}
        self.record: Record | None = None
        self.proposals = 0
        self.now = 0.0
        self.reached: set[str] = set()

    async def close(self) -> None:
        for control in (self.redis, *self.candidates.values()):
            await control.close()

    def one_life(self) -> tuple[str, int]:
        """Return a connection, mostly the newest of its name."""
        name = self.random.choice([name for name in NAMES if self.lives[name]])
        lives = self.lives[name]
        return name, lives[-1] if self.random.random() < 0.8 else self.random.choice(lives)

    async def introduce(self) -> None:
        name = self.random.choice(NAMES)
        mine = self.store.introduce(name, self.now)
        assert await self.redis.introduce(name) == mine
        self.lives[name].append(mine)

    async def renew(self) -> None:
        name, connection = self.one_life()
        after = self.random.choice((0, self.store.incarnation + 1, self.store.incarnation + 2))
        mine = self.store.renew(name, connection, after)
        assert await answered(self.redis.renew, name, connection, after) == (mine or Heard.SUPERSEDED)

    async def join(self) -> None:
        random, (name, connection) = self.random, self.one_life()
        life = name, connection
        said = self.said[life] = self.said.get(life, 0) + random.choice((1, 1, 1, 2))
        changes = {region: random.choice((0, said)) for region in random.sample(REGIONS, random.randint(1, 3))}
        wanted = self.wanted.setdefault(life, {})
        for region, since in changes.items():
            if since:
                wanted[region] = since
            else:
                wanted.pop(region, None)
        is_whole = random.random() < 0.2
        if random.random() < 0.1:
            said -= 1  # it was held up on its way
        request = Request(
            connection, max(said, 1), dict(wanted) if is_whole else changes, is_whole, random.randint(0, 2)
        )
        mine = self.store.join(name, request, self.now)
        [answer] = await self.redis.join([(name, request)])
        told = {True: Heard.OK, False: Heard.PLAN}.get(answer) if isinstance(answer, bool) else heard(answer)
        assert told == mine
        self.reached.add(f"join {mine}")

    async def place(self) -> None:
        name, connection = self.one_life()
        regions = self.random.sample(REGIONS, self.random.randint(1, 3))
        mine = self.store.place(name, connection, regions, self.now)
        assert await answered(self.redis.place, name, connection, regions) == (None if mine is Heard.OK else mine)

    async def beat(self) -> None:
        name, connection = self.one_life()
        said = self.random.randint(0, self.said.get((name, connection), 0) + 1)
        mine = self.store.beat(name, connection, said, self.now)
        told = await answered(self.redis.beat, name, connection, said)
        assert (Heard.BACK if told is True else Heard.OK if told is False else told) == mine
        self.reached.add(f"beat {mine}")

    async def leave(self) -> None:
        name, connection = self.one_life()
        self.store.leave(name, connection)
        await self.redis.leave(name, connection)

    async def expect(self) -> None:
        overlap: Pair = ("r1", self.random.choice(REGIONS[1:]))
        self.store.expect([overlap])
        await self.redis.declare_overlaps([overlap])

    async def register(self) -> None:
        node, may_lose = self.random.choice(("n1", "n2")), self.random.random() < 0.3
        assert not self.store.register(node, f"redis://{node}", may_lose=may_lose)
        await self.redis.register_node(node, f"redis://{node}", may_lose=may_lose)

    async def doubt(self) -> None:
        if self.store.nodes:
            node, run = self.random.choice(sorted(self.store.nodes)), self.random.choice("12")
            self.store.doubt(node, run)
            await self.redis.doubt("a", node, run)

    async def be_absent(self) -> None:
        """One is not heard of for too long."""
        name = self.random.choice(NAMES)
        if name in self.store.connections:
            self.store.expire(name)
            await self.redis._connection.call("ZADD", f"{prefix()}alive", 1, name)
            for token in TOKENS:  # one of them leads
                await self.look(token)

    async def look(self, token: str = "") -> Seen | None:
        token = token or self.random.choice(TOKENS)
        mine = self.store.look(token, LEASE_MS, self.now, self.known[token])
        told = await self.candidates[token].look(token, LEASE_MS)
        assert (told is None) == (mine is None)
        if mine is not None and told is not None:
            self.known[token] = self.store.known
            nodes = mine.nodes or {"control": ""}
            mine = mine._replace(nodes=nodes, asked="")
            if mine.is_sole:  # what is granted in place is not noted, and read when plans begin
                told = told._replace(interests=mine.interests, touched=mine.touched)
            assert told._replace(asked="") == mine
        return mine

    async def keep(self) -> None:
        token = self.random.choice(TOKENS)
        assert await self.candidates[token].keep(token, LEASE_MS) == self.store.keep(token, LEASE_MS, self.now)

    async def resign(self) -> None:
        token = self.random.choice(TOKENS)
        self.store.resign(token)
        await self.candidates[token].resign(token)

    async def write(self) -> None:
        random, token = self.random, self.random.choice(TOKENS)
        if random.random() < 0.8 and await self.look(token) is None:
            return
        if self.known[token].number < 0:
            return  # who has never looked writes nothing
        how, record = random.choice(("save", "announce", "grant", "settle", "found")), self.following()
        fence = Fence(token, self.known[token].number)
        done = getattr(self.store, how)(fence, record, self.now)
        assert await getattr(self.candidates[token], how)(token, record) == done
        self.reached.add(f"{how} {done}")
        if done:
            self.known[token] = self.known[token]._replace(number=self.store.known.number)
            self.record = record.settled() if how == "settle" else record

    def following(self) -> Record:
        """Return a record after the newest."""
        random, record = self.random, self.record
        plan = record.plan if record is not None else Plan(1, 0, "acyclic", {"n1": ""}, {}, ())
        paths = plan.paths if random.random() < 0.5 else {**plan.paths, random.choice(REGIONS): ("n1",)}
        following = replace(plan, version=plan.version + 1, paths=paths)
        counted = {name: frozenset(each.since) & paths.keys() for name, each in self.store.interests.items()}
        members = {name: regions for name, regions in counted.items() if regions}
        return Record(following, members, dict(self.store.interests), (plan,) if random.random() < 0.3 else ())

    async def begin_to_plan(self) -> None:
        token = self.random.choice(TOKENS)
        if await self.look(token) is None:
            return
        mine = self.store.begin_to_plan(Fence(token, self.known[token].number), self.now)
        assert await self.candidates[token].begin_to_plan(token) == mine
        if mine is not None:
            self.known[token] = self.known[token]._replace(number=self.store.known.number)

    async def note_runs(self) -> None:
        token = self.random.choice(TOKENS)
        if await self.look(token) is None:
            return
        done = self.store.note_runs(Fence(token, self.known[token].number), {"n1": "3"}, self.now)
        assert await self.candidates[token].note_runs(token, {"n1": "3"}) == done
        self.known[token] = self.known[token]._replace(number=self.store.known.number)
        assert await self.redis.runs_seen() == self.store.runs

    async def propose(self) -> None:
        self.proposals += 1
        proposal, plan = str(self.proposals), Plan(7, 7, "acyclic", {"n1": ""}, {}, ())
        mine = self.store.propose(proposal, plan, self.now)
        told = await answered(self.redis.propose, proposal, plan)
        assert {NoLeader: "none", PlanError: "busy"}.get(type(told), "ok") == mine
        proposed = await self.redis.proposal()
        assert (proposed and proposed[0]) == (self.store.proposed and self.store.proposed[0])

    async def answer(self) -> None:
        token, proposal = self.random.choice(TOKENS), str(self.random.randint(max(1, self.proposals - 1), 9))
        done = self.store.answer(token, proposal, "no", self.now)
        assert await self.candidates[token].answer(token, proposal, "no") == done

    async def compare(self) -> None:
        assert await self.redis.interests() == self.store.interests
        assert await self.redis.incarnations() == (self.store.incarnation, frozenset(self.store.connections))
        newest = await self.redis.latest_plan()
        told = self.store.news(None)
        assert newest == (told[0].plan if told else None)
        if len(self.store.announced) > 1:
            after = self.random.choice(self.store.announced).plan
            news = await self.redis.news(after, block_ms=1)
            assert [each.plan for each in news] == [each.plan for each in self.store.news(number_of(after))]


async def answered(call: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
    """Return what a call returns, or what its error says."""
    try:
        return await call(*arguments)
    except GamecastError as error:
        return heard(error)


def heard(error: Exception | bool) -> Any:
    return {Superseded: Heard.SUPERSEDED, Forgotten: Heard.BACK}.get(type(error), error)  # type: ignore[arg-type]


def prefix() -> str:
    return ControlKeys.connections.removesuffix("connections")


@pytest.mark.parametrize("seed", range(6))
async def test_every_call_has_the_answer_of_its_twin(redis_server: EmbeddedServer, seed: int) -> None:
    twins = Twins(Random(seed), redis_server.url)
    usual: list[Callable[[], Awaitable[object]]] = [
        twins.introduce,
        twins.join,
        twins.join,
        twins.join,
        twins.place,
        twins.beat,
        twins.look,
        twins.write,
    ]
    rare: list[Callable[[], Awaitable[object]]] = [
        twins.renew,
        twins.leave,
        twins.expect,
        twins.register,
        twins.doubt,
        twins.be_absent,
        twins.keep,
    ]
    rare += [twins.resign, twins.begin_to_plan, twins.note_runs, twins.propose, twins.answer]
    try:
        await twins.introduce()
        for _ in range(STEPS):
            await twins.random.choice([*usual, *usual, *usual, *rare])()
            await twins.compare()
    finally:
        await twins.close()
    if seed == 0:
        assert twins.reached >= {"join ok", "join plan", "join back", "join superseded", "beat back"}
