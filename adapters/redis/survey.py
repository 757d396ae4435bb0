"""Survey a network in Redis: read its state from outside, without joining or changing it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from math import isfinite
from typing import Any

from adapters.leadership import TTL_MS
from adapters.redis.announced import read_announced, with_people
from adapters.redis.control import SOLE_NODE
from adapters.redis.controlkeys import ControlKeys
from adapters.redis.ledger import read_underway
from adapters.redis.networkstate import (
    ConnectionState,
    NetworkState,
    NodeState,
    TransitionState,
)
from adapters.redis.nodereading import NodeReader, pairs, waited_s
from adapters.redis.probe import ServerProbe, text, whole
from adapters.redis.rows import read_begun, read_interests, read_standings
from adapters.urls import as_user_of, redacted
from adapters.wording import natural
from sequencing.doing import Doing
from sequencing.errors import PlanError
from sequencing.joint import label
from sequencing.keyspace import NodeKeys
from sequencing.listing import listed
from sequencing.plan import Plan
from sequencing.record import Interest, Record


async def survey(
    url: str,
    *,
    regions: bool = False,
    node_answer_s_max: float | None = None,
    answer_s_max: float | None = None,
    silent: Collection[NodeState] = (),
) -> NetworkState:
    """Return the state of a control Redis's network; ``regions``: including the content of each region's stream.

    ``node_answer_s_max``, ``answer_s_max``: the time limits for one reply of a node, and of any server; None for
    `ANSWER_S_MAX` of `adapters.redis.probe`. ``silent``: nodes that did not answer a moment ago, and are not asked.

    Raises `UnknownScheme` for an invalid Redis URL, `NetworkError` or `OtherSideError` if the control Redis does not
    answer. All other errors are reported in the result.
    """
    control = ServerProbe(url, SOLE_NODE, answer_s_max)
    asked: dict[str, ServerProbe] = {}
    try:
        described = await control.describe()
        published = await _published(control)
        plan = published.plan if published is not None else None
        registered = {text(name): text(at) for name, at in pairs(await control.ask("HGETALL", ControlKeys.nodes) or ())}
        places = dict(registered)
        places.update(plan.nodes if plan is not None else {})
        names = sorted(places, key=natural) or [SOLE_NODE]
        lossy = set(map(text, await control.ask("SMEMBERS", ControlKeys.lossy) or ()))
        retired = set(map(text, await control.ask("SMEMBERS", ControlKeys.retired) or ()))
        runs = await control.ask("HMGET", ControlKeys.doubted, *names) or ()
        sources = sorted({source for source, _ in plan.links} if plan is not None else ())
        told = await control.ask_each([("GET", ControlKeys.carried(name)) for name in sources]) if sources else []
        carried = {name: each is not None for name, each in zip(sources, told, strict=True) if each != ()}
        doubted = {name for name, run in zip(names, runs, strict=False) if run is not None}
        unseen = (
            NodeState(
                name,
                at := as_user_of(places.get(name, "") or url, url),
                redacted(at),
                registered=name in registered,
                planned=plan is not None and name in plan.nodes,
                may_lose=name in lossy,
                retired=name in retired,
                has_lost=name in doubted,
                is_carried=carried.get(name),
            )
            for name in names
        )
        reader = NodeReader(plan, asked, node_answer_s_max or answer_s_max)
        known = {node.name: node for node in silent}
        asked_now = [node for node in unseen if node.name not in known]
        answers = {node.name: node for node in await asyncio.gather(*map(reader.read, asked_now))}
        nodes = [known.get(name) or answers[name] for name in names]
        time_waited_s = waited_s(nodes)
        interests = await _interests(control)
        if published is not None and published.plan.sole:
            published = listed(published, interests, await _begun(asked.get(published.plan.sole), published.plan))
            plan = published.plan
        leader, lease_ms = await _leader(control)
        names = [*map(text, await control.ask("SMEMBERS", ControlKeys.published) or ())]
        alive = await control.ask("ZRANGE", ControlKeys.alive, 0, -1, "WITHSCORES")
        state = NetworkState(
            where=redacted(url),
            control=described,
            plan=plan,
            transition=await _transition(control, plan),
            leader=leader,
            lease_ms=lease_ms,
            nodes=tuple(nodes),
            connections=await _connections(control, published, interests, alive or ()),
            connections_unread=alive is None,
            unplaced=frozenset(map(label, plan.without_place(names) if plan is not None else names)),
            regions=await reader.regions(plan) if regions and plan is not None else (),
            waited_s=time_waited_s,
        )
        state = replace(state, trouble=text(await control.ask("GET", ControlKeys.trouble) or b""))
        await _note_types(control)
        now = await _published(control)  # last, so that everything read before belongs to that plan, or to a later one
        has_moved = now is not None and (plan is None or _number(now.plan) != _number(plan))
        return replace(state, unread=tuple(dict.fromkeys(control.unread)), has_moved=has_moved)
    finally:
        for server in (control, *asked.values()):
            await server.close()


def _number(plan: Plan) -> tuple[int, int]:
    return plan.epoch, plan.version


async def _published(control: ServerProbe) -> Record | None:
    try:
        record = await read_announced(control.ask_each)
        if record is None or record.plan.sole:
            return record
        return with_people(record, await read_standings(control.scan, control.ask_each))
    except (PlanError, ValueError) as error:
        control.unread.append(
            f"the newest plan ({ControlKeys.plan}, {ControlKeys.regions}, {ControlKeys.atoms}): {error}"
        )
        return None


async def _note_types(control: ServerProbe) -> None:
    """Note the keys that have a type that cannot be used."""
    kinds = await control.ask_each([("TYPE", key) for key in ControlKeys.types])
    for (key, wanted), kind in zip(ControlKeys.types.items(), kinds, strict=True):
        if kind and text(kind) not in {wanted, "none"}:
            control.unread.append(f"{key} is a {text(kind)} and not a {wanted}")


async def _transition(control: ServerProbe, published: Plan | None) -> TransitionState | None:
    try:
        underway = await read_underway(control.ask)
    except PlanError as error:
        control.unread.append(f"{ControlKeys.state}: {error}")
        return None
    if underway is None:
        return None
    number = underway.epoch, underway.version
    return TransitionState(
        *number,
        plans_behind=underway.plans_behind,
        old_epochs=len(underway.ending),
        published=published is not None and number <= (published.epoch, published.version),
    )


async def _interests(control: ServerProbe) -> Mapping[str, Interest]:
    def note(name: str, error: Exception) -> None:
        control.unread.append(f"what {name} wants: {error}")

    return await read_interests(control.scan, control.ask_each, note)


async def _leader(control: ServerProbe) -> tuple[str | None, int | None]:
    """Return the token and the remaining lease in ms, as `NetworkState` has them."""
    noted = len(control.unread)
    token = await control.ask("GET", ControlKeys.lease)
    lease_ms = await control.ask("PTTL", ControlKeys.lease)
    if len(control.unread) > noted:
        return None, None
    # The lease may have ended in between.
    return ("", None) if token is None or lease_ms == -2 else (text(token), lease_ms)


async def _begun(server: ServerProbe | None, plan: Plan) -> frozenset[str]:
    """Return the regions that have begun at the only node of a network, as far as it can be asked."""
    if server is None:
        return frozenset()
    return await read_begun(server.scan, NodeKeys(plan.sole).steps, plan.epoch)


async def _connections(
    control: ServerProbe, published: Record | None, interests: Mapping[str, Interest], untils: Sequence[Any]
) -> tuple[ConnectionState, ...]:
    """Return the connections; ``untils``: names, each with the time until which it counts as connected."""
    alive = {text(name): round(float(until)) if isfinite(float(until)) else 0 for name, until in pairs(untils)}
    introduced = {
        text(name): whole(number) for name, number in pairs(await control.ask("HGETALL", ControlKeys.connections) or ())
    }
    # Of those who are there, and not all that somebody may have put there.
    reports = await control.ask("HMGET", ControlKeys.doing, *introduced) if introduced else ()
    doing = {name: Doing.read(what) for name, what in zip(introduced, reports or (), strict=False) if what is not None}
    clock = await control.ask("TIME")
    now_ms = int(clock[0]) * 1000 + int(clock[1]) // 1000 if clock else time.time_ns() // 1_000_000
    heard = published.heard if published is not None else {}
    nothing = Interest(0, 0)
    states = []
    for name in sorted(alive.keys() | introduced.keys() | interests.keys(), key=natural):
        interest = interests.get(name, nothing)
        waiting = interest.after(heard.get(name))
        states.append(
            ConnectionState(
                name=name,
                incarnation=introduced.get(name, 0),
                wanted=frozenset(interest.since),
                waiting=waiting,
                heard_ms_ago=max(0, now_ms - (alive[name] - TTL_MS)) if name in alive else None,
                alive=alive.get(name, 0) > now_ms,
                doing=doing.get(name),
                asks=frozenset((region, interest.since[region]) for region in waiting),
            )
        )
    return tuple(states)
