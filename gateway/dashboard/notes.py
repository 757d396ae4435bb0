"""What changed between two surveys of a network, in words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from adapters.redis.networkstate import NetworkState
from adapters.wording import counted, named, natural
from sequencing.plan import Plan

Kind = Literal["epoch", "plan", "node", "leader", "subscriber", "gap", "alert"]


@dataclass(frozen=True, slots=True)
class Note:
    """A change, seen at ``at_ms`` (Unix time). ``bad``: an operator should know."""

    at_ms: int
    kind: Kind
    text: str
    bad: bool = False


def happened(before: NetworkState, now: NetworkState, at_ms: int) -> Iterator[Note]:
    """Yield the differences between two surveys."""
    yield from _plan(before.plan, now.plan, at_ms)
    yield from _nodes(before, now, at_ms)
    if before.leader != now.leader and now.leader is not None:
        text = f"{now.leader} leads" if now.leader else "no leader is running"
        yield Note(at_ms, "leader", text, bad=not now.leader)
    yield from _subscribers(before, now, at_ms)


def _plan(before: Plan | None, now: Plan | None, at_ms: int) -> Iterator[Note]:
    if before is now:
        return
    if now is None:
        yield Note(at_ms, "plan", "the plan is gone: the control Redis has lost its data", bad=True)
        return
    if before is None:
        yield Note(at_ms, "plan", f"plan {now.epoch}.{now.version}: {counted(len(now.paths), 'region')}")
        return
    if (before.epoch, before.version) == (now.epoch, now.version):
        return
    begun = [region for region in now.paths if now.epoch_of(region) > before.epoch]
    if now.epoch != before.epoch:
        text = f"epoch {now.epoch} begins for {counted(len(begun), 'region')}: {named(sorted(begun, key=natural))}"
        yield Note(at_ms, "epoch", text if begun else f"epoch {now.epoch} begins")
    changes = []
    if added := now.paths.keys() - before.paths.keys():
        changes.append(f"{counted(len(added), 'new region')} ({named(sorted(added, key=natural))})")
    if gone := before.paths.keys() - now.paths.keys():
        changes.append(f"{counted(len(gone), 'region')} gone")
    moved = [region for region, path in now.paths.items() if before.paths.get(region, path) != path]
    if moved:
        changes.append(f"{counted(len(moved), 'path')} changed ({named(sorted(moved, key=natural))})")
    atoms = {atom.regions for atom in now.atoms}, {atom.regions for atom in before.atoms}
    if new := len(atoms[0] - atoms[1]):
        changes.append(counted(new, "new atom"))
    if retired := len(atoms[1] - atoms[0]):
        changes.append(f"{counted(retired, 'atom')} retired")
    said = "; ".join(changes) or "the same paths and atoms"
    yield Note(at_ms, "plan", f"plan {now.epoch}.{now.version}: {said}")


def _nodes(before: NetworkState, now: NetworkState, at_ms: int) -> Iterator[Note]:
    then = {node.name: node for node in before.nodes}
    for node in now.nodes:
        was = then.pop(node.name, None)
        if was is None:
            yield Note(at_ms, "node", f"{node.name} is registered at {node.where}")
        elif node.server is None and was.server is not None:
            yield Note(at_ms, "node", f"{node.name} does not answer: {node.trouble}", bad=True)
        elif node.server is not None and was.server is None:
            yield Note(at_ms, "node", f"{node.name} answers again")
        elif node.server is not None and was.server is not None and node.server.run != was.server.run:
            yield Note(at_ms, "node", f"the server of {node.name} was restarted", bad=True)
    for name in then:
        yield Note(at_ms, "node", f"{name} is no longer registered")


def _subscribers(before: NetworkState, now: NetworkState, at_ms: int) -> Iterator[Note]:
    then = {each.name for each in before.connections if each.alive}
    alive = {each.name for each in now.connections if each.alive}
    if come := sorted(alive - then, key=natural):
        yield Note(at_ms, "subscriber", f"{counted(len(come), 'subscriber')} joined: {named(come)}")
    left = then - alive
    known = {each.name for each in now.connections}
    if gone := sorted(left - known, key=natural):
        yield Note(at_ms, "subscriber", f"{counted(len(gone), 'subscriber')} left: {named(gone)}")
    if lost := sorted(left & known, key=natural):
        text = f"{counted(len(lost), 'subscriber')} disconnected without leaving: {named(lost)}"
        yield Note(at_ms, "subscriber", text, bad=True)
