"""The leader: what it does in each turn, without IO.

The host hands in what was seen of the control store, and carries out errands, one after the other: see
`sequencing.errands`. So what a leader does, and in which order, is the same over Redis, in memory and in the
simulation. What it does at once is begun, and waited for, by errands, too: a transition that goes on while joins are
granted beside it, a plan that is being made.

A turn, by what is seen:

==========================================  ===========================================================================
no record yet                               the first plan, once there is a connection
one node has all regions (`Plan.sole`)      see that it can: else list the regions, and plan
joins that take no epoch, all calm          grant them at once; of a crowd, wait for a few more and grant them together
nothing is asked for, nothing is behind     forget who is gone; wait for a request
anything else to decide                     ask the nodes; make the next plan, and grant joins beside that; write it
a transition is behind                      bring it to the nodes, and grant joins beside that; announce; settle
==========================================  ===========================================================================

A leader that loses the lease returns at once; every write is fenced by the last look. It is good for one term: what it
has seen of nodes and names is out of date when another candidate has led meanwhile, so its host makes a new one then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import partial
from itertools import chain
from types import ModuleType
from typing import Any

from sequencing.absence import Absence
from sequencing.changes import Changes, are_usable, changes_asked, given_up
from sequencing.errands import (
    AnswerProposal,
    AskRuns,
    Begin,
    BeginToPlan,
    BreakOff,
    Compute,
    ForgetPublishers,
    Handle,
    Keep,
    Look,
    NoteRuns,
    Perform,
    Planning,
    ReadExpected,
    ReadIncarnations,
    ReadProposal,
    ReadRuns,
    Runs,
    Seen,
    Steps,
    Tell,
    Until,
    Write,
)
from sequencing.errors import PlanError
from sequencing.gone import Gone
from sequencing.joint import wished
from sequencing.plan import GIVEN_UP, Ordering, Plan, first_plan, sole_plan
from sequencing.record import Interest, Members, Record
from sequencing.sole import BeginAny, BeginNoMore, begin_listed, first_listed, following_on_one_node, is_sole
from sequencing.transition import Task, Transition

GATHER_LOOKS_MAX = 10
"""How often the leader waits for more interests before it makes a plan.

Without declared overlaps, a join mostly takes an epoch, and every other subscriber has to enter that epoch. So in a
crowd, each new interest gives the others a moment to announce theirs as well; this limits how often.
"""

GRANTED_MAX = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How often a leader does what it does from time to time."""

    look_every_s: float = 0.5
    """How often it reads the control store and renews its lease; a request makes it do so sooner."""
    gather_first_s: float = 0.002
    """Who joins alone waits no longer for others."""
    gather_s: float = 0.005
    forget_every_s: float = 10.0
    """The minimum interval between removals of publishers. They are removed when they can no longer resume."""
    again_s: float = 0.002
    """How long to wait before checking again whether an old epoch, or a link, has drained: about as long as a hop
    takes."""


@dataclass(slots=True)
class _Move:
    """A transition under way. ``record``: as grants beside it have changed it."""

    record: Record
    transition: Transition
    is_over: bool = False
    is_granting: bool = False
    is_unknown: bool = False
    """Whether a grant had no answer: it may be written."""


class Leader:
    """The work of a manager from when it has taken the lease until another candidate leads."""

    def __init__(
        self,
        ordering: Ordering,
        resume_s: float,
        *,
        planning: Callable[[], Planning],
        give_up_s_of: Callable[[str], float],
        is_stopping: Callable[[], bool],
        now_s: Callable[[], float],
        wall_ms: Callable[[], int],
        pace: Pace | None = None,
    ) -> None:
        """``ordering``: of a new network; ``resume_s``: how long a disconnected subscriber keeps its place.

        ``planning``: loads the planner; ``give_up_s_of``: after how long a node of a URL is given up, 0 for never;
        ``is_stopping``: whether the leader must end; ``now_s``, ``wall_ms``: clocks, of which only the second one
        need mean anything elsewhere.
        """
        self._ordering: Ordering = ordering
        self._resume_s = resume_s
        self._planning, self._give_up_s_of = planning, give_up_s_of
        self._is_stopping, self._now_s, self._wall_ms = is_stopping, now_s, wall_ms
        self._pace = pace or Pace()
        self.is_over = False
        """Whether its term is over, although it leads: another candidate has led in between."""
        self._emptied: AbstractSet[str] = frozenset()
        """The empty nodes of the last time when nodes were asked."""
        self._installed: Mapping[str, tuple[int, int, int]] = {}
        """The newest plans that nodes knew then, (first epoch of the network, epoch, version)."""
        self._strange: frozenset[str] = frozenset()
        """The nodes that had what is of another network, when that was last told."""
        self._emptied_before: tuple[tuple[int, int], AbstractSet[str]] = (0, 0), frozenset()
        """The nodes that were empty at the last check, and the plan of that check."""
        self._look_at = 0.0
        self._has_planned = False
        """Whether the planner is loaded."""
        self._connected: tuple[float, int, frozenset[str]] | None = None
        """When the connections were last listed, the last incarnation, and the names of the connections."""
        self._forgetting: Handle | None = None
        self._there: Mapping[str, str] = {}
        """The nodes that answered when a plan was last thought about, name → url."""
        self._knows_who_asks = False
        """Whether all that was asked for before the last look is noted."""
        self._unheard: set[str] = set()
        """The names that may have asked for something that no plan has granted."""
        self._looked_at_nodes = self._let_go_at = 0.0
        self._granted = 0
        """How often joins were granted at once since all was thought about."""
        self._may_grant_beside = True
        """Whether joins are granted while a plan is made: not where one was in vain because of that."""
        self._gone = Gone(resume_s, now_s)
        self._absence = Absence()
        self._runs: dict[str, str] | None = None
        """The last run of each node that may be given up; None: not read yet."""
        self._asked_nodes_at = 0.0
        self._took = ""
        """The id of the last proposal that the network went over to."""

    def turn(self, seen: Seen) -> Steps[None]:
        """Act on what was just seen; if there is nothing to do, wait for a new request."""
        self._look_at = self._now_s() + self._pace.look_every_s
        if seen.record is None:
            yield from self._found(seen)
            return
        if seen.is_older:
            yield from self._begin_over(seen, seen.record)
            return
        if seen.record.plan.sole:
            yield from self._tend(seen, seen.record)
            return
        self._note(seen)
        latest: Seen | None = yield from self._grant_at_once(seen)
        if latest is not None and latest.is_crowded(self._unheard):
            latest = yield from self._gather(latest)
            latest = (yield from self._grant_at_once(latest)) if latest is not None else None
        record = latest.record if latest is not None else None
        if latest is None or record is None:
            return
        if self._is_calm(latest, record) and not self._unheard and not latest.published:
            yield from self._rest(latest, record)
            return
        following = yield from self._following(latest, record)
        if following is not None:
            yield from self._go_on_with(following, latest.asked)
        elif record.behind:
            yield from self._move(record, latest.asked)
        else:
            yield from self._rest(latest, record)

    def _grant_at_once(self, seen: Seen) -> Steps[Seen | None]:
        """Grant what takes no epoch; return what there is to decide by then, None if the lease is lost."""
        record = seen.record
        if record is None or not self._is_calm(seen, record) or not (self._unheard or seen.published):
            return seen
        granted = yield from self._granted_beside(seen, record, busy=frozenset())
        if granted is None:
            return seen
        if not (yield Write("settle", granted)):
            return None
        self._granted += 1
        after = seen._replace(
            record=granted,
            announced=(granted.plan.epoch, granted.plan.version),
            published=granted.plan.without_place(seen.published),
            touched=frozenset(),
        )
        self._note(after)
        return after

    def _rest(self, seen: Seen, record: Record) -> Steps[None]:
        """Forget who is gone, and wait for a new request."""
        yield from self._forget_publishers(record.plan)
        if (following := self._letting_go(seen, record)) is not None:
            yield from self._go_on_with(following, seen.asked)
        else:
            yield from self._next_request(seen.asked)

    def _go_on_with(self, following: Record, asked: str) -> Steps[None]:
        if Transition(following).finished:
            yield Write("settle", following)
        elif (yield Write("save", following)):
            yield from self._move(following, asked)

    def _letting_go(self, seen: Seen, record: Record) -> Record | None:
        """From time to time, return the record without those who have been gone for longer than they may be.

        And without the nodes that are registered no more, once no region is there.
        """
        now_s = self._now_s()
        if now_s < self._let_go_at or not self._has_planned or not seen.is_announced(record.plan):
            return None
        self._let_go_at = now_s + self._pace.forget_every_s
        if (retired := record.without_retired(seen.nodes)) is not None:
            return retired
        gone = self._gone.for_good(record, seen.interests)
        let_go: Record | None = self._beside.let_go(record, gone) if gone else None
        return let_go

    def _note(self, seen: Seen) -> None:
        """Note who has asked for something, or has gone, since the last look."""
        record = seen.record
        touched = seen.touched if self._knows_who_asks else None
        self._knows_who_asks = record is not None and not record.plan.sole
        if record is None or record.plan.sole:
            return
        self._gone.note(record, seen.interests, record.members.keys() if touched is None else touched)
        self._unheard |= seen.interests.keys() if touched is None else touched
        self._unheard = {
            name
            for name in self._unheard
            if name in seen.interests and seen.interests[name].after(record.heard.get(name))
        }

    def _is_calm(self, seen: Seen, record: Record) -> bool:
        """Return whether joins may be granted in place at once: the nodes were looked at just now, and nothing is lost
        or declared. From time to time all is thought about, so that those who left are let go of."""
        return (
            self._has_planned
            and not record.behind
            and seen.is_announced(record.plan)
            and seen.expected == len(record.expected)
            and not seen.doubted
            and not seen.proposed
            and seen.nodes.keys() <= record.plan.nodes.keys()
            and self._now_s() < self._looked_at_nodes + self._pace.look_every_s
            and self._granted < GRANTED_MAX
        )

    def _found(self, seen: Seen) -> Steps[None]:
        """Begin the network, once there is a connection: until then, nodes may be registered."""
        if not seen.connections:
            yield from self._next_request(seen.asked)
            return
        yield _beginning(self._ordering, seen, self._wall_ms())

    def _begin_over(self, seen: Seen, record: Record) -> Steps[None]:
        """Begin another network where the control store has come back with an old copy of this one.

        Its next plans would have numbers that connections and nodes know as those of others. So all connections end
        with `NetworkRestarted`, and nodes forget what they have when they hear of the first plan.
        """
        newest = max((epoch for _, epoch, _ in self._installed.values()), default=0)
        began_ms = max(self._wall_ms(), newest + 1, record.plan.epoch + 1)
        if not (yield _beginning(record.plan.ordering, seen, began_ms)):
            return  # it was this leader that was behind
        yield Tell(
            "the control Redis has an old copy of the network (plan %d.%d; nodes know up to %d): its connections end, "
            "and another network begins with epoch %d",
            (record.plan.epoch, record.plan.version, newest, began_ms),
        )

    def _is_overtaken(self, record: Record) -> bool:
        """Return whether a node knows a plan that came after all that the record has.

        A plan is written before nodes know of it, but the next version, with which joins are granted beside others.
        """
        plan = record.plan
        known = (self._installed.get(name, (0, 0, 0)) for name in plan.nodes)
        return any(
            network == plan.first_epoch and (plan.epoch, plan.version + 1) < (epoch, version)
            for network, epoch, version in known
        )

    def _tend(self, seen: Seen, record: Record) -> Steps[None]:
        """Look after a network of one node, which needs no plan until it has another one, or loses something."""
        node = record.plan.sole
        if seen.proposed:
            yield AnswerProposal(seen.proposed, "the network has one node")
        if not seen.is_announced(record.plan):
            if (yield from self._performed(BeginAny(node, record.plan), record.plan)):
                yield Write("found", record)
            else:
                yield from self._goes_on(record.plan, wait_s=self._pace.again_s)
            return
        runs = yield from self._ask_runs(record.plan.nodes, record)
        if self._is_overtaken(record):
            yield from self._begin_over(seen, record)
            return
        is_lost = node in runs and seen.doubted.get(node) == runs[node]
        is_lost = bool(self._found_empty(record.plan, {node})) or is_lost
        if seen.is_sole and [*seen.nodes] == [node] and not seen.may_lose and not is_lost:
            yield from self._forget_publishers(record.plan)
            yield from self._next_request(seen.asked)
            return
        interests = yield BeginToPlan()
        if interests is None:
            return
        # What has lost something takes nothing more in this epoch.
        if is_lost or (yield from self._performed(begin_listed(record, interests), record.plan)):
            begun = yield from self._performed(BeginNoMore(node, record.plan.epoch), record.plan)
            if begun is not False:
                yield Write("settle", first_listed(record, interests, begun))
                return
        yield from self._goes_on(record.plan, wait_s=self._pace.again_s)

    def _next_request(self, after: str, until: Handle | None = None) -> Steps[bool]:
        """Wait for a new request, at most for some time, or until something is done; return whether it may be there."""
        works = (until,) if until is not None else ()
        if self._is_stopping():
            if until is not None:
                yield Until(works)
            return False
        may_be_there: bool = yield Until(works, self._pace.look_every_s, after)
        return may_be_there

    def _gather(self, seen: Seen) -> Steps[Seen | None]:
        """Read the control store until no interest is new; return None if another candidate leads now."""
        for number in range(GATHER_LOOKS_MAX):
            # Not for a request: an idle Redis checks blocked commands only every 100 ms.
            yield Until(seconds=self._pace.gather_s if number else self._pace.gather_first_s)
            latest = yield from self._look()
            if latest is None or latest.asked == seen.asked:
                return latest
            seen = latest
        return seen

    def _look(self) -> Steps[Seen | None]:
        self._look_at = self._now_s() + self._pace.look_every_s
        seen: Seen | None = yield Look()
        if seen is None:
            return None
        if seen.taken:
            self.is_over = True
            return None
        self._note(seen)
        return seen

    def _in_place(self, seen: Seen, record: Record) -> Record | None:
        """Return the record after joins that affect no other subscriber: on one node, in existing regions.

        None if that does not apply or is unknown: planning takes imports and time, and runs in a thread of its own.
        """
        if [*seen.nodes] != [*record.plan.nodes] or len(seen.nodes) > 1 or record.behind or seen.proposed:
            return None
        if seen.may_lose or record.plan.runs or seen.doubted:
            return None
        alone = is_sole(record, seen.nodes)
        if seen.expected != len(record.expected) or not (alone or self._has_planned):
            return None
        if not seen.is_announced(record.plan):
            return None
        asking = {name: seen.interests[name] for name in sorted(self._unheard)}
        changes = changes_asked(record, asking, seen.published, expected=record.expected)
        if changes is None or changes.missing:
            return None
        following = following_on_one_node if alone else self._planning().following
        joined = following(
            record, changes, seen.interests, nodes=seen.nodes, announced=True, away=self._gone.away(record)
        )
        return joined if joined.plan.is_laid_out_as(record.plan) else None

    def _following(self, seen: Seen, record: Record) -> Steps[Record | None]:
        if (at_once := self._in_place(seen, record)) is not None:
            return at_once
        runs = yield from self._ask_runs(seen.nodes, record)
        if self._is_overtaken(record):
            yield from self._begin_over(seen, record)
            return None
        self._looked_at_nodes, self._granted = self._now_s(), 0
        self._absence.note(seen.nodes, runs, self._now_s())
        yield from self._note_runs(seen.nodes, runs)
        announced = not record.plan.paths or seen.is_announced(record.plan)
        # An unreachable node gets no new regions. If all are unreachable, some client has to wait anyway.
        there = are_usable(record.plan, seen.nodes, runs)
        losing = yield from self._losing(seen, record, runs, may_be_empty=announced and not record.behind)
        silent = self._given_up(record, seen.nodes, runs)
        for name, run in silent.items():
            yield Tell("node %s (%s) does not answer: its regions go on at other nodes", (name, run))
        losing |= silent
        there = {name: url for name, url in there.items() if name not in silent}
        is_whole = all(_is_named(record.plan, name, run) for name, run in losing.items())
        if seen.proposed and announced and not record.behind and is_whole:
            proposed = yield from self._proposed(seen, record, there)
            if proposed is not None:
                return proposed
        expected = record.expected
        if seen.expected != len(expected):
            expected = yield ReadExpected()
        interests = dict(seen.interests)  # as they are now: more is noted while the plan is made
        asking = {name: interests[name] for name in sorted(self._unheard) if name in interests}
        changes = partial(changes_asked, record, asking, seen.published, runs=losing, expected=expected)
        decide = partial(self._decide, record, changes, interests, there, announced, self._gone.away(record))
        deciding: Handle = yield Begin(Compute(decide))
        self._there = there
        is_calm = announced and not record.behind and not losing and len(expected) == len(record.expected)
        now = yield from self._serve_until(deciding, record, seen, is_calm=is_calm and self._may_grant_beside)
        if now is None:
            return None
        following: Record | None = deciding.result()
        self._has_planned = self._has_planned or (following is not None and not is_sole(following, there))
        if following is not None and now is not record:
            following = self._beside.rebased(record, following, now)
        self._may_grant_beside = following is not None or now is record
        return following

    def _losing(
        self, seen: Seen, record: Record, runs: Mapping[str, str], *, may_be_empty: bool
    ) -> Steps[dict[str, str]]:
        """Return the runs of the nodes that may have lost something, of those that have answered."""
        named = self._named_runs(seen, record.plan)
        emptied: AbstractSet[str] = frozenset()
        if self._emptied and may_be_empty:
            emptied = self._found_empty(record.plan, frozenset(chain.from_iterable(record.plan.paths.values())))
        losing = {
            name: run for name, run in runs.items() if name in named or name in emptied or seen.doubted.get(name) == run
        }
        for name in losing.keys() - named:
            yield Tell(
                "node %s lost acknowledged events in a restart, although it is registered to keep all: its regions "
                "begin a new epoch, and from now on it counts as a node that may lose events",
                (name,),
            )
        return losing

    def _decide(
        self,
        record: Record,
        changes_of: Callable[[], Changes | None],
        interests: Mapping[str, Interest],
        nodes: Mapping[str, str],
        announced: bool,
        away: Members,
    ) -> Record | None:
        changes = changes_of()
        if changes is None:
            return None
        following = following_on_one_node if is_sole(record, nodes) else self._planning().following
        decided: Record = following(record, changes, interests, nodes=nodes, announced=announced, away=away)
        return decided

    def _proposed(self, seen: Seen, record: Record, nodes: Mapping[str, str]) -> Steps[Record | None]:
        """Return the record that goes over to the plan that is proposed; None, with an answer, where it does not fit,
        or is what there is."""
        proposal, answer = seen.proposed, ""
        try:
            latest = (yield ReadProposal()) if proposal != self._took else None
            if latest is not None:
                proposal, plan = latest
                interests, away = dict(seen.interests), self._gone.away(record)
                # Those of the plan, too, that are not registered: the control Redis, where a network began with it.
                others = {name: url for name, url in record.plan.nodes.items() if name not in seen.nodes}
                there = nodes.keys() | (yield from self._ask_runs(others)).keys()

                def go_over() -> Record | None:
                    proposed = self._planning().proposed_record
                    return proposed(record, plan, interests, nodes=nodes, there=there, away=away)

                deciding: Handle = yield Begin(Compute(go_over))
                if not (yield from self._leads_until(deciding)):
                    return None
                following: Record | None = deciding.result()
                if following is not None:
                    self._took, self._has_planned, self._there = proposal, True, nodes
                    yield Tell("goes over to the plan that was proposed as %s", (proposal,), is_warning=False)
                    return following
        except PlanError as error:
            answer = str(error)
        yield AnswerProposal(proposal, answer)
        return None

    def _given_up(self, record: Record, nodes: Mapping[str, str], runs: Mapping[str, str]) -> dict[str, str]:
        """Return what plans name the nodes to give up. ``runs``: of those that have answered now."""
        limits_s = {name: limit_s for name, url in nodes.items() if (limit_s := self._give_up_s_of(url))}
        too_long = self._absence.too_long(limits_s, self._now_s())
        return given_up(record, nodes, runs, too_long, last=self._runs or {})

    def _ask_runs(self, nodes: Mapping[str, str], record: Record | None = None) -> Steps[Mapping[str, str]]:
        answer: Runs = yield AskRuns(nodes)
        self._emptied, self._installed = answer.emptied, answer.installed
        if record is not None:
            # What is of another network is nothing of this one.
            plan = record.plan
            strange = frozenset(
                name
                for name, (network, _, _) in answer.installed.items()
                if name in plan.visits and network not in (0, plan.first_epoch)
            )
            for name in sorted(strange - self._strange):
                yield Tell(
                    "node %s has what is of another network, which began with %d: if that still runs, two control "
                    "Redis use this node, and destroy what the other has; give it another name in one of them",
                    (name, answer.installed[name][0]),
                )
            self._strange = strange
            self._emptied |= strange
        return answer.of

    def _note_runs(self, nodes: Mapping[str, str], runs: Mapping[str, str]) -> Steps[None]:
        """Note the runs of nodes that may be given up, for the next leader, too: they are not back in the same run."""
        may_go = [name for name, url in nodes.items() if self._give_up_s_of(url)]
        if not may_go:
            return
        if self._runs is None:
            self._runs = dict((yield ReadRuns()))
        news = {name: runs[name] for name in may_go if name in runs and self._runs.get(name) != runs[name]}
        if news and (yield NoteRuns(news)):
            self._runs |= news

    def _is_overdue(self, record: Record) -> Steps[bool]:
        """Note which nodes of a transition answer; return whether one of them is to be given up."""
        nodes = record.plan.nodes
        if not any(map(self._give_up_s_of, nodes.values())):
            return False
        runs = yield from self._ask_runs(nodes)
        self._absence.note(nodes, runs, self._now_s())
        return bool(self._given_up(record, nodes, runs))

    def _serve_until(self, deciding: Handle, record: Record, seen: Seen, *, is_calm: bool) -> Steps[Record | None]:
        """Wait for a plan; meanwhile keep the lease, and grant in place what needs none. Return the record that is so
        then, None if this leader has lost the lease."""
        if not is_calm or not self._has_planned:
            return record if (yield from self._leads_until(deciding)) else None
        asking = {name: seen.interests[name].after(record.heard.get(name)) for name in self._unheard}
        placing, _ = wished(record.plan.without_place(seen.published))
        busy = placing.union(*asking.values(), *(record.members.get(name, ()) for name in asking))
        now, asked = record, seen.asked
        while not deciding.is_done:
            if not (yield from self._next_request(asked, deciding)):
                continue
            latest = yield from self._look()
            if latest is None:
                yield from self._leads_until(deciding)
                return None
            asked = latest.asked
            granted = yield from self._granted_beside(latest, now, busy=busy, apart_from=asking.keys())
            if granted is not None:
                if not (yield Write("settle", granted)):
                    yield from self._leads_until(deciding)
                    return None
                now = granted
        return now

    def _granted_beside(
        self, seen: Seen, record: Record, *, busy: AbstractSet[str], apart_from: AbstractSet[str] = frozenset()
    ) -> Steps[Record | None]:
        """Return the record in which something is granted beside a plan that is being made or brought to the nodes."""
        if seen.expected != len(record.expected) or seen.doubted or not seen.nodes.keys() <= record.plan.nodes.keys():
            return None
        nodes = {name: url for name, url in self._there.items() if name in record.plan.nodes}
        interests = {name: seen.interests[name] for name in sorted(self._unheard - apart_from)}
        following: Record | None = self._beside.granted_beside(
            record, interests, seen.published, nodes=nodes or record.plan.nodes, busy=busy
        )
        if following is None:
            return None
        tasks = tuple(self._beside.to_prepare(record, following))
        answers = (yield Perform(tasks, following.plan)) if tasks else []
        return following if all(answer is True for answer in answers) else None

    @property
    def _beside(self) -> ModuleType:
        from sequencing import beside  # takes the planner's libraries: by now they are loaded

        return beside

    def _found_empty(self, plan: Plan, used: AbstractSet[str]) -> AbstractSet[str]:
        """Return which nodes of a plan that are used were empty twice in a row.

        Once is not enough: a slow answer may date from before the node knew any plan.
        """
        number, now = (plan.epoch, plan.version), self._emptied & used
        emptied = now & self._emptied_before[1] if self._emptied_before[0] == number else frozenset[str]()
        self._emptied_before = number, now
        return emptied

    def _forget_publishers(self, plan: Plan) -> Steps[None]:
        """From time to time, have the nodes remove publishers that are still disconnected since the last check."""
        now_s, before = self._now_s(), self._connected
        if before is not None and now_s < before[0] + max(self._resume_s, self._pace.forget_every_s):
            return
        if self._forgetting is not None:
            if not self._forgetting.is_done:
                return
            try:
                self._forgetting.result()
            except Exception as error:  # noqa: BLE001 - whatever it is, the next time may do better
                yield Tell("cannot remove disconnected publishers: %r", (error,))
        last, names = yield ReadIncarnations()
        self._connected = now_s, last, names
        if before is not None:
            self._forgetting = yield Begin(ForgetPublishers(plan, before[1], names | before[2]))

    def _move(self, record: Record, asked: str) -> Steps[None]:
        """Finish a transition, unless the lease is lost or a node of it has restarted; grant others joins meanwhile."""
        move = _Move(record, Transition(record))
        if not (yield from self._advance(move, lambda: move.transition.prepared)):
            return
        if not (yield Write("announce", record)):
            return
        moving: Handle = yield Begin(self._end(move))
        try:
            if self._has_planned:
                yield from self._serve_beside(move, moving, asked)
            else:
                yield Until((moving,))
        except Exception:
            # It ends by itself when the lease is lost; the next leader can repeat a task at a node.
            if not moving.is_done:
                yield Until((moving,))
            raise
        if not moving.is_done:
            yield Until((moving,))
        moving.result()

    def _serve_beside(self, move: _Move, moving: Handle, asked: str) -> Steps[None]:
        """Grant joins that a transition does not concern, until it has ended."""
        busy = self._beside.moving_regions(move.record)
        while not moving.is_done:
            if not (yield from self._next_request(asked, moving)):
                continue
            seen = yield from self._look()
            if seen is None:
                return
            asked = seen.asked
            granted = yield from self._granted_beside(seen, move.record, busy=busy)
            if granted is None or move.is_over:
                continue
            move.is_granting = move.is_unknown = True
            try:
                is_granted = yield Write("grant", granted)
                move.is_unknown = False
            finally:
                move.is_granting = False
            if not is_granted:
                return
            move.record = granted

    def _end(self, move: _Move) -> Steps[None]:
        """Bring a transition to its end, from the announcement of its plan on."""
        if not (yield from self._advance(move, lambda: False)) or not move.transition.finished:
            return
        while move.is_granting:
            yield Until(seconds=self._pace.again_s)
        move.is_over = True
        if not move.is_unknown:
            yield Write("save", move.record.settled())

    def _advance(self, move: _Move, has_come: Callable[[], bool]) -> Steps[bool]:
        """Take a transition on until it has come so far, or is finished; return False if it cannot go on now."""
        record, transition = move.record, move.transition
        while not (has_come() or transition.finished):
            if self._is_stopping():
                return False
            tasks = transition.tasks()
            performing: Handle = yield Begin(Perform(tuple(tasks), record.plan))
            if not (yield from self._leads_until(performing, record)):
                return False
            answers = performing.result()
            for task, answer in zip(tasks, answers, strict=True):
                transition.done(task, answer)
            left = transition.tasks()
            wait_s = self._pace.again_s if left == tasks else 0.0
            if left and not (yield from self._goes_on(record.plan, wait_s=wait_s, record=record)):
                return False
        return True

    def _leads_until(self, doing: Handle, record: Record | None = None) -> Steps[bool]:
        """Wait for work, which may take longer than a lease; return whether this leader still has the lease.

        The next leader can repeat a task at a node, so tasks are not cancelled. But they are broken off, and False is
        returned, where a node of the transition of ``record`` is to be given up: one that hangs holds them up.
        """
        leads = True
        while True:
            if not doing.is_done:
                yield Until((doing,), self._pace.look_every_s)
            if doing.is_done:
                return leads
            leads = leads and not self._is_stopping() and (yield Keep())
            if leads and record is not None and (yield from self._is_overdue(record)):
                yield BreakOff(doing)
                return False

    def _goes_on(self, plan: Plan, *, wait_s: float, record: Record | None = None) -> Steps[bool]:
        """Wait; return whether this leader still has the lease, and the nodes are in the runs that the plan names.

        ``record``: of a transition, which does not go on where a node is to be given up.
        """
        yield Until(seconds=wait_s)
        # Who grants joins beside a transition looks, too, but not at the nodes.
        if self._now_s() < min(self._look_at, self._asked_nodes_at + self._pace.look_every_s):
            leads: bool = yield Keep()
            return leads
        self._asked_nodes_at = self._now_s()
        seen = yield from self._look()
        if seen is None or (record is not None and (yield from self._is_overdue(record))):
            return False
        named = self._named_runs(seen, plan)
        runs = yield from self._ask_runs({name: url for name, url in plan.nodes.items() if name in named})
        return all(_is_named(plan, name, run) for name, run in runs.items())

    @staticmethod
    def _named_runs(seen: Seen, plan: Plan) -> AbstractSet[str]:
        """Return the nodes whose runs plans name.

        That includes nodes that are registered to keep all now: clients only talk to the run that the plan names.
        """
        return seen.may_lose | plan.runs.keys()

    def _performed(self, task: Task | BeginAny | BeginNoMore, plan: Plan) -> Steps[Any]:
        [answer] = yield Perform((task,), plan)
        return answer


def _beginning(ordering: Ordering, seen: Seen, began_ms: int) -> Write:
    """Return the write with which a network begins."""
    if len(seen.nodes) > 1 or seen.may_lose:
        return Write("settle", Record(first_plan(ordering, seen.nodes, began_ms)))
    # First of all it is saved: so no node ever gets an epoch that is not the network's.
    [(node, url)] = seen.nodes.items()
    return Write("save", Record(sole_plan(ordering, node, url, began_ms)))


def _is_named(plan: Plan, node: str, run: str) -> bool:
    """Return whether a plan names the run of a server, or has given its node up in that run."""
    return plan.runs.get(node) in (run, GIVEN_UP + run)
