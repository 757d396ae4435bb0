"""What is done at which node, in which order, on the way from one plan to the next.

A transition is told as it happens at nodes in memory: a line for each phase, then its tasks; `prepared` where the plan
may be announced.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sequencing.expected import Emptied, Tails
from sequencing.frames import PublishedFrame
from sequencing.node import Answer, Node, Verdict
from sequencing.plan import Atom, AtomId, Plan, Step
from sequencing.record import Record
from sequencing.transition import Close, Closed, Drain, Forget, Open, Prepare, Seal, Task, Transition

NAMES = "n1", "n2", "n3"
NODES = dict.fromkeys(NAMES, "")


def plan_of(epoch: int, paths: str, *atoms: Atom, epochs: Mapping[str, int] | None = None, **runs: str) -> Plan:
    """``paths``: ``a:n1>n2`` each."""
    read = {path[0]: tuple(path[2:].split(">")) for path in paths.split()}
    return Plan(epoch, 1, "acyclic", NODES, read, atoms, epochs or {}, runs)


def gone_to(record: Record, nodes: Mapping[str, Node]) -> list[str]:
    """Carry out a transition as often as each task asks; return what was done."""
    transition, lines = Transition(record), list[str]()
    while not transition.finished:
        tasks, prepared = transition.tasks(), transition.prepared
        assert tasks
        for task in tasks:
            answer = task.perform(nodes[task.node])
            assert answer is not None, "whoever waits for it is answered"
            lines.append(f"{'prepared: ' if prepared else ''}{task.node} {told(task, answer)}")
            transition.done(task, answer)
            transition.done(task, answer)  # one that comes twice is ignored
            if answer is False:
                carry(nodes)
        lines.append("")
    assert transition.prepared
    return lines[:-1]


def told(task: Task, answer: object) -> str:
    match task:
        case Prepare(plan=plan, steps=steps, closing=closing):
            waiting = " ".join(f"{region}@{epoch}" for region, epoch in closing)
            return f"prepares {plan.epoch}.{plan.version}: {' '.join(map(step_told, steps))}; closing {waiting}"
        case Close(regions=regions):
            assert isinstance(answer, dict)
            return "closes " + ", ".join(f"{r} {e} before {f}: {closed_told(answer[r, e])}" for r, e, f in regions)
        case Open(regions=regions):
            accepted = {region: [(p, seen.last) for p, seen in known] for region, _, known, _ in regions}
            return "opens " + ", ".join(f"{region} {epoch} {accepted[region]}" for region, epoch, *_ in regions)
        case Drain(regions=regions):
            return "drains " + " ".join(f"{region}{epoch}" for region, epoch in regions) + f": {answer}"
        case Seal(regions=regions):
            return "seals " + " ".join(f"{region}{epoch}@{tick}" for region, epoch, tick in regions)
        case Forget(steps=steps, link_ends=ends):
            return f"forgets {' '.join(f'{region}{epoch}' for epoch, region in steps)}; links {' '.join(ends)}"
        case Tails(targets=targets, round=number):
            return f"looks, round {number}, at {' '.join(targets)}: {answer}"
        case Emptied(links=links, round=number):
            return f"has emptied, round {number}, {' '.join(f'{end}:{tail}' for end, tail in links)}: {answer}"
    raise AssertionError(task)


def step_told(step: Step) -> str:
    flag = "" if step.ingress else "*"
    return f"{flag}{step.region}{step.epoch}>{step.next or 'out'}{''.join(f':{atom}' for atom in step.atoms)}"


def closed_told(closed: Closed) -> str:
    return f"{closed.tick} {[(publisher, seen.last) for publisher, seen in sorted(closed.accepted.items())]}"


def carry(nodes: Mapping[str, Node]) -> None:
    """Do what relays do, one frame of each link."""
    for node in nodes.values():
        for target, link in list(node.links.items()):
            name, _, run = target.partition("#")
            if link and run == nodes[name].run:
                ends = f"{node.name}#{node.run}" if node.run else node.name
                answer = nodes[name].transfer(ends, link[:1])
                node.acknowledge(target, answer.accepted)


def network(*plans: Plan) -> dict[str, Node]:
    nodes = {name: Node(name) for name in NAMES}
    for plan in plans:
        settled = Record(plan, behind=(replace(plan, paths={}, epochs={}, epoch=0),))
        gone_to(settled, nodes)
    return nodes


def say(nodes: Mapping[str, Node], plan: Plan, region: str, first: int, count: int = 1, publisher: str = "p") -> None:
    frame = PublishedFrame(region, plan.epoch_of(region), publisher, 1, first, count, b"")
    [answer] = nodes[plan.paths[region][0]].publish([frame])
    assert answer.verdict == "ok"


BOTH = Atom(AtomId(1), ("a", "b"), "n2")
OLD = plan_of(1, "a:n1>n2 b:n2 c:n3 d:n1>n2", BOTH)


def test_regions_that_move_close_open_drain_and_are_forgotten_and_others_go_on() -> None:
    nodes = network(OLD)
    say(nodes, OLD, "a", 1, 2)
    say(nodes, OLD, "b", 1)
    say(nodes, OLD, "d", 1)
    new = plan_of(2, "a:n2>n3 b:n2>n3 c:n3 d:n1>n2 e:n3", Atom(AtomId(2), ("a", "b"), "n3"), epochs={"c": 1, "d": 1})
    assert gone_to(Record(new, behind=(OLD,)), nodes) == [
        "n2 prepares 2.1: a2>n3 b2>n3; closing a@0 b@1",
        "n3 prepares 2.1: *a2>out:2 *b2>out:2 e2>out; closing a@0 b@0",
        "",
        "prepared: n1 closes a 1 before 2: 3 [('p', 2)]",
        "prepared: n2 closes b 1 before 2: 2 [('p', 1)]",
        "",
        "prepared: n2 opens a 2 [('p', 2)]",
        "",
        "prepared: n2 drains a1 b1: False",
        "",
        "prepared: n2 drains a1 b1: False",
        "",
        "prepared: n2 drains a1 b1: False",
        "",
        "prepared: n2 drains a1 b1: True",
        "",
        "prepared: n1 forgets a1; links ",
        "prepared: n2 forgets a1 b1; links ",
    ]
    assert nodes["n1"].steps.keys() == {(1, "d")}
    assert [(nodes[name].epoch, nodes[name].version) for name in NAMES] == [(2, 1)] * 3
    say(nodes, new, "a", 3)


def test_what_was_prepared_for_an_earlier_plan_and_comes_late_opens_no_forgotten_ingress() -> None:
    nodes = network(OLD)
    say(nodes, OLD, "a", 1)
    late = Prepare("n1", OLD, tuple(OLD.steps("n1", ["a", "b", "d"])), ())
    new = plan_of(2, "a:n2>n3 b:n2>n3 c:n3 d:n2", Atom(AtomId(2), ("a", "b"), "n3"), epochs={"c": 1})
    gone_to(Record(new, behind=(OLD,)), nodes)
    assert not late.perform(nodes["n1"])
    assert not nodes["n1"].steps
    again = PublishedFrame("a", 1, "p", 1, 1, 1, b"")
    assert [answer.verdict for answer in nodes["n1"].publish([again])] == ["stale"]


def test_a_region_that_nobody_had_is_prepared_and_nothing_else_happens() -> None:
    nodes = network(OLD)
    new = replace(OLD.with_regions(["z"], {"n3": ""}), version=2)
    assert gone_to(Record(new, behind=(OLD,)), nodes) == ["n3 prepares 1.2: z1>out; closing "]
    again = Transition(Record(replace(new, version=3), behind=(new,)))
    assert (again.finished, again.prepared) == (True, True)


LOSSY = plan_of(1, "a:n1>n2 b:n2>n3 c:n3 d:n3>n2>n1 e:n1", n2="one", n3="one")


def test_what_went_through_a_node_that_lost_something_is_sealed_where_it_can_be_and_its_links_are_dropped() -> None:
    nodes = network(LOSSY)
    say(nodes, LOSSY, "a", 1, 4)
    new = plan_of(2, "a:n1>n2 b:n2>n3 c:n3 d:n3>n2>n1 e:n1", epochs={"c": 1, "e": 1}, n2="two", n3="one")
    ended = {"n2": (("z", 0), ("y", 0)), "n3": (("x", 0),)}
    assert gone_to(Record(new, behind=(LOSSY,), ended=ended), nodes) == [
        "n1 prepares 2.1: a2>n2#two *d2>out; closing a@1 b@0 d@0",
        "n2 prepares 2.1: *a2>out b2>n3#one *d2>n1; closing a@0 b@0 d@0",
        "n3 prepares 2.1: *b2>out d2>n2#two; closing a@0 b@0 d@1",
        "",
        "prepared: n1 closes a 1 before 2: 5 [('p', 4)]",
        "prepared: n3 closes d 1 before 2: 1 []",
        "",
        "prepared: n2 opens b 2 []",
        "",
        "prepared: n2 seals a1@5 z0@0 y0@0",
        "prepared: n3 seals b1@0",
        "prepared: n1 seals d1@1",
        "",
        "prepared: n1 forgets a1 d1; links n2#one",
        "prepared: n2 forgets a1 b1 d1; links n2#one",
        "prepared: n3 forgets b1 d1; links n2#one",
    ]
    assert nodes["n2"].run == "two"


def test_a_second_loss_under_way_ends_both_epochs_and_what_was_not_announced_is_forgotten() -> None:
    nodes = network(LOSSY)
    say(nodes, LOSSY, "a", 1, 4)
    second = plan_of(2, "a:n3>n2 b:n2>n3 c:n3 d:n3>n2>n1 e:n1", epochs={"c": 1, "e": 1}, n2="two", n3="one")
    nodes["n2"].admit("two")
    for name in NAMES:
        nodes[name].prepare(2, 1, list(second.steps(name)), {"a": 0, "d": 1})
    say(nodes, second, "b", 1, 3)
    never = plan_of(3, "a:n3 b:n3 c:n3 d:n3 e:n1", epochs={"e": 1}, n2="two", n3="one")
    new = plan_of(4, "a:n3>n2 b:n3 c:n3 d:n3>n2>n1 e:n1", epochs={"e": 1}, n2="two", n3="another")
    assert gone_to(Record(new, behind=(LOSSY, second), abandoned=(never,)), nodes) == [
        "n1 prepares 4.1: *d4>out; closing a@0 b@0 c@0 d@0",
        "n2 prepares 4.1: *a4>out *d4>n1; closing a@0 b@0 c@0 d@0",
        "n3 prepares 4.1: a4>n2#two b4>out c4>out d4>n2#two; closing a@0 b@0 c@0 d@0",
        "",
        "prepared: n1 closes a 1 before 2: 5 [('p', 4)]",
        "prepared: n2 closes b 2 before 4: 4 [('p', 3)]",
        "",
        "prepared: n3 opens a 4 [('p', 4)], b 4 [('p', 3)], c 4 [], d 4 []",
        "",
        "prepared: n2 seals a1@5 a2@0",
        "prepared: n3 seals b1@0 b2@4 c1@0",
        "prepared: n1 seals d1@0 d2@0",
        "",
        "prepared: n1 forgets a1 d1 d2; links n2#one n3#one",
        "prepared: n2 forgets a1 a2 b1 b2 d1 d2; links n2#one n3#one",
        "prepared: n3 forgets a2 b1 b2 c1 d1 d2 a3 b3 c3 d3; links n2#one n3#one",
    ]


def test_of_two_ingresses_that_knew_a_publisher_the_later_counts() -> None:
    nodes = network(OLD)
    say(nodes, OLD, "a", 1, 2)
    second = plan_of(2, "a:n3 b:n2 c:n3 d:n1>n2", BOTH, epochs={"b": 1, "c": 1, "d": 1})
    nodes["n3"].prepare(2, 1, list(second.steps("n3")), {})
    say(nodes, second, "a", 3, 4)
    say(nodes, second, "a", 1, 1, publisher="o")
    third = plan_of(3, "a:n2 b:n2 c:n3 d:n1>n2", epochs={"c": 1, "d": 1})
    for behind in ((OLD, second), (second, OLD)):
        carry(nodes)
        done = gone_to(Record(third, behind=behind), nodes)
        assert "prepared: n2 opens a 3 [('o', 1), ('p', 6)]" in done


def test_who_is_let_go_of_waits_for_a_sweep_in_as_many_rounds_as_links_follow_each_other() -> None:
    line = plan_of(1, "a:n1>n2 b:n2>n3 c:n3")
    nodes = network(line)
    for region in "ab":
        say(nodes, line, region, 1)
    settled = Record(replace(line, version=2), behind=(line,), leaving={"s": frozenset("a")})
    assert gone_to(settled, nodes) == [
        "n1 looks, round 0, at n2: {'n2': 1}",
        "n2 looks, round 0, at n3: {'n3': 1}",
        "",
        "n1 has emptied, round 0, n2:1: False",
        "n2 has emptied, round 0, n3:1: True",
        "",
        "n1 has emptied, round 0, n2:1: True",
        "",
        "n1 looks, round 1, at n2: {}",
        "n2 looks, round 1, at n3: {}",
    ]


def test_a_sweep_may_go_together_with_a_region_that_is_new() -> None:
    line = plan_of(1, "a:n1>n2 c:n3")
    nodes = network(line)
    new = replace(line.with_regions("z", {"n3": ""}), version=2)
    assert gone_to(Record(new, behind=(line,), leaving={"s": frozenset("a")}), nodes) == [
        "n3 prepares 1.2: z1>out; closing ",
        "",
        "n1 looks, round 0, at n2: {}",
    ]


def test_two_epochs_that_end_at_one_ingress_are_both_closed_there_before_the_new_one_opens() -> None:
    first = plan_of(1, "a:n1 b:n3", n3="one")
    second = replace(first, epoch=2, epochs={"b": 1})
    third = plan_of(3, "a:n1 b:n3", n3="two")
    nodes = network(first)
    say(nodes, first, "a", 1)
    nodes["n1"].prepare(2, 1, list(second.steps("n1")), {"a": 1})
    assert gone_to(Record(third, behind=(first, second)), nodes) == [
        "n1 prepares 3.1: a3>out; closing a@0 b@0",
        "n3 prepares 3.1: b3>out; closing a@0 b@0",
        "",
        "prepared: n1 closes a 1 before 2: 2 [('p', 1)], a 2 before 3: 1 [('p', 1)]",
        "",
        "prepared: n1 opens a 3 [('p', 1)]",
        "prepared: n3 opens b 3 []",
        "",
        "prepared: n1 drains a1 a2: True",
        "prepared: n3 seals b1@0",
        "",
        "prepared: n1 forgets a1 a2; links n3#one",
        "prepared: n2 forgets ; links n3#one",
        "prepared: n3 forgets b1; links n3#one",
    ]


def test_a_node_that_begins_anew_is_admitted_also_where_no_path_visits_it() -> None:
    first = plan_of(1, "a:n1", n3="one")
    nodes = network(first)
    admitted = Record(replace(first, version=2, runs={"n3": "two"}), behind=(first,))
    assert gone_to(admitted, nodes) == [
        "n3 prepares 1.2: ; closing ",
        "",
        "prepared: n1 forgets ; links n3#one",
        "prepared: n2 forgets ; links n3#one",
        "prepared: n3 forgets ; links n3#one",
    ]
    assert nodes["n3"].run == "two"


def test_a_node_that_was_not_there_before_has_no_links_that_are_dead() -> None:
    first = replace(plan_of(1, "a:n1"), nodes={"n1": "", "n2": ""})
    nodes = network(first)
    done = gone_to(Record(plan_of(2, "a:n3", n3="one"), behind=(first,)), nodes)
    assert done[-1] == "prepared: n1 forgets a1; links "


def test_an_ingress_that_is_not_there_any_more_gives_no_number() -> None:
    assert Closed.by(Answer(Verdict.STALE, (3,)), {}, None) == Closed(0, {})
    assert Closed.by(Answer(Verdict.SEEN, (3, 7)), {}, None) == Closed(7, {})


def test_a_transition_is_finished_when_all_of_its_phases_are() -> None:
    nodes = network(OLD)
    new = plan_of(2, "a:n2>n3 b:n2>n3 c:n3 d:n1>n2", epochs={"c": 1, "d": 1})
    transition = Transition(Record(new, behind=(OLD,)))
    seen = 0
    while transition.tasks():
        assert not transition.finished
        for task in transition.tasks():
            carry(nodes)
            transition.done(task, task.perform(nodes[task.node]))
            seen += 1
    assert transition.finished
    assert seen > 6


def test_an_answer_to_what_was_not_asked_is_ignored() -> None:
    transition = Transition(Record(plan_of(2, "a:n2"), behind=(plan_of(1, "a:n1"),)))
    transition.done(Drain("n1", (("a", 1),)), True)
    assert [type(task) for task in transition.tasks()] == [Prepare]
