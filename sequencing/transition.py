"""The transition: step by step from one plan to the next, while traffic flows.

It goes through five phases, each finished at all nodes before the next begins:

1. prepare: the nodes have the new steps beside the old; then, if a subscriber is removed from a region, the sweep of
   `sequencing.expected`; then the plan is announced;
2. close: each region that moves ends its old epoch with a TICK at its old ingress, which takes no more;
3. open: where the new ingress is at another node, it learns which frames the old one had accepted, and opens;
4. end: the TICKs have reached the ends of the old paths, so nothing of the old epoch is in flight any more;
5. forget: the nodes drop the old steps and counters.

Every step may be repeated at any time, by any manager: the running transition is part of the `Record`, so that
the next leader begins it again from the start.

*Nodes that lose something.* A new plan may follow because a node is in another run than the previous plan names. The
transition is the same, with these differences. The node is reset when it is asked to prepare. A path that is broken by
the loss is not drained. Its egress is *sealed* with the TICK that its ingress gave, or with one of an unknown number if
the ingress is what was lost. So each subscriber learns what it misses, at the place where the epoch ends. A node that
was given up is asked nothing: its streams end where each subscriber has read them (`sequencing.subscriber`). This may
happen while another transition is running: then regions may have more than one old epoch behind them, and these end
together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

from sequencing.expected import Emptied, Tails, links_to_sweep
from sequencing.keyed import Heads
from sequencing.node import Accepted, Answer, Node, Opening, Verdict
from sequencing.pending import are_awaited, lost_by
from sequencing.plan import Plan, Step
from sequencing.record import OldEpoch, Record


class Transition:
    """From the plans behind to the next: the tasks to do now, and the consequences of their answers."""

    def __init__(self, record: Record) -> None:
        """Begin at the beginning, even if an earlier manager had done a part already."""
        self.plan = record.plan
        self.prepared = False
        """Whether the plan may be announced: all nodes know it."""
        self._record = record
        self._settled = record.behind[0]
        self._old: dict[str, list[OldEpoch]] = {}
        for old in record.old_epochs():
            self._old.setdefault(old.region, []).append(old)
        self._closed: dict[tuple[str, int], Closed] = {}
        self._tails: dict[str, dict[str, int]] = {}
        left = chain.from_iterable(record.leaving.values())
        links, rounds = links_to_sweep(self._settled, left) if record.leaving else ({}, 0)
        # Regions whose path visited a restarted node begin a new epoch, and no relay carries frames there any more.
        lost = set(map(self._settled.link_end, self._settled.nodes)) - set(map(self.plan.link_end, self._settled.nodes))
        swept = {node: tuple(end for end in ends if end not in lost) for node, ends in links.items()}
        self._links = {node: ends for node, ends in swept.items() if ends and self._settled.link_end(node) not in lost}
        sweep = [
            phase for number in range(rounds) for phase in (partial(self._look, number), partial(self._empty, number))
        ]
        self._phases: list[Callable[[], list[Task]]] = [self._prepare, *sweep]
        self._phases += [self._close, self._open, self._end, self._forget]
        self._tasks: list[Task] = []
        self._next_phase()

    @property
    def finished(self) -> bool:
        """Whether nothing is left to do."""
        return not self._tasks

    def tasks(self) -> list[Task]:
        """Return the tasks to do now, in any order; the same tasks again until they are `done`."""
        return list(self._tasks)

    def done(self, task: Task, answer: Any) -> None:
        """Take the answer to a task. A repeated answer is ignored."""
        if task not in self._tasks or answer is False:
            return
        if isinstance(task, Close):
            self._closed |= answer
        elif isinstance(task, Tails):
            self._tails[task.node] = answer
        self._tasks.remove(task)
        self._next_phase()

    def _next_phase(self) -> None:
        while not self._tasks and self._phases:
            phase = self._phases.pop(0)
            self.prepared = self.prepared or phase == self._close
            # A node that was given up has nothing to say, and starts empty when it is back.
            self._tasks = [task for task in phase() if task.node not in self.plan.given_up]

    def _lost(self, node: str) -> list[str]:
        """The ends that links had at a node in earlier runs, whose data it may have lost."""
        ends = {plan.link_end(node): None for plan in self._record.behind if node in plan.nodes}
        return [end for end in ends if end != self.plan.link_end(node)]

    def _follows_here(self, region: str) -> int:
        """The old epoch of a region whose ingress opens that of the new one in the step that closes it; 0 if none."""
        [old, *more] = self._old[region]
        same = old.path[0] == self.plan.paths[region][0] and old.path[0] not in old.lost
        return old.epoch if same and not more else 0

    def _prepare(self) -> list[Task]:
        plan, settled = self.plan, self._settled
        if plan.is_laid_out_as(settled) and plan.runs == settled.runs:
            return []
        new = sorted(plan.begun_after(settled.epoch, plan.paths.keys()) | (plan.paths.keys() - settled.paths.keys()))
        tasks: list[Task] = []
        for node in plan.nodes:
            steps = tuple(plan.steps(node, new))
            if not steps and settled.runs.get(node) == plan.runs.get(node):
                continue  # an unreachable node delays nothing that does not need it
            closing = tuple(
                (region, self._follows_here(region) if plan.paths[region][0] == node else 0) for region in self._old
            )
            tasks.append(Prepare(node, plan, steps, closing))
        return tasks

    def _look(self, number: int) -> list[Task]:
        return [Tails(node, targets, number) for node, targets in self._links.items()]

    def _empty(self, number: int) -> list[Task]:
        return [Emptied(node, tuple(tails.items()), number) for node, tails in self._tails.items() if tails]

    def _close(self) -> list[Task]:
        closing: dict[str, list[tuple[str, int, int]]] = {}
        for region, olds in self._old.items():
            epochs = [*(old.epoch for old in olds), self.plan.epoch_of(region)]
            for old, following in zip(olds, epochs[1:], strict=True):
                if old.path[0] not in old.lost:
                    closing.setdefault(old.path[0], []).append((region, old.epoch, following))
        lost = tuple(node for node in self.plan.nodes if self._lost(node))
        return [Close(node, tuple(regions), lost, self.plan.epoch) for node, regions in closing.items()]

    def _open(self) -> list[Task]:
        opening: dict[str, list[Opening]] = {}
        for region, olds in self._old.items():
            if not self._follows_here(region):
                accepted: dict[str, Accepted] = {}
                for old in olds:
                    closed = self._closed.get((region, old.epoch))
                    for publisher, seen in closed.accepted.items() if closed is not None else ():
                        accepted[publisher] = max(seen, accepted.get(publisher, seen), key=Accepted.age)
                epoch, heads = self.plan.epoch_of(region), self._heads(region)
                entry = Opening(region, epoch, tuple(sorted(accepted.items())), heads)
                opening.setdefault(self.plan.paths[region][0], []).append(entry)
        return [Open(node, tuple(regions)) for node, regions in opening.items()]

    def _heads(self, region: str) -> Heads | None:
        """Return the heads of a region's keys, as its last ingress that was open had them.

        An ingress that numbered nothing but its TICK has changed none. It may know none, unless it keeps some from this
        epoch on; then those before it may have forgotten theirs.
        """
        olds = self._old[region]
        for old in reversed(olds):
            if old.path[0] in old.lost:
                return Heads(lost=self.plan.epoch_of(region))
            closed = self._closed.get((region, old.epoch))
            if closed is None:
                continue
            begun_here = closed.heads is not None and closed.heads.began == old.epoch
            if closed.tick > 1 or begun_here or old is olds[0]:
                return closed.heads
        return None

    def _end(self) -> list[Task]:
        draining: dict[str, list[tuple[str, int]]] = {}
        sealing: dict[str, list[tuple[str, int, int]]] = {}
        for old in chain.from_iterable(self._old.values()):
            egress = old.path[-1]
            if old.lost:
                closed = self._closed.get((old.region, old.epoch))
                sealing.setdefault(egress, []).append((old.region, old.epoch, closed.tick if closed else 0))
            else:
                draining.setdefault(egress, []).append((old.region, old.epoch))
        for node, streams in self._record.ended.items():
            if self._lost(node):
                sealing.setdefault(node, []).extend((*stream, 0) for stream in streams)
        drains = [Drain(node, tuple(regions)) for node, regions in draining.items()]
        return [*drains, *(Seal(node, tuple(regions)) for node, regions in sealing.items())]

    def _forget(self) -> list[Task]:
        steps: dict[str, list[tuple[int, str]]] = {}
        headless: dict[str, list[tuple[str, int]]] = {}
        for old in chain.from_iterable(self._old.values()):
            if old.path[0] != self.plan.paths[old.region][0]:
                headless.setdefault(old.path[0], []).append((old.region, self.plan.epoch_of(old.region)))
            for node in old.path:
                steps.setdefault(node, []).append((old.epoch, old.region))
        abandoned = self._record.abandoned
        plans = (self._settled, self.plan) if abandoned else ()
        kept = {(each.epoch_of(region), region) for each in plans for region in each.paths}
        for plan in abandoned:
            for region, path in plan.paths.items():
                if (key := (plan.epoch_of(region), region)) not in kept:
                    for node in path:
                        steps.setdefault(node, []).append(key)
        dead = tuple(end for node in self.plan.nodes for end in self._lost(node))
        nodes = self.plan.nodes if dead else steps
        number = self.plan.epoch, self.plan.version
        return [Forget(node, tuple(steps.get(node, ())), dead, tuple(headless.get(node, ())), number) for node in nodes]


@dataclass(frozen=True, slots=True)
class Prepare:
    """Prepare a node for its steps of the new plan. The answer: whether no later plan is installed."""

    node: str
    plan: Plan
    steps: tuple[Step, ...]
    closing: tuple[tuple[str, int], ...]

    def perform(self, node: Node) -> bool:
        """Perform the task at a node in memory."""
        node.admit(self.plan.runs.get(self.node, ""))
        return node.prepare(self.plan.epoch, self.plan.version, self.steps, dict(self.closing))


@dataclass(frozen=True, slots=True)
class Closed:
    """The number of a TICK, 0 if it is lost; of its region, the last frame accepted of each publisher, and the heads of
    its keys, if any was named."""

    tick: int
    accepted: Mapping[str, Accepted]
    heads: Heads | None = None

    @classmethod
    def by(cls, answer: Answer, accepted: Mapping[str, Accepted], heads: Heads | None) -> Closed:
        """Convert a node's answer to `Node.close`."""
        return cls(0 if answer.verdict is Verdict.STALE else answer.numbers[1], accepted, heads)


@dataclass(frozen=True, slots=True)
class Close:
    """Close ingresses; (region, epoch, the one that follows) each. The answer: (region, epoch) → `Closed`.

    False, to be repeated, while a key of theirs waits for what another node decides. ``lost``: the nodes that have lost
    something; what they were to decide, or to pass, counts as lost in ``epoch``, which begins with that.
    """

    node: str
    regions: tuple[tuple[str, int, int], ...]
    lost: tuple[str, ...] = ()
    epoch: int = 0

    def perform(self, node: Node) -> dict[tuple[str, int], Closed] | bool:
        """Perform the task at a node in memory."""
        answers = [*zip(self.regions, node.close(self.regions), strict=True)]
        node.resolve(dict.fromkeys(lost_by(node.pending.passing, self.lost, self.epoch), self.epoch))
        if are_awaited(node.undecided(), self.regions):
            return False
        return {
            (region, epoch): Closed.by(answer, node.accepted(region), heads.copy() if heads is not None else None)
            for (region, epoch, _), answer in answers
            for heads in [node.heads.get(region)]
        }


@dataclass(frozen=True, slots=True)
class Open:
    """Open ingresses of the new epoch."""

    node: str
    regions: tuple[Opening, ...]

    def perform(self, node: Node) -> bool:
        """Perform the task at a node in memory."""
        for region, epoch, accepted, heads in self.regions:
            node.open(region, epoch, dict(accepted), heads)
        return True


@dataclass(frozen=True, slots=True)
class Drain:
    """Ask whether old epochs have ended in the egress streams. Repeat while the answer is False."""

    node: str
    regions: tuple[tuple[str, int], ...]

    def perform(self, node: Node) -> bool:
        """Perform the task at a node in memory."""
        return all(node.ended(region, epoch) for region, epoch in self.regions)


@dataclass(frozen=True, slots=True)
class Seal:
    """End old epochs in the egress streams, even if frames are missing; (region, epoch, TICK number or 0) each."""

    node: str
    regions: tuple[tuple[str, int, int], ...]

    def perform(self, node: Node) -> bool:
        """Perform the task at a node in memory."""
        for region, epoch, tick in self.regions:
            node.seal(region, epoch, tick)
        return True


@dataclass(frozen=True, slots=True)
class Forget:
    """Drop the steps of old epochs, (epoch, region) each, the links to and from lost nodes, and the heads of keys of
    regions that enter elsewhere from an epoch on. ``plan``: epoch and version of the new plan, which the node may have
    no step of; from then on it prepares no earlier one."""

    node: str
    steps: tuple[tuple[int, str], ...]
    link_ends: tuple[str, ...] = ()
    headless: tuple[tuple[str, int], ...] = ()
    plan: tuple[int, int] = (0, 0)

    def perform(self, node: Node) -> bool:
        """Perform the task at a node in memory."""
        node.forget(self.steps, self.link_ends, self.headless, self.plan)
        return True


Task = Prepare | Tails | Emptied | Close | Open | Drain | Seal | Forget
