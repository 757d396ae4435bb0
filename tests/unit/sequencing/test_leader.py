"""The leader without IO: which errands it gives, in which order, and what it does when they fail."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import pytest

from adapters import planning
from sequencing import errands
from sequencing.errands import Errand, Handle, Runs, Seen, Steps
from sequencing.leader import Leader
from sequencing.node import Node
from sequencing.record import Interest, Record

NODES = {"n1": "", "n2": ""}


class Work:
    """Work that was begun: it is done when somebody waits for it."""

    def __init__(self, host: Host, work: Errand | Steps[Any]) -> None:
        self.is_done, self._host, self._work = False, host, work
        self._value: Any = None
        self._error: Exception | None = None

    def result(self) -> Any:
        if self._error is not None:
            raise self._error
        return self._value

    def end(self) -> None:
        if self.is_done:
            return
        self.is_done = True
        try:
            run = self._host.run if isinstance(self._work, Generator) else self._host.do
            self._value = run(self._work)  # type: ignore[arg-type]
        except Lost as error:
            self._error = error


class Lost(Exception):
    """An errand had no answer."""


class Host:
    """Carries out errands by hand."""

    def __init__(self, seen: Seen, *, resume_s: float = 60.0, give_up_s: float = 0.0) -> None:
        self.seen, self.now_s = seen, 100.0
        self.writes: list[tuple[str, Record]] = []
        self.done: list[str] = []
        self.requests = 0
        """How often a wait for requests ends with one, before what else is waited for has ended."""
        self.is_leading = True
        self.refuses = 0
        """Whether the nodes do nothing of what they are to do next."""
        self.runs = dict.fromkeys(NODES, "1")
        self.installed: dict[str, tuple[int, int, int]] = {}
        self.nodes = {name: Node(name) for name in NODES}
        self.answer_write: Callable[[str], bool] = lambda how: True
        self.leader = Leader(
            "acyclic",
            resume_s,
            planning=lambda: planning,
            give_up_s_of=lambda url: give_up_s,
            is_stopping=lambda: False,
            now_s=lambda: self.now_s,
            wall_ms=lambda: 7,
        )

    def turn(self) -> None:
        self.run(self.leader.turn(self.seen))

    def run(self, steps: Steps[Any]) -> Any:
        answer: Any = None
        error: Exception | None = None
        while True:
            try:
                errand = steps.send(answer) if error is None else steps.throw(error)
            except StopIteration as end:
                return end.value
            answer, error = None, None
            try:
                answer = self.do(errand)
            except Lost as failed:
                error = failed

    def do(self, errand: Errand) -> Any:
        self.done.append(type(errand).__name__)
        match errand:
            case errands.Look():
                return self.seen if self.is_leading else None
            case errands.Keep():
                return self.is_leading
            case errands.Write(how, record):
                self.writes.append((how, record))
                return self.is_leading and self.answer_write(how)
            case errands.AskRuns(nodes):
                runs = {name: self.runs[name] for name in nodes if name in self.runs}
                return Runs(runs, installed=self.installed)
            case errands.Perform(tasks, _):
                refused, self.refuses = self.refuses, 0
                return [False if refused else task.perform(self.nodes[task.node]) for task in tasks]
            case errands.Begin(work):
                return Work(self, work)
            case errands.Compute(function):
                return function()
            case errands.Until(works, _, asked):
                return self._until(works, asked)
            case errands.ReadRuns():
                return {}
            case errands.NoteRuns():
                return True
            case errands.ReadIncarnations():
                return 1, frozenset[str]()
        return None

    def _until(self, works: tuple[Handle, ...], asked: str | None) -> bool:
        self.now_s += 0.001
        if asked is not None and self.requests:
            self.requests -= 1
            return True
        for work in works:
            assert isinstance(work, Work)
            work.end()
        return not works


def seen_of(record: Record | None, **more: Any) -> Seen:
    about: dict[str, Any] = {"announced": (0, 0), "asked": "0", "nodes": NODES, "connections": 1} | more
    return Seen(record, about.pop("interests", {}), frozenset(about.pop("published", ())), **about)


def announced(host: Host, record: Record, **more: Any) -> None:
    """Have everybody know a record, and what is wanted now."""
    host.seen = seen_of(record, announced=(record.plan.epoch, record.plan.version), **more)


def test_a_network_begins_with_its_first_connection() -> None:
    host = Host(seen_of(None, connections=0))
    host.turn()
    assert host.done == ["Until"]
    host.seen = seen_of(None)
    host.turn()
    [(how, record)] = host.writes
    assert (how, set(record.plan.nodes), record.plan.sole) == ("settle", {"n1", "n2"}, "")
    alone = Host(seen_of(None, nodes={"n1": ""}))
    alone.turn()
    assert [(how, record.plan.sole) for how, record in alone.writes] == [("save", "n1")]


def planned(host: Host) -> Record:
    """Have a first subscriber in some regions, so that the planner is loaded, and something is planned."""
    host.turn()
    announced(host, host.writes[-1][1], interests={"s": Interest(1, 1, {"a": 1, "b": 1})})
    host.turn()
    settled = host.writes[-1][1]
    assert settled.members == {"s": {"a", "b"}}
    assert not settled.behind
    return settled


def test_a_plan_is_saved_then_brought_to_the_nodes_then_announced_then_settled() -> None:
    host = Host(seen_of(None))
    planned(host)
    assert [how for how, _ in host.writes] == ["settle", "save", "announce", "save"]
    writes = [number for number, what in enumerate(host.done) if what == "Write"]
    assert "Perform" in host.done[writes[1] : writes[2]], "the nodes know it before clients do"


def test_an_old_copy_of_the_control_store_begins_another_network() -> None:
    host = Host(seen_of(None))
    record = planned(host)
    first_epoch, epoch = record.plan.first_epoch, record.plan.epoch
    announced(host, record, interests={"s": Interest(1, 1, {"a": 1, "b": 1})}, is_older=True)
    host.writes.clear()
    host.turn()
    [(how, begun)] = host.writes
    assert how == "settle"
    assert begun.plan.first_epoch > epoch
    assert not begun.plan.paths
    assert set(begun.plan.nodes) == {*NODES}
    # What nodes know says it, too, where this leader has seen nothing of the network before.
    for installed, is_older in (
        ((epoch, record.plan.version), False),
        (
            (epoch, record.plan.version + 1),
            False,
        ),  # a join in place, before it is written
        ((epoch, record.plan.version + 2), True),
        ((epoch + 1_000_000, 0), True),
    ):
        host.installed = {"n2": (first_epoch, *installed)}
        announced(host, record, interests={"s": Interest(1, 1, {"a": 1, "b": 1})})
        host.now_s += 10
        host.writes.clear()
        host.turn()
        assert bool(host.writes) is is_older
        if is_older:
            assert host.writes[0][1].plan.first_epoch > max(installed[0], first_epoch)


def test_a_node_that_another_network_used_is_no_old_copy() -> None:
    host = Host(seen_of(None))
    record = planned(host)
    host.installed = {"n2": (record.plan.first_epoch + 9, record.plan.epoch + 1_000_000, 0)}
    announced(host, record, interests={"s": Interest(1, 1, {"a": 1, "b": 1})})
    host.now_s += 10
    host.writes.clear()
    host.turn()
    assert not host.writes


def test_an_old_copy_of_a_network_of_one_node_begins_another_one() -> None:
    host = Host(seen_of(None, nodes={"n1": ""}))
    host.turn()
    [(_, record)] = host.writes
    host.installed = {"n1": (record.plan.first_epoch, record.plan.epoch + 7, 1)}
    announced(host, record, nodes={"n1": ""}, is_sole=True)
    host.writes.clear()
    host.turn()
    [(how, begun)] = host.writes
    assert (how, begun.plan.sole) == ("save", "n1")
    assert begun.plan.first_epoch > record.plan.epoch + 7


def test_a_join_that_takes_no_epoch_is_settled_at_once() -> None:
    host = Host(seen_of(None))
    record = planned(host)
    wants = {"s": Interest(1, 1, {"a": 1, "b": 1}), "t": Interest(2, 1, {"a": 1})}
    announced(host, record, interests=wants)
    host.writes.clear()
    host.turn()
    [(how, granted)] = host.writes[:1]
    assert (how, granted.plan.epoch, set(granted.members["t"])) == ("settle", record.plan.epoch, {"a"})


def moving(host: Host) -> Record:
    """Return a record in which two regions begin a new epoch, for somebody has both from now on."""
    record = planned(host)
    wants = {"s": Interest(1, 1, {"a": 1, "b": 1}), "t": Interest(2, 1, {"c": 1, "d": 1})}
    announced(host, record, interests=wants)
    host.turn()
    record = host.writes[-1][1]
    wants |= {"u": Interest(3, 1, {"a": 1, "c": 1})}
    announced(host, record, interests=wants)
    host.writes.clear()
    return record


def ask_when_announced(host: Host, region: str, published: tuple[str, ...] = ()) -> None:
    """Have somebody ask for a region as soon as the next plan is announced."""

    def wrote(how: str) -> bool:
        if how == "announce":
            following = host.writes[-1][1]
            wants = {**host.seen.interests, "v": Interest(4, 1, {region: 1})}
            announced(host, following, interests=wants, published=published, asked="1")
            host.requests = 1
        return True

    host.answer_write = wrote


def test_who_joins_beside_a_transition_is_in_the_record_that_settles_it() -> None:
    host = Host(seen_of(None))
    record = moving(host)
    ask_when_announced(host, "e", ("e",))
    host.turn()
    assert [how for how, _ in host.writes] == ["save", "announce", "grant", "save"]
    assert host.writes[-1][1].members["v"] == {"e"}
    assert host.writes[-1][1].plan.epoch > record.plan.epoch


def test_what_moves_is_not_granted_meanwhile() -> None:
    host = Host(seen_of(None))
    moving(host)
    ask_when_announced(host, "c")
    host.turn()
    assert [how for how, _ in host.writes] == ["save", "announce", "save"]
    assert "v" not in host.writes[-1][1].members


def test_a_node_that_is_silent_for_too_long_is_given_up() -> None:
    host = Host(seen_of(None), give_up_s=1.0)
    record = planned(host)
    announced(host, record, interests=host.seen.interests)
    host.now_s += 60  # it is time to look at the nodes
    [gone] = {path[-1] for region, path in record.plan.paths.items() if region == "a"}
    del host.runs[gone]
    host.writes.clear()
    host.turn()
    assert not host.writes
    host.now_s += 2
    host.turn()
    assert host.writes[-1][1].plan.given_up == {gone}


def test_a_new_region_is_granted_when_its_node_knows_it_and_not_before() -> None:
    host = Host(seen_of(None))
    record = planned(host)
    wants = {"s": Interest(1, 1, {"a": 1, "b": 1}), "t": Interest(2, 1, {"new": 1})}
    announced(host, record, interests=wants)
    host.writes.clear()
    host.done.clear()
    host.refuses = 1
    host.turn()
    grants = [number for number, what in enumerate(host.done) if what == "Write"]
    assert host.done[: grants[-1]].count("Perform") >= 2, "once in vain"
    assert host.writes[-1][1].members["t"] == {"new"}
    assert [how for how, _ in host.writes] != ["settle"], "not in place, where that was in vain"


@pytest.mark.parametrize(("region", "is_granted"), [("e", True), ("c", False)])
def test_what_is_granted_while_a_plan_is_made_is_in_it_and_is_not_what_that_is_about(
    region: str, is_granted: bool
) -> None:
    host = Host(seen_of(None))
    record = moving(host)
    wants = {**host.seen.interests, "v": Interest(4, 1, {region: 1})}
    has_begun = False
    do = host.do

    def doing(errand: Errand) -> Any:
        nonlocal has_begun
        if isinstance(errand, errands.Begin) and isinstance(errand.work, errands.Compute) and not has_begun:
            has_begun = True
            announced(host, record, interests=wants, published=["e"] if is_granted else (), asked="1")
            host.requests = 1
        return do(errand)

    host.do = doing  # type: ignore[method-assign]
    host.turn()
    how = [how for how, _ in host.writes]
    assert (how[0] == "settle") is is_granted
    assert host.writes[-1][1].members["u"] == {"a", "c"}
    assert all(("v" in written.members) == is_granted for _, written in host.writes)


def test_where_a_grant_had_no_answer_the_record_without_it_is_not_written() -> None:
    host = Host(seen_of(None))
    moving(host)

    def wrote(how: str) -> bool:
        if how == "grant":
            raise Lost
        if how == "announce":
            following = host.writes[-1][1]
            more = {"interests": {**host.seen.interests, "v": Interest(4, 1, {"e": 1})}, "published": ["e"]}
            number = following.plan.epoch, following.plan.version
            host.seen, host.requests = seen_of(following, announced=number, asked="1", **more), 1
        return True

    host.answer_write = wrote
    with pytest.raises(Lost):
        host.turn()
    assert [how for how, _ in host.writes] == ["save", "announce", "grant"], "the next look shows what is so"


@pytest.mark.parametrize("when", ["save", "announce"])
def test_who_has_lost_the_lease_writes_nothing_more(when: str) -> None:
    host = Host(seen_of(None))
    moving(host)
    host.answer_write = lambda how: how != when
    host.turn()
    assert host.writes[-1][0] == when
